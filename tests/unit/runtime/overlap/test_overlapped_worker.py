# SPDX-License-Identifier: Apache-2.0
"""A worker that keeps a device busy makes its next call at once, and everything else happens as in any worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.unit.runtime.processes.test_worker_process import Driver
from thresher.core.stage import ProcessingStage
from thresher.core.task import Task
from thresher.runtime.crashes.crash_notes import NoteKeeper, read_note
from thresher.runtime.overlap.overlapped_worker import OverlappedWorkerProcess
from thresher.runtime.processes import messages as msg

NO_LIMIT = -1
WAIT_S = 100
CALLS: list[Any] = []
OPENED = threading.Event()
GO_ON = threading.Event()
WAITING = threading.Event()
FAILED = threading.Event()


class Noticed:
    """Data that says when a worker opens it."""

    def __reduce__(self) -> tuple[Callable[[], str], tuple[()]]:
        return _opened, ()


def _opened() -> str:
    OPENED.set()
    return "noticed"


class Does(ProcessingStage[Task, Any]):
    """Does what its task says, and notes in which thread."""

    def process(self, task: Task) -> Any:
        CALLS.append((task.data, threading.get_ident()))
        self.count("calls")
        return getattr(self, task.data)(task) if isinstance(task.data, str) and hasattr(self, task.data) else task

    def waits_until_the_next_is_open(self, task: Task) -> Task:
        assert OPENED.wait(WAIT_S)
        return task

    def waits(self, task: Task) -> Task:
        WAITING.set()
        assert GO_ON.wait(WAIT_S)
        return task

    def gives_an_iterator(self, task: Task) -> Iterator[Task]:
        return map(self.made, range(2))

    def made(self, number: int) -> Task:
        CALLS.append((f"made {number}", threading.get_ident()))
        return Task(data=number)

    def gives_nonsense(self, task: Task) -> int:
        return 7

    def fails_once(self, task: Task) -> Task:
        if [called for called, _ in CALLS].count("fails_once") == 1:
            raise ValueError("once")
        return task

    def fails_and_then_gives_two(self, task: Task) -> list[Task]:
        if called().count("fails_and_then_gives_two") == 1:
            raise ValueError("once")
        FAILED.set()
        assert OPENED.wait(WAIT_S)
        return self.gives_two(task)

    def gives_two(self, task: Task) -> list[Task]:
        return [Task(data=bytes(1000)), Task(data=bytes(1000))]


class AtMostOne(ProcessingStage[Task, Task]):
    """Runs out of memory when it gets more than one task at a time."""

    batch_size = 4

    def process_batch(self, tasks: list[Task]) -> list[Task]:
        CALLS.append(len(tasks))
        if len(tasks) > 1:
            raise MemoryError("too many")
        return tasks


class Lazy(ProcessingStage[Task, Task]):
    """Makes what it gives for two tasks only when that is asked for."""

    batch_size = 2

    def process_batch(self, tasks: list[Task]) -> Any:
        return (self.made(task) for task in tasks)

    def made(self, task: Task) -> Iterator[Task]:
        CALLS.append(("made", threading.get_ident()))
        yield task


@pytest.fixture
def driver() -> Iterator[Driver]:
    CALLS.clear()
    OPENED.clear()
    GO_ON.clear()
    WAITING.clear()
    FAILED.clear()
    played = Driver([Does(), AtMostOne(), Lazy()], body=OverlappedWorkerProcess)
    yield played
    GO_ON.set()
    played.close()


def called() -> list[str]:
    return [name for name, _ in CALLS]


def test_the_next_call_is_made_ready_while_the_stage_computes(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "waits_until_the_next_is_open"), (2, Noticed())))
    assert [told.task for told in driver.hear_done(2)] == [1, 2]


def test_a_result_is_told_while_the_stage_computes_on(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "x"), (2, "waits")))
    (first,) = driver.hear_done(1)
    assert driver.data_of(first.outputs[0]) == "x"
    GO_ON.set()
    (second,) = driver.hear_done(1)
    assert [told.tally.stage(0).counts for told in (first, second)] == [{"calls": 1}, {"calls": 1}], (
        "what the second call has counted meanwhile is its own"
    )
    assert [told.tally.stage(0).tasks for told in (first, second)] == [1, 1]
    assert second.busy_s > 0


def test_all_of_a_stages_code_runs_in_one_thread(driver: Driver) -> None:
    names = ["x", "gives_an_iterator", "fails_once", "gives_nonsense", "x"]
    driver.say(driver.run(0, *enumerate(names, start=1)), driver.run(2, (6, "y"), (7, "z")))
    driver.hear_done(7)
    assert {"made 0", "made 1", "made"} <= set(called())
    assert {thread for _, thread in CALLS} == {driver.thread.ident}


def test_an_iterator_is_used_up_before_the_stage_gets_the_next_task(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "gives_an_iterator"), (2, "x")))
    first, _ = driver.hear_done(2)
    assert [driver.data_of(output) for output in first.outputs] == [0, 1]
    assert called() == ["gives_an_iterator", "made 0", "made 1", "x"]


def test_a_call_that_fails_is_made_again_before_the_next(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "fails_once"), (2, "x")))
    first, second = driver.hear_done(2)
    assert driver.data_of(first.outputs[0]) == "fails_once"
    assert first.tally.stage(0).retries == 1
    assert driver.data_of(second.outputs[0]) == "x"
    assert called() == ["fails_once", "fails_once", "x"]


def test_a_task_that_nonsense_was_given_for_is_set_aside(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "x"), (2, "gives_nonsense"), (3, "x")))
    told = {told.task: told for told in driver.hear_done(3)}
    assert [len(told[task].outputs) for task in (1, 3)] == [1, 1]
    assert told[2].tally.stage(0).quarantined == 1
    assert told[2].tally.stage(0).retries == 2, "it was tried as often as any that fails"
    assert called().count("gives_nonsense") == 3


def test_a_size_that_was_too_much_is_not_tried_again_though_the_next_call_was_ready(driver: Driver) -> None:
    driver.say(driver.run(1, *((task, task) for task in range(1, 13))))
    told = driver.hear_done(12)
    assert [driver.data_of(one.outputs[0]) for one in told] == list(range(1, 13))
    assert CALLS.count(4) == 1
    assert sum(one.tally.stage(1).splits for one in told) > 0


def test_while_a_task_waits_for_room_no_other_is_given_to_its_stage(driver: Driver) -> None:
    """1. The first task gives two results and has room for one. 2. The second is ready, and is taken back. 3. The first
    goes on."""
    driver.say(driver.run(0, (1, "gives_two"), (2, "x"), credit=1000))
    parked = driver.hear()
    assert isinstance(parked, msg.Parked)
    assert parked.update.task == 1
    driver.say(msg.GiveBack([2], "", 0), msg.GoOn(1, NO_LIMIT), driver.run(0, (3, "y")))
    assert [told.task for told in driver.hear_done(2)] == [1, 3]
    assert called() == ["gives_two", "y"]


def test_what_became_ready_while_a_task_was_tried_again_waits_too_when_that_task_waits_for_room(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "fails_and_then_gives_two"), credit=1000))
    assert FAILED.wait(WAIT_S)
    driver.say(driver.run(0, (2, Noticed()), credit=1000))
    assert isinstance(driver.hear(), msg.Parked)
    driver.say(msg.GiveBack([2], "", 0))
    driver.say(msg.GoOn(1, NO_LIMIT), driver.run(0, (3, "y")))
    assert [told.task for told in driver.hear_done(2)] == [1, 3]
    assert called()[2:] == ["y"]


def test_taking_back_what_was_ready_does_not_let_others_pass_a_task_that_waits_for_room(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "gives_two"), (2, "x"), credit=1000))
    assert isinstance(driver.hear(), msg.Parked)
    driver.say(msg.GiveBack([2], "", 0), driver.run(0, (3, "y")), msg.GoOn(1, NO_LIMIT))
    assert [told.task for told in driver.hear_done(2)] == [1, 3]


def test_a_call_that_is_ready_and_taken_back_is_not_made(driver: Driver) -> None:
    driver.say(driver.run(0, (1, "waits"), (2, Noticed())))
    assert OPENED.wait(WAIT_S)
    OPENED.clear()
    driver.say(msg.GiveBack([2], "", 0), driver.run(0, (3, Noticed())))
    assert OPENED.wait(WAIT_S), "the third is open, so what was said before is known"
    GO_ON.set()
    assert [told.task for told in driver.hear_done(2)] == [1, 3]
    assert called() == ["waits", "noticed"]


def test_a_note_names_the_task_as_long_as_the_stage_works_on_it(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = driver.process._arena.note_page
    monkeypatch.setattr("thresher.runtime.crashes.crash_notes.keeper", NoteKeeper(page))
    driver.say(driver.run(0, (1, "x"), (2, "waits"), (3, "x")))
    driver.hear_done(1)
    assert WAITING.wait(WAIT_S), "the second task is in the stage"
    note = read_note(driver.arena)
    assert note is not None
    assert note.stage == "Does"
    GO_ON.set()
    driver.hear_done(2)
    assert read_note(driver.arena) is None
    page.release()
