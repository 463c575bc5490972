# SPDX-License-Identifier: Apache-2.0
"""One stage on one task: what its code raises never costs more than the record that it fails on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher import DocumentBatch, ProcessingStage, Task
from thresher.core.tally import context_of
from thresher.runtime.worker import stage_call
from thresher.runtime.worker.call import Fault
from thresher.runtime.worker.settle import Outcome
from thresher.runtime.worker.stage_call import TaskAborted, run_stage


class Picky(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Raises where a batch holds a number that it does not like."""

    name = "picky"

    def __init__(self, bad: set[int], fails_first: int = 0, error: type[Exception] = ValueError) -> None:
        self.bad = bad
        self.fails_first = fails_first
        self.error = error
        self.calls = 0

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.calls += 1
        if self.calls <= self.fails_first or self.bad.intersection(task.values("number")):
            raise self.error("no such number")
        return task


def batch_of(count: int) -> DocumentBatch:
    """Records with the numbers from 0 on."""
    batch = DocumentBatch([{"number": number} for number in range(count)])
    batch.name_records()
    return batch


def outcome_of(stage: Any, task: Task, *, buffered: bool = False) -> Outcome:
    """All that came of a task."""
    whole = Outcome()
    for part in run_stage(context_of(stage), task, buffered=buffered):
        whole.add(part)
    return whole


def numbers(tasks: list[Task]) -> list[int]:
    """Which records are there."""
    return [number for task in tasks if isinstance(task, DocumentBatch) for number in task.values("number")]


@settings(deadline=None)
@given(st.integers(min_value=1, max_value=30), st.sets(st.integers(min_value=0, max_value=29)))
def test_only_the_records_that_fail_are_set_aside(count: int, bad: set[int]) -> None:
    outcome = outcome_of(Picky(bad), batch_of(count))
    assert numbers(outcome.tasks) == [number for number in range(count) if number not in bad]
    failed = [rows.batch for rows in outcome.failed if rows.batch is not None]
    assert sorted(numbers(list(failed))) == sorted(bad & set(range(count)))


def test_a_call_that_fails_by_chance_is_made_again_as_a_whole() -> None:
    stage = Picky(set(), fails_first=2)
    outcome = outcome_of(stage, batch_of(5))
    assert numbers(outcome.tasks) == [0, 1, 2, 3, 4]
    tally = context_of(stage).noted
    assert (stage.calls, tally.retries, tally.splits) == (3, 2, 0)


def test_only_what_may_pass_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(stage_call.time, "sleep", pauses.append)
    outcome_of(Picky(set(), fails_first=2), batch_of(5))
    assert pauses == []
    outcome = outcome_of(Picky(set(), fails_first=2, error=ConnectionError), batch_of(5))
    assert numbers(outcome.tasks) == [0, 1, 2, 3, 4]
    assert pauses == [stage_call.PAUSE_S, 2 * stage_call.PAUSE_S]


def test_what_was_set_aside_has_the_frames_of_the_stage_alone() -> None:
    (failed,) = outcome_of(Picky({0}), batch_of(1)).failed
    assert (failed.error, list(failed.messages), failed.attempts) == ("ValueError", ["no such number"], 3)
    assert "in process" in failed.traceback
    assert "runtime/worker/stage_call.py" not in failed.traceback


def test_a_generator_that_fails_after_it_gave_something_ends_the_task() -> None:
    class Late(Picky):
        def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
            yield task.take([0])
            raise ValueError("too late")

    with pytest.raises(TaskAborted, match="too late"):
        outcome_of(Late(set()), batch_of(2))
    outcome = outcome_of(Late(set()), batch_of(2), buffered=True)
    assert [rows.error for rows in outcome.failed] == ["ValueError", "ValueError"]


def test_a_fault_lets_go_of_what_the_frames_of_its_error_held() -> None:
    class Held:
        pass

    import weakref

    seen: list[weakref.ref[Held]] = []

    def fail() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise MemoryError

    try:
        fail()
    except MemoryError as error:
        fault = Fault.of(error)
        assert seen[0]() is None
    assert (fault.kind, fault.memory) == ("out-of-memory", True)
