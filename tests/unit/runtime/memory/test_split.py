# SPDX-License-Identifier: Apache-2.0
"""Where memory runs out in a stage: half as much at a time, the size remembered, the record that does not fit set
aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher import DocumentBatch, Pipeline, ProcessingStage, SerialExecutor, Task
from thresher.core.batching import InferenceBatcher
from thresher.core.tally import context_of
from thresher.runtime.memory import split as memory_split
from thresher.runtime.worker.settle import Outcome
from thresher.runtime.worker.stage_call import TaskAborted, run_group, run_stage


@pytest.fixture(autouse=True)
def _nothing_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Giving memory back takes milliseconds and is tested elsewhere."""
    monkeypatch.setattr(memory_split, "give_memory_back", lambda: None)


class SmallRoom(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Stands for a stage whose memory holds `room` characters of text at a time."""

    name = "small_room"

    def __init__(self, room: int) -> None:
        self.room = room
        self.calls: list[int] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        texts = task.values("text")
        self.calls.append(len(texts))
        if sum(map(len, texts)) > self.room:
            raise MemoryError
        return task.replace("length", [len(text) for text in texts])


class SmallGroup(SmallRoom):
    """The same for several tasks in one call."""

    batch_size = 8

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        self.calls.append(len(tasks))
        if sum(len(text) for task in tasks for text in task.values("text")) > self.room:
            raise MemoryError
        return tasks


def batch_of(lengths: list[int], first: int = 0) -> DocumentBatch:
    """A batch of texts of such lengths."""
    batch = DocumentBatch([{"text": "x" * n, "number": first + k} for k, n in enumerate(lengths)])
    batch.name_records()
    return batch


def outcome_of(stage: Any, task: Task) -> Outcome:
    """All that came of a task."""
    whole = Outcome()
    for part in run_stage(context_of(stage), task, buffered=False):
        whole.add(part)
    return whole


def numbers(tasks: list[Task]) -> list[int]:
    """Which records are there."""
    return [number for task in tasks if isinstance(task, DocumentBatch) for number in task.values("number")]


@settings(deadline=None)
@given(
    st.lists(st.integers(min_value=0, max_value=50), min_size=1, max_size=40), st.integers(min_value=1, max_value=60)
)
def test_every_record_that_fits_alone_goes_on_and_only_the_others_are_set_aside(lengths: list[int], room: int) -> None:
    stage = SmallRoom(room)
    for _ in range(2):  # the second time with what was remembered
        outcome = outcome_of(stage, batch_of(lengths))
        fitting = [number for number, n in enumerate(lengths) if n <= room]
        assert numbers(outcome.tasks) == fitting
        failed = [rows.batch for rows in outcome.failed if rows.batch is not None]
        assert sorted(numbers(list(failed))) == sorted(set(range(len(lengths))) - set(fitting))
        assert {rows.error for rows in outcome.failed} <= {"out-of-memory"}


def test_later_batches_are_cut_before_the_call() -> None:
    stage = SmallRoom(room=500)
    outcome_of(stage, batch_of([100] * 16))
    stage.calls.clear()
    outcome = outcome_of(stage, batch_of([100] * 16))
    assert stage.calls == [4, 4, 4, 4]
    assert numbers(outcome.tasks) == list(range(16))


def test_a_large_record_does_not_make_calls_small_for_ever() -> None:
    """What is remembered is bytes: a stage that met one large record still gets many small ones at a time."""
    stage = SmallRoom(room=5000)
    outcome_of(stage, batch_of([4900, *[10] * 63]))
    stage.calls.clear()
    outcome_of(stage, batch_of([10] * 64))
    assert len(stage.calls) <= 2


def test_what_was_set_aside_says_why_and_what_to_do() -> None:
    (failed,) = outcome_of(SmallRoom(room=10), batch_of([50])).failed
    assert failed.error == "out-of-memory"
    assert "memory ran out (MemoryError" in failed.messages[0]
    assert "more memory" in failed.messages[0]
    assert "raise MemoryError" in failed.traceback


def test_the_report_shows_how_often_and_how_far() -> None:
    stage = SmallRoom(room=350)
    result = Pipeline("split", stages=[stage]).run(
        SerialExecutor(), initial_tasks=[batch_of([100] * 8)], progress="none", ledger=False
    )
    (entry,) = result.stages
    assert (entry["splits"], entry["split_to"]) == (2, 2)
    assert result.counts["written"] == 8


def test_a_stage_that_never_ran_out_has_no_size_in_the_report() -> None:
    result = Pipeline("whole", stages=[SmallRoom(room=10**9)]).run(
        SerialExecutor(), initial_tasks=[batch_of([100] * 8)], progress="none", ledger=False
    )
    (entry,) = result.stages
    assert (entry["splits"], entry["split_to"]) == (0, None)


def test_a_group_is_halved_too_and_its_size_remembered() -> None:
    stage = SmallGroup(room=250)
    tasks: list[Task] = [batch_of([100], first=number) for number in range(8)]
    outcomes = run_group(context_of(stage), tasks)
    assert [numbers(outcome.tasks) for outcome in outcomes] == [[number] for number in range(8)]
    assert stage.calls == [8, 4, 2, 2, 2, 2]
    stage.calls.clear()
    run_group(context_of(stage), tasks)
    assert stage.calls == [2, 2, 2, 2]


def test_a_task_of_a_group_that_does_not_fit_alone_is_set_aside_by_itself() -> None:
    stage = SmallGroup(room=250)
    tasks: list[Task] = [batch_of([100]), batch_of([300], first=1), batch_of([100], first=2)]
    outcomes = run_group(context_of(stage), tasks)
    assert [numbers(outcome.tasks) for outcome in outcomes] == [[0], [], [2]]
    assert [rows.error for rows in outcomes[1].failed] == ["out-of-memory"]


def test_a_generator_that_ran_out_before_it_gave_anything_gets_less() -> None:
    class Lazy(SmallRoom):
        def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
            if len(task) > 2:
                raise MemoryError
            yield task

    outcome = outcome_of(Lazy(0), batch_of([1] * 7))
    assert numbers(outcome.tasks) == list(range(7))


def test_a_generator_that_ran_out_in_the_middle_ends_the_task_and_gets_less_next_time() -> None:
    class Late(SmallRoom):
        def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
            yield task.take([0])
            if len(task) > 4:
                raise MemoryError
            if len(task) > 1:
                yield task.take(list(range(1, len(task))))

    stage = Late(0)
    with pytest.raises(TaskAborted):
        outcome_of(stage, batch_of([1] * 8))
    assert numbers(outcome_of(stage, batch_of([1] * 8)).tasks) == list(range(8))


def test_a_stage_whose_batches_may_not_be_cut_is_tried_once_more() -> None:
    class Whole(SmallRoom):
        row_wise = False

    stage = Whole(room=10)
    outcome = outcome_of(stage, batch_of([20, 20]))
    assert stage.calls == [2, 2]
    assert context_of(stage).noted.retries == 1
    assert [len(rows.messages) for rows in outcome.failed] == [2]


def test_what_a_failed_call_held_is_gone_before_the_next_try() -> None:
    class Hoarder:
        alive = 0

        def __init__(self) -> None:
            Hoarder.alive += 1

        def __del__(self) -> None:
            Hoarder.alive -= 1

    class Greedy(SmallRoom):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            assert Hoarder.alive == 0
            hoard = Hoarder()
            if len(task) > 1:
                raise MemoryError
            del hoard
            return task

    assert numbers(outcome_of(Greedy(0), batch_of([1] * 4)).tasks) == [0, 1, 2, 3]


def test_a_model_that_halves_its_own_passes_shows_in_the_report() -> None:
    class Model(SmallRoom):
        """Uses the batcher as an author would."""

        def setup(self, worker_metadata: Any = None) -> None:
            self.batcher = InferenceBatcher(8, stage=self)

        def process(self, task: DocumentBatch) -> DocumentBatch:
            return task.replace("score", self.batcher.run(self.forward, task.values("text")))

        def forward(self, texts: Any) -> list[int]:
            if len(texts) > 3:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
            return [len(text) for text in texts]

    result = Pipeline("model", stages=[Model(0)]).run(
        SerialExecutor(), initial_tasks=[batch_of([5] * 10)], progress="none", ledger=False
    )
    (entry,) = result.stages
    assert (entry["splits"], entry["split_to"], entry["out_docs"]) == (2, 2, 10)


def test_a_record_that_cannot_even_be_written_down_leaves_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    from thresher.ledger import quarantine
    from thresher.runtime.worker import count

    def too_much(failed: Any, stage_name: str) -> list[bytes]:
        if failed.batch is not None:
            raise MemoryError
        return quarantine.quarantine_lines(failed, stage_name)

    monkeypatch.setattr(count, "quarantine_lines", too_much)
    result = Pipeline("heads", stages=[SmallRoom(room=10)]).run(
        SerialExecutor(), initial_tasks=[batch_of([50, 5])], progress="none", ledger=False, max_errors="100%"
    )
    assert (result.counts["written"], result.counts["quarantined"]) == (1, 1)
