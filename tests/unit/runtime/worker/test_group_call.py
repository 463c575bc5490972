# SPDX-License-Identifier: Apache-2.0
"""`process_batch` is called wherever it is defined, and whatever it returns, every record is counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pandas as pd
import pytest

from thresher import DocumentBatch, ProcessingStage, Task
from thresher.core.tally import context_of
from thresher.runtime.worker import stage_call
from thresher.runtime.worker.settle import Outcome
from thresher.runtime.worker.stage_call import run_group, run_stage

Make = Callable[[list[DocumentBatch]], Any]


class Batched(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Defines both methods; `process` must never be called."""

    name = "batched"
    batch_size = 4

    def __init__(self, make: Make) -> None:
        self.make = make
        self.calls: list[int] = []

    def process(self, task: DocumentBatch) -> DocumentBatch:
        raise NotImplementedError("use process_batch")

    def process_batch(self, tasks: list[DocumentBatch]) -> Any:
        self.calls.append(len(tasks))
        return self.make(tasks)


def batches(*sizes: int, units: tuple[str, ...] = ("u",)) -> list[Task]:
    """Batches of so many records, numbered through; of one unit, or of the units in turn."""
    made: list[Task] = []
    first = 0
    for place, size in enumerate(sizes):
        batch = DocumentBatch([{"number": number} for number in range(first, first + size)])
        batch._task_id = f"{units[place % len(units)]}/{place}"
        batch.name_records()
        made.append(batch)
        first += size
    return made


def grouped(make: Make, tasks: list[Task]) -> tuple[list[Outcome], Batched]:
    stage = Batched(make)
    came = sum(task.num_items for task in tasks)
    outcomes = run_group(context_of(stage), tasks)
    assert len(outcomes) == len(tasks)
    whole = total(outcomes)
    gone = sum(len(rows.batch) for rows in whole.dropped) + sum(len(rows.messages) for rows in whole.failed)
    went = sum(task.num_items for task in whole.tasks)
    assert came + whole.created == went + whole.merged + gone + whole.filtered
    return outcomes, stage


def total(outcomes: list[Outcome]) -> Outcome:
    whole = Outcome()
    for outcome in outcomes:
        whole.add(outcome)
    return whole


def numbers(tasks: list[Task]) -> list[list[Any]]:
    return [task.values("number") for task in tasks if isinstance(task, DocumentBatch)]


def names(tasks: list[Task]) -> list[str]:
    return [name for task in tasks if isinstance(task, DocumentBatch) and task.ids for name in task.ids.strings()]


def joined(tasks: list[DocumentBatch]) -> list[DocumentBatch]:
    return [DocumentBatch(pd.concat([task.to_pandas() for task in tasks]))]


def test_one_entry_for_each_task_is_its_result() -> None:
    outcomes, stage = grouped(
        lambda tasks: [tasks[0], None, [tasks[2].take([1])], iter([tasks[3]])], batches(1, 1, 2, 1)
    )
    assert [numbers(outcome.tasks) for outcome in outcomes] == [[[0]], [], [[3]], [[4]]]
    assert [sum(len(rows.batch) for rows in outcome.dropped) for outcome in outcomes] == [0, 1, 1, 0]
    assert stage.calls == [4]


def test_a_list_of_another_length_is_new_records_children_of_the_batch() -> None:
    tasks = batches(2, 1, 3)
    first = names(tasks)[0]
    outcomes, _ = grouped(joined, tasks)
    assert numbers(outcomes[0].tasks) == [[0, 1, 2, 3, 4, 5]]
    assert names(outcomes[0].tasks) == [f"{first}/{k}" for k in range(6)]
    assert outcomes[0].created == 6
    assert [outcome.merged for outcome in outcomes] == [2, 1, 3]


def test_more_tasks_than_were_given_are_new_records_too() -> None:
    def split(tasks: list[DocumentBatch]) -> list[Any]:
        return [part for t in tasks for part in (DocumentBatch(t.to_pandas()[:1]), DocumentBatch(t.to_pandas()[1:]))]

    outcomes, _ = grouped(split, batches(2, 2))
    assert numbers(outcomes[0].tasks) == [[0], [1], [2], [3]]
    assert len(set(names(outcomes[0].tasks))) == 4
    assert (outcomes[0].created, [outcome.merged for outcome in outcomes]) == (4, [2, 2])


