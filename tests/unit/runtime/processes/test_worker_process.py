# SPDX-License-Identifier: Apache-2.0
"""What a worker process says and does; the test plays the driver."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thresher.core.pipeline import Pipeline
from thresher.core.planning.plan import PlanSettings, make_plan
from thresher.core.stage import ProcessingStage
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.overlap.overlapped_worker import OverlappedWorkerProcess
from thresher.runtime.payloads.arena import OwnArena, Reader, create_arena
from thresher.runtime.payloads.payload import Payload, encode
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.wire import Channel, socket_pair
from thresher.runtime.processes.worker_process import WorkerProcess
from thresher.runtime.worker.worker import Worker

UNIT = Unit("u-000000", (0, 0), (), "u")
NO_LIMIT = -1
LOG: list[str] = []


class Count(ProcessingStage[Task, Task]):
    """Yields as many tasks as its task says, of a size that it says."""

    def process(self, task: Task) -> Iterator[Task]:
        count, size = task.data
        try:
            for number in range(count):
                LOG.append(f"made {number}")
                yield Task(data=bytes([number % 256]) * size)
        finally:
            LOG.append("closed")

    def teardown(self) -> None:
        LOG.append("torn down")


class Same(ProcessingStage[Task, Task]):
    """Gives back what it gets."""

    def process(self, task: Task) -> Task:
        return task


class Together(ProcessingStage[Task, Task]):
    """Takes three tasks at a time."""

    batch_size = 3

    def process_batch(self, tasks: list[Task]) -> list[Task]:
        return [Task(data=(task.data, len(tasks))) for task in tasks]


class Driver:
    """The other end of a worker."""

    def __init__(
        self,
        stages: list[ProcessingStage[Any, Any]],
        spill_to: str = "",
        body: type[WorkerProcess] = WorkerProcess,
    ) -> None:
        plan = make_plan(Pipeline("p", stages=stages), PlanSettings(fusion=False), initial_tasks=True)
        mine, its = socket_pair()
        self.channel: Channel[Any] = Channel(mine, msg.FromWorker)
        self.arena = create_arena(2**32)
        self.reader = Reader()
        self.reader.add(1, os.dup(self.arena))
        self.its: Channel[Any] = Channel(its, msg.ToWorker)
        worker = Worker(WorkerSetup(plan))
        own = OwnArena(1, os.dup(self.arena), keep_bytes=2**20, spill_to=spill_to)
        self.process = body(self.its, worker, own)
        self.thread = threading.Thread(target=self._serve)
        self._heard: list[Any] = []
        LOG.clear()

    def _serve(self) -> None:
        self.process.serve()
        self.process.end()

    def say(self, *messages: Any) -> None:
        """Send in one frame; the worker starts with the first."""
        for message in messages:
            self.channel.queue(message)
        self.channel.flush()
        if not self.thread.ident:
            self.thread.start()

    def hear(self, kind: Any = object) -> Any:
        """The next message of a kind; others are passed over."""
        while True:
            while self._heard:
                message = self._heard.pop(0)
                if isinstance(message, kind) and (kind is not object or not isinstance(message, msg.Returned)):
                    return message
            self._heard = self.channel.receive(wait=True)

    def hear_done(self, count: int) -> list[msg.TaskUpdate]:
        """What is told of so many tasks until their end, however many messages a busy machine needs for it."""
        told: list[msg.TaskUpdate] = []
        before: dict[int, list[msg.Output]] = {}
        while len(told) < count:
            message = self.hear(msg.Done | msg.TaskProgress)
            if isinstance(message, msg.TaskProgress):
                before.setdefault(message.update.task, []).extend(message.update.outputs)
                continue
            told += message.tasks
        for update in told:
            update.outputs[:0] = before.pop(update.task, [])
        return told

    def run(self, op: int, *tasks: tuple[int, Any], credit: int = NO_LIMIT) -> msg.Run:
        """An order for tasks with these ids and data."""
        entries = [msg.TaskIn(task, 0, 0, credit, encode(Task(data=data)).inline()) for task, data in tasks]
        return msg.Run(op, [UNIT], entries)

    def data_of(self, output: msg.Output) -> Any:
        assert output.payload is not None
        return self.reader.open(output.payload).data

    def close(self) -> None:
        if self.thread.ident:
            self.say(msg.Stop())
            self.thread.join()
        self.channel.close()
        self.its.close()
        os.close(self.arena)


@pytest.fixture(params=[WorkerProcess, OverlappedWorkerProcess])
def driver(request: pytest.FixtureRequest) -> Iterator[Driver]:
    played = Driver([Count(), Same(), Together()], body=request.param)
    yield played
    played.close()


def test_results_of_tiny_tasks_come_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.runtime.processes.worker_process.LOOK_EVERY_S", 60.0)  # as if they took no time
    driver = Driver([Same()])
    driver.say(driver.run(0, *((task, task * 10) for task in range(1, 33))))
    done = driver.hear()
    assert isinstance(done, msg.Done)
    assert [told.task for told in done.tasks] == list(range(1, 33))
    assert [driver.data_of(told.outputs[0]) for told in done.tasks] == [task * 10 for task in range(1, 33)]
    driver.close()


def test_every_task_of_a_group_gets_its_own_results(driver: Driver) -> None:
    driver.say(driver.run(2, *((task, task) for task in range(1, 8))))
    results = {told.task: driver.data_of(told.outputs[0]) for told in driver.hear_done(7)}
    assert results == {1: (1, 3), 2: (2, 3), 3: (3, 3), 4: (4, 3), 5: (5, 3), 6: (6, 3), 7: (7, 1)}


def test_a_result_says_how_many_records_it_holds_and_what_goes_on_does_not(driver: Driver) -> None:
    driver.say(driver.run(2, (1, "x")), driver.run(1, (2, "x")))
    assert [output.items for told in driver.hear_done(2) for output in told.outputs] == [1, 0]


def test_a_generator_parks_when_its_credit_is_used_and_goes_on_with_more(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (3, 1000)), credit=1000))
    for number in range(2):
        parked = driver.hear()
        assert isinstance(parked, msg.Parked)
        assert [driver.data_of(output)[0] for output in parked.update.outputs] == [number]
        assert LOG[-1] == f"made {number}"
        driver.say(msg.GoOn(1, 1000))
    assert isinstance(driver.hear(), msg.Parked)
    driver.say(msg.GoOn(1, NO_LIMIT))
    assert driver.hear_done(1)[0].outputs == []


def test_a_generator_without_a_limit_never_parks(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (100, 1000))))
    outputs = []
    while True:
        message = driver.hear()
        if isinstance(message, msg.Done):
            outputs.extend(message.tasks[0].outputs)
            break
        assert isinstance(message, msg.TaskProgress)
        outputs.extend(message.update.outputs)
    assert [driver.data_of(output)[0] for output in outputs] == list(range(100))


def test_credit_that_comes_after_parking_lets_the_task_go_on(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (2, 1000)), credit=1000))
    assert isinstance(driver.hear(), msg.Parked)
    driver.say(msg.Credit(1, 10_000))
    assert [driver.data_of(output)[0] for output in driver.hear_done(1)[0].outputs] == [1]


def test_a_worker_with_a_parked_generator_goes_on_with_other_ops_and_not_with_that_one(driver: Driver) -> None:
    """1. A task of op 0 parks. 2. Another task of op 0 waits. 3. A task of op 1 runs. 4. The first goes on and ends.
    5. The second runs."""
    driver.say(driver.run(0, (1, (1, 1000)), credit=1000), driver.run(0, (2, (1, 10))), driver.run(1, (3, "x")))
    assert driver.hear().update.task == 1
    assert driver.hear().tasks[0].task == 3
    driver.say(msg.GoOn(1, NO_LIMIT))
    assert [told.task for told in driver.hear_done(2)] == [1, 2]


def test_a_task_that_is_taken_back_is_closed_and_not_heard_of_again(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (5, 1000)), credit=1000), driver.run(0, (2, (1, 10))))
    assert isinstance(driver.hear(), msg.Parked)
    driver.say(msg.GiveBack([1, 2], "", 0), driver.run(1, (3, "x")))
    assert [told.task for told in driver.hear(msg.Done).tasks] == [3]
    assert LOG[-1] == "closed"


def test_a_large_result_is_told_at_once_and_lies_in_shared_memory(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (2, 200_000))))
    first = driver.hear()
    assert isinstance(first, msg.TaskProgress)
    assert first.update.outputs[0].payload is not None
    assert first.update.outputs[0].payload.arena == 1
    assert driver.data_of(first.update.outputs[0]) == bytes(200_000)


def test_a_segment_that_is_freed_is_used_again(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (1, 200_000))))
    first = driver.hear(msg.TaskProgress).update.outputs[0].payload
    driver.hear(msg.Done)
    driver.say(msg.Free([first.offset]), driver.run(0, (2, (1, 200_000))))
    assert driver.hear(msg.TaskProgress).update.outputs[0].payload.offset == first.offset


def test_a_lease_is_given_back_when_the_task_is_done(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (1, 200_000))))
    payload = driver.hear(msg.TaskProgress).update.outputs[0].payload
    driver.hear(msg.Done)
    driver.say(msg.Run(1, [UNIT], [msg.TaskIn(2, 0, 0, NO_LIMIT, payload)]))
    assert driver.hear(msg.Returned).leases == [(1, payload.offset)]


def test_a_payload_that_was_taken_back_unopened_is_given_back(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (1, 200_000))))
    payload = driver.hear(msg.TaskProgress).update.outputs[0].payload
    driver.hear(msg.Done)
    driver.say(
        driver.run(0, (2, (2, 1000)), credit=1000),
        msg.Run(0, [UNIT], [msg.TaskIn(3, 0, 0, NO_LIMIT, payload)]),
        msg.GiveBack([3], "", 0),
    )
    assert driver.hear(msg.Returned).leases == [(1, payload.offset)]


def test_a_task_that_cannot_be_sent_fails_with_its_reason(driver: Driver) -> None:
    class Locks(ProcessingStage[Task, Task]):
        """Makes what no process can send."""

        def process(self, task: Task) -> Task:
            return Task(data=threading.Lock())

    played = Driver([Locks()])
    played.say(played.run(0, (1, "x")))
    failed = played.hear()
    assert isinstance(failed, msg.Failed)
    assert failed.tasks == [1]
    assert not failed.fatal, "it is tried again before the run ends"
    assert "cannot be sent to another process" in failed.message
    played.close()


def test_in_batch_mode_payloads_go_to_files(tmp_path: Path) -> None:
    played = Driver([Count()], spill_to=str(tmp_path))
    played.say(played.run(0, (1, (2, 200_000))))
    outputs: list[msg.Output] = []
    while len(outputs) < 2:
        message = played.hear()
        outputs += message.update.outputs if isinstance(message, msg.TaskProgress) else message.tasks[0].outputs
    paths = [output.payload.path for output in outputs if output.payload is not None]
    assert sorted(paths) == sorted(str(path) for path in tmp_path.iterdir())
    assert [played.data_of(output) for output in outputs] == [bytes([n]) * 200_000 for n in range(2)]
    played.close()


def test_the_end_of_a_worker_tears_stages_down(driver: Driver) -> None:
    driver.say(driver.run(0, (1, (5, 1000)), credit=1000))
    assert isinstance(driver.hear(), msg.Parked)
    driver.say(msg.Stop())
    driver.thread.join()
    assert LOG[-2:] == ["closed", "torn down"]


def test_a_payload_of_one_part_needs_no_lengths() -> None:
    assert Payload((), b"abc").nbytes == 3
