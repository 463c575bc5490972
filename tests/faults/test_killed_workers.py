# SPDX-License-Identifier: Apache-2.0
"""A worker that the kernel kills: what it worked on is tried again with less at a time, and a record that kills by
itself is set aside."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from thresher import DocumentBatch, JsonlReader, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage, RunResult, Task

DEADLY = 13
MOST_AT_ONCE = 10


def die() -> None:
    """What the kernel does to a process where memory has run out."""
    os.kill(os.getpid(), signal.SIGKILL)


class DiesOnOne(ProcessingStage[DocumentBatch, DocumentBatch]):
    """One record kills its worker."""

    name = "dies_on_one"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if DEADLY in task.values("number"):
            die()
        return task


class DiesOnMany(ProcessingStage[DocumentBatch, DocumentBatch]):
    """A batch of many records kills its worker."""

    name = "dies_on_many"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if len(task) > MOST_AT_ONCE:
            die()
        return task


class DiesTogether(ProcessingStage[Task, Task]):
    """Many tasks in one call kill the worker, and so does one of them."""

    name = "dies_together"
    batch_size = 8

    def process(self, task: Task) -> Task:
        if task.data == DEADLY:
            die()
        return task

    def process_batch(self, tasks: Sequence[Task]) -> list[Task]:
        if len(tasks) > 1:
            die()
        return [self.process(task) for task in tasks]


def run(tmp_path: Path, stage: ProcessingStage[Any, Any], *, fusion: bool) -> RunResult:
    """A hundred records through a stage."""
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"number": number, "text": f"text {number}"}) for number in range(100)]
    (tmp_path / "in" / "0.jsonl").write_text("\n".join(lines))
    stages: list[Any] = [JsonlReader(str(tmp_path / "in")), stage, JsonlWriter(str(tmp_path / "out"))]
    return Pipeline("deadly", stages=stages).run(
        LocalExecutor(workers=2, fusion=fusion), progress="none", max_errors="100%"
    )


def numbers(result: RunResult) -> list[int]:
    """Which records were written."""
    return [json.loads(line)["number"] for path in result.output_paths for line in Path(path).read_bytes().splitlines()]


@pytest.mark.parametrize("fusion", [True, False], ids=["fused", "unfused"])
def test_the_record_that_kills_its_worker_is_set_aside_and_all_others_are_written(tmp_path: Path, fusion: bool) -> None:
    result = run(tmp_path, DiesOnOne(), fusion=fusion)
    assert numbers(result) == [number for number in range(100) if number != DEADLY]
    assert result.to_dict()["quarantine_reasons"] == {"dies_on_one/out-of-memory": 1}
    (entry,) = (tmp_path / "out" / "_thresher" / "quarantine").glob("*.jsonl")
    assert entry.read_text().count("worker was killed by signal 9") == 1


@pytest.mark.parametrize("fusion", [True, False], ids=["fused", "unfused"])
def test_a_batch_that_is_too_much_is_tried_again_with_less_and_nothing_is_set_aside(
    tmp_path: Path, fusion: bool
) -> None:
    result = run(tmp_path, DiesOnMany(), fusion=fusion)
    assert numbers(result) == list(range(100))
    assert result.counts["quarantined"] == 0
    entry = next(stage for stage in result.stages if stage["name"] == "dies_on_many")
    assert entry["split_to"] == 1


def test_tasks_that_kill_their_worker_together_are_tried_alone() -> None:
    tasks = [Task(data=number) for number in range(24)]
    result = Pipeline("together", stages=[DiesTogether()]).run(
        LocalExecutor(workers=1), initial_tasks=tasks, progress="none", max_errors="100%"
    )
    assert sorted(task.data for task in result) == [number for number in range(24) if number != DEADLY]
    assert result.counts["quarantined"] == 1