def test_given_tasks_in_a_shorter_list_stay_themselves_and_the_others_are_dropped() -> None:
    tasks = batches(2, 2, 2)
    before = names(tasks)
    outcomes, _ = grouped(lambda tasks: [tasks[2], tasks[0].take([1])], tasks)
    assert numbers(outcomes[0].tasks) == [[4, 5], [1]]
    assert names(outcomes[0].tasks) == [before[4], before[5], before[1]]
    assert [sum(len(rows.batch) for rows in outcome.dropped) for outcome in outcomes] == [1, 2, 0]
    assert total(outcomes).created == total(outcomes).merged == 0


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_for_several_tasks_drops_all_of_them(nothing: Any) -> None:
    for tasks in (batches(2, 1), batches(2, 1, units=("u", "v"))):
        outcomes, stage = grouped(lambda tasks: nothing, tasks)
        assert [[rows.rule for rows in outcome.dropped] for outcome in outcomes] == [["filtered"], ["filtered"]]
        assert stage.calls == [2]


def test_a_list_of_another_length_is_never_made_of_two_units() -> None:
    outcomes, stage = grouped(joined, batches(1, 1, 1, 1, units=("u", "v")))
    assert stage.calls == [4, 2, 2]
    assert [numbers(outcome.tasks) for outcome in outcomes] == [[[0, 2]], [[1, 3]], [], []]
    stage.calls.clear()
    run_group(context_of(stage), batches(1, 1, units=("u", "v")))
    assert stage.calls == [1, 1]


def test_one_task_goes_through_process_batch_too() -> None:
    for make, expected in (
        (lambda tasks: tasks, [[0, 1]]),
        (lambda tasks: tasks[0], [[0, 1]]),
        (lambda tasks: [iter([tasks[0].take([0]), tasks[0].take([1])])], [[0], [1]]),
        (lambda tasks: [tasks[0].take([1]), None, [tasks[0].take([0])]], [[1], [0]]),
        (lambda tasks: None, []),
    ):
        stage = Batched(make)
        (task,) = batches(2)
        outcome = total(list(run_stage(context_of(stage), task, buffered=False)))
        assert numbers(outcome.tasks) == expected
        assert stage.calls == [1]


def test_a_record_that_fails_is_found_with_process_batch() -> None:
    def fails(tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        if any(3 in task.values("number") for task in tasks):
            raise ValueError("no 3")
        return tasks

    outcomes, _ = grouped(fails, batches(2, 3, 1))
    assert [numbers(outcome.tasks) for outcome in outcomes] == [[[0, 1]], [[2, 4]], [[5]]]
    (failed,) = total(outcomes).failed
    assert failed.batch is not None
    assert failed.batch.values("number") == [3]
    assert failed.error == "ValueError"


def test_what_may_pass_is_tried_again_with_all_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage_call.time, "sleep", lambda seconds: None)
    broken = [True]

    def busy(tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        if broken.pop() if broken else False:
            raise ConnectionError("busy")
        return joined(tasks)

    outcomes, stage = grouped(busy, batches(1, 1))
    assert stage.calls == [2, 2]
    assert numbers(outcomes[0].tasks) == [[0, 1]]


def test_what_is_no_list_is_refused_with_the_name_of_the_method() -> None:
    (failed,) = total(grouped(lambda tasks: pd.DataFrame({"a": [1]}), batches(1))[0]).failed
    assert "batched.process_batch returned a DataFrame; return a list with one entry" in failed.messages[0]


class Plain(Task):
    """A task of one item."""


def test_tasks_that_are_no_batches_are_counted_in_the_same_way() -> None:
    class Sums(ProcessingStage[Task, Task]):
        def process_batch(self, tasks: list[Task]) -> Iterator[Task]:
            yield Plain(data=sum(task.data for task in tasks))

    tasks: list[Task] = [Plain(data=n) for n in range(3)]
    for task in tasks:
        task._task_id = "u/0"
    outcomes = run_group(context_of(Sums()), tasks)
    assert [task.data for task in outcomes[0].tasks] == [3]
    assert outcomes[0].tasks[0].task_id == "u/0/0"
    assert (outcomes[0].created, [outcome.merged for outcome in outcomes]) == (1, [1, 1, 1])
