# SPDX-License-Identifier: Apache-2.0
"""Whatever a stage returns or raises, every record is counted once and mistakes are named, on every executor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from thresher import (
    DocumentBatch,
    EmptyTask,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    ParquetWriter,
    Pipeline,
    ProcessingStage,
    SerialExecutor,
    Task,
    ThresherError,
    WordCountFilter,
)
from thresher.cli.main import main
from thresher.core.tally import counts_add_up
from thresher.errors import PlanError, RunFailedError, UsageError
from thresher.stages.text.judging.score_filter import ScoreFilter


class Items(Task):
    """A task of several items."""

    @property
    def num_items(self) -> int:
        return len(self.data)


class DropsInPlace(ProcessingStage[Items, Items]):
    def process(self, task: Items) -> Items:
        task.data = [item for item in task.data if item % 3]
        return task


class GrowsInPlace(ProcessingStage[Items, Items]):
    def process(self, task: Items) -> list[Items]:
        task.data = [*task.data, 1000]
        return [task]


class EmptiesInPlace(ProcessingStage[Items, Items]):
    def process(self, task: Items) -> Items:
        task.data = []
        return task


class Fails(ProcessingStage[Items, Items]):
    max_attempts = 1

    def process(self, task: Items) -> Items:
        if 4 in task.data:
            raise ValueError("item 4 is corrupt")
        return task


class ClearsAndFails(ProcessingStage[Items, Items]):
    def process(self, task: Items) -> Items:
        task.data = []
        raise ValueError("cleared before it failed")


class Source(ProcessingStage[EmptyTask, DocumentBatch]):
    def process(self, task: EmptyTask) -> DocumentBatch:
        raise ValueError("no such bucket")


class Untyped(ProcessingStage[Any, Any]):
    def process(self, task: Any) -> Any:
        return Items(data=[1, 2, 3])


def initial() -> list[Items]:
    return [Items(data=list(range(10))), Items(data=list(range(100, 110)))]


def counts_of(stages: list[Any], executor: Any) -> tuple[dict[str, int], dict[str, int]]:
    result = Pipeline("items", stages=stages).run(
        executor, initial_tasks=initial(), ledger=False, max_errors="100%", progress="none"
    )
    assert counts_add_up(result.counts)
    return {name: n for name, n in result.counts.items() if n}, result.drop_reasons


def test_items_that_a_task_loses_in_place_or_that_fail_are_counted_one_by_one(executor: Any) -> None:
    counts, reasons = counts_of([DropsInPlace(), Fails()], executor)
    assert counts == {"read": 20, "written": 7, "dropped": 7, "quarantined": 6}
    assert reasons == {"DropsInPlace/filtered": 7}


@pytest.mark.parametrize(
    ("stage", "expected"),
    [
        (GrowsInPlace(), {"read": 20, "created": 2, "written": 22}),
        (EmptiesInPlace(), {"read": 20, "dropped": 20}),
        (ClearsAndFails(), {"read": 20, "quarantined": 20}),
    ],
)
def test_whatever_happens_to_the_items_of_a_task_is_counted(stage: Any, expected: dict[str, int]) -> None:
    assert counts_of([stage], SerialExecutor())[0] == expected


def test_a_task_without_items_that_fails_is_still_seen() -> None:
    result = Pipeline("none", stages=[ClearsAndFails()]).run(
        SerialExecutor(), initial_tasks=[Items(data=[])], ledger=False, max_errors="100%", progress="none"
    )
    assert {name: n for name, n in result.counts.items() if n} == {"created": 1, "quarantined": 1}


class MixesKinds(ProcessingStage[DocumentBatch, Task]):
    def process(self, task: DocumentBatch) -> list[Task]:
        return [Items(data=[1, 2, 3]), DocumentBatch([{"a": 1}, {"a": 2}])]


def test_batches_and_other_tasks_of_one_call_are_counted_together() -> None:
    result = Pipeline("mixed", stages=[MixesKinds()]).run(
        SerialExecutor(), initial_tasks=[DocumentBatch([{"a": n} for n in range(3)])], ledger=False, progress="none"
    )
    assert {name: n for name, n in result.counts.items() if n} == {"read": 3, "created": 2, "written": 5}


class HandsOn(ProcessingStage[Any, Any]):
    def process(self, task: Any) -> Any:
        return task


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], 0),
        ([{}], 1),
        ([{}] * 3, 3),
        ([{}, {"a": 1}], 2),
        ([""], 1),
        (pa.table({"text": pa.array([], pa.string())}), 0),
        (pa.table({"n": range(2500)}).select([]), 2500),
        ([DocumentBatch([])], 0),
        ([DocumentBatch([{}])], 1),
    ],
)
def test_documents_without_content_are_counted_as_often_as_they_were_given(
    given: Any, expected: int, tmp_path: Path
) -> None:
    writers = [JsonlWriter(str(tmp_path / "jsonl")), ParquetWriter(str(tmp_path / "parquet"))]
    for executor, stage in (
        *((SerialExecutor(), stage) for stage in (HandsOn(), *writers)),
        (LocalExecutor(workers=1), HandsOn()),
    ):
        result = Pipeline("empty", stages=[stage]).run(executor, initial_tasks=given, ledger=False, progress="none")
        assert (result.counts["read"], result.counts["written"]) == (expected, expected)


# -- mistakes are named -----------------------------------------------------------------------------------------------


def test_a_first_stage_that_raises_ends_the_run_with_its_traceback(executor: Any, tmp_path: Path) -> None:
    stages = [Source(), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(RunFailedError) as failed:
        Pipeline("source", stages=stages).run(executor, progress="none")
    assert failed.value.exit_code == 1
    text = str(failed.value)
    assert "Source failed 3 times" in text
    assert "ValueError: no such bucket" in text
    assert "in process" in text


@pytest.mark.parametrize("make", [SerialExecutor, lambda: LocalExecutor(workers=1)])
def test_a_task_that_the_writer_cannot_write_is_named_with_its_stage(make: Any, tmp_path: Path) -> None:
    stages = [Untyped(), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(ThresherError, match=r"JsonlWriter writes DocumentBatch and cannot write an Items, .* Untyped"):
        Pipeline("unwritable", stages=stages).run(make(), progress="none")


def test_a_pipeline_without_a_reader_is_refused_before_the_run(tmp_path: Path) -> None:
    stages = [ScoreFilter(WordCountFilter()), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(PlanError, match=r"ScoreFilter comes first and takes a DocumentBatch.*JsonlReader"):
        Pipeline("no reader", stages=stages).run(SerialExecutor(), progress="none")
    assert not (tmp_path / "out").exists()


def test_a_recipe_without_a_reader_is_refused_with_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "r.yaml"
    recipe.write_text(f"name: r\nstages:\n  - WordCountFilter\n  - JsonlWriter: {{path: {tmp_path / 'out'}}}\n")
    assert main(["run", str(recipe)]) == 2
    assert main(["plan", str(recipe)]) == 2
    said = capsys.readouterr().err
    assert "put a reader such as JsonlReader or ParquetReader before it" in said
    assert "fault of Thresher" not in said


def test_a_type_that_the_writer_cannot_write_is_refused_where_the_plan_knows_it(tmp_path: Path) -> None:
    class Gives(ProcessingStage[DocumentBatch, Items]):
        def process(self, task: DocumentBatch) -> Items:
            return Items(data=[1])

    stages = [JsonlReader(str(tmp_path)), Gives(), JsonlWriter(str(tmp_path / "out"))]
    with pytest.raises(PlanError, match="JsonlWriter takes a DocumentBatch, but Gives before it gives an Items"):
        Pipeline("typed", stages=stages).run(SerialExecutor(), progress="none")


def test_initial_tasks_that_do_not_fit_the_first_stage_are_refused() -> None:
    class Needs(Fails):
        def inputs(self) -> tuple[list[str], list[str]]:
            return ["data", "frames"], []

    with pytest.raises(UsageError, match=r"initial_tasks\[1\] is a Task, but Fails takes an Items"):
        Pipeline("t", stages=[Fails()]).run(SerialExecutor(), initial_tasks=[*initial()[:1], Task(data=[1])])
    with pytest.raises(UsageError, match=r"initial_tasks\[0\] is an Items without 'frames', which Needs needs"):
        Pipeline("t", stages=[Needs()]).run(SerialExecutor(), initial_tasks=initial())
