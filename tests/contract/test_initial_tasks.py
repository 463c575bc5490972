# SPDX-License-Identifier: Apache-2.0
"""A run over initial tasks that ended early goes on with what is left, on every executor, with the same tasks only."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from thresher import DocumentBatch, JsonlWriter, Pipeline, ProcessingStage, RunResult, SerialExecutor, Task
from thresher.errors import OutputRefusedError, RunFailedError

TASKS = 5
ROWS = 3


def batches(last: str = "last") -> list[DocumentBatch]:
    """Return five tasks of three documents; `last` is the text of the last document."""
    texts = [[f"{task} {row}" for row in range(ROWS)] for task in range(TASKS)]
    texts[-1][-1] = last
    return [DocumentBatch([{"text": text} for text in some]) for some in texts]


class Passes(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        return task


class FullAtThird(JsonlWriter):
    """Finds no room for the third task while a file exists."""

    def open_writer(self, local_path: str) -> Any:
        if os.path.basename(local_path).startswith("task-000002") and Path(f"{self.path}.full").exists():
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().open_writer(local_path)


class Scene:
    """A pipeline whose first attempt fails at the third task."""

    def __init__(self, folder: Path) -> None:
        self.output = folder / "out"
        self.fault = folder / "out.full"

    def run(self, executor: Any, tasks: Any, **options: Any) -> RunResult:
        stages = [Passes(), FullAtThird(str(self.output), mode=options.pop("mode", "error"))]
        return Pipeline("tasks", stages=stages).run(executor, initial_tasks=tasks, progress="none", **options)

    def fail(self, executor: Any, tasks: Any) -> None:
        self.fault.touch()
        with pytest.raises(RunFailedError, match="disk is full"):
            self.run(executor, tasks)
        self.fault.unlink()

    def files(self) -> dict[str, tuple[int, int]]:
        """Return what changes if a file is written again."""
        found = self.output.glob("*.jsonl")
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}

    def texts(self) -> list[str]:
        lines = [line for path in sorted(self.output.glob("*.jsonl")) for line in path.read_text().splitlines()]
        return [json.loads(line)["text"] for line in lines]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def texts_of(tasks: list[DocumentBatch]) -> list[str]:
    return [text for task in tasks for text in task.column("text").to_pylist()]


def test_a_run_over_initial_tasks_goes_on_with_what_is_left(executor: Any, scene: Scene) -> None:
    scene.fail(executor, batches())
    before = scene.files()
    result = scene.run(executor, batches())
    assert result.status == "finished"
    assert (result.units_total, result.units_resumed) == (TASKS, len(before))
    assert result.counts["read"] == result.counts["written"] == TASKS * ROWS
    assert scene.texts() == texts_of(batches())
    assert before.items() <= scene.files().items()
    again = scene.run(executor, batches())
    assert (again.status, again.units_resumed) == ("nothing-to-do", TASKS)


def test_serial_has_committed_two_of_five_tasks_when_the_third_fails(scene: Scene) -> None:
    scene.fail("serial", batches())
    assert scene.run("serial", batches()).units_resumed == 2


def test_changed_initial_tasks_are_refused_and_nothing_is_touched(scene: Scene) -> None:
    scene.fail("serial", batches())
    before = scene.files()
    with pytest.raises(OutputRefusedError, match=r"Changed: initial_tasks\. Use --accept-changes") as refused:
        scene.run("serial", batches("another text"))
    assert refused.value.exit_code == 4
    assert scene.files() == before
    with pytest.raises(OutputRefusedError, match="initial_tasks"):
        scene.run("serial", batches()[:4])


def test_changed_initial_tasks_may_be_accepted_or_start_over(scene: Scene) -> None:
    scene.fail("serial", batches())
    accepted = scene.run("serial", batches("another text"), accept_changes=True)
    assert accepted.units_resumed == 2
    assert scene.texts() == texts_of(batches("another text"))
    fresh = scene.run("serial", batches("a third text"), fresh=True)
    assert fresh.units_resumed == 0
    assert scene.texts() == texts_of(batches("a third text"))


def test_other_initial_tasks_are_appended_and_replace_what_is_overwritten(scene: Scene) -> None:
    scene.run("serial", batches("first"), mode="append")
    scene.run("serial", batches("second"), mode="append")
    assert sorted(scene.texts()) == sorted([*texts_of(batches("first")), *texts_of(batches("second"))])
    scene.run("serial", batches("third"), mode="overwrite")
    assert scene.texts() == texts_of(batches("third"))


def test_texts_of_a_list_resume_as_the_batches_that_they_become(scene: Scene) -> None:
    texts = [f"{number % 7} text" for number in range(2500)]
    scene.run("serial", texts)
    assert scene.run("serial", texts).status == "nothing-to-do"
    with pytest.raises(OutputRefusedError, match="initial_tasks"):
        scene.run("serial", [*texts[:-1], "another"])


class Sums(ProcessingStage[Task, Task]):
    """Makes one task of all tasks of a call."""

    batch_size = 2

    def process_batch(self, tasks: list[Task]) -> list[Task]:
        return [Task(data=[number for task in tasks for number in task.data], metadata=tasks[0].metadata)]


class ToDocuments(ProcessingStage[Task, DocumentBatch]):
    def process(self, task: Task) -> DocumentBatch:
        return DocumentBatch([{"text": str(task.data)}])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1, 2, 3], [1, 2, 4]),
        ({"b", "a", "c"}, {"b", "a", "d"}),
        (np.arange(4), np.arange(4) * 2),
        (np.array([None, "a"]), np.array([None, "b"])),
    ],
    ids=["list", "set", "numbers", "objects"],
)
def test_tasks_of_any_type_are_compared_by_content(tmp_path: Path, first: Any, second: Any) -> None:
    def run(data: Any) -> RunResult:
        stages = [ToDocuments(), JsonlWriter(str(tmp_path / "out"))]
        return Pipeline("own", stages=stages).run("serial", initial_tasks=[Task(data=data)], progress="none")

    run(first)
    assert run(first).status == "nothing-to-do"
    with pytest.raises(OutputRefusedError, match="initial_tasks"):
        run(second)


def test_another_number_of_tasks_per_call_is_refused(tmp_path: Path) -> None:
    def run(size: int) -> RunResult:
        stages = [Sums().with_(batch_size=size), ToDocuments(), JsonlWriter(str(tmp_path / "out"))]
        tasks = [Task(data=[number]) for number in range(6)]
        return Pipeline("sums", stages=stages).run(SerialExecutor(), initial_tasks=tasks, progress="none")

    run(2)
    assert run(2).status == "nothing-to-do"
    with pytest.raises(OutputRefusedError, match="initial_tasks"):
        run(3)


def test_without_a_writer_the_tasks_run_again_because_their_results_are_in_memory(tmp_path: Path) -> None:
    pipeline = Pipeline("memory", stages=[Passes()])
    for _ in range(2):
        result = pipeline.run("serial", initial_tasks=batches(), run_dir=str(tmp_path / "run"), progress="none")
        assert (result.status, result.units_resumed) == ("finished", 0)
        assert result.to_arrow().num_rows == TASKS * ROWS
