# SPDX-License-Identifier: Apache-2.0
"""`process_batch` is called wherever it is defined, with the same tasks on every executor, and may return any list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_executors import check_same
from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    SerialExecutor,
    Task,
)
from thresher.core.tally import counts_add_up


class Pieces(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Several tasks of each: batches of three records, and every tenth of them none at all."""

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        for start in range(0, len(task), 3):
            if start % 30:
                yield task.take(range(start, min(start + 3, len(task))))


class Batched(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Has both methods, as many stages that were written for others have."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        raise NotImplementedError("use process_batch")


class Joins(Batched):
    """One record of each call: what is in a call can be seen in the output."""

    batch_size = 4

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        return [DocumentBatch([{"together": [task.values("n") for task in tasks]}])]


class Lengths(Batched):
    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        if any(17 in task.values("n") for task in tasks):
            raise ValueError("no 17")
        return [task.replace("length", [len(text) for text in task.values("text")]) for task in tasks]


class Sums(ProcessingStage[Task, Task]):
    batch_size = 4

    def process_batch(self, tasks: list[Task]) -> list[Task]:
        return [Task(data=[task.data for task in tasks])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of one unit and of several."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name, numbers in (("a", range(100)), ("b", range(100, 107)), ("c", range(107, 110))):
        lines = [json.dumps({"n": n, "text": "x" * (n % 20)}) for n in numbers]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def records(result: Any) -> list[Any]:
    return [json.loads(line) for path in result.output_paths for line in Path(path).read_text().splitlines()]


def test_a_call_takes_the_next_tasks_of_one_unit_on_every_executor(executor: Any, folder: Path, tmp_path: Path) -> None:
    def stages(out: Path) -> list[Any]:
        return [JsonlReader(str(folder), files_per_partition=1), Pieces(), Joins(), JsonlWriter(str(out))]

    result = check_same(stages, executor, tmp_path)
    joined = [record["together"] for record in records(result)]
    pieces = [range(start, min(start + 3, 100)) for start in range(0, 100, 3) if start % 30]
    calls = [[list(piece) for piece in pieces[first : first + 4]] for first in range(0, len(pieces), 4)]
    calls.append([[103, 104, 105], [106]])  # of the second file; the only batch of the third is one of those left out
    assert joined == calls
    assert result.counts["created"] == len(calls)
    assert result.counts["merged"] + result.counts["dropped"] == result.counts["read"] == 110


def test_initial_tasks_of_one_call_may_become_one(executor: Any) -> None:
    tasks = [Task(data=number) for number in range(10)]
    result = Pipeline("sums", stages=[Sums()]).run(executor, initial_tasks=tasks, progress="none", ledger=False)
    assert [task.data for task in result] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert {name: n for name, n in result.counts.items() if n} == {"read": 10, "created": 3, "merged": 10, "written": 3}


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("make", [SerialExecutor, lambda: LocalExecutor(workers=2)])
def test_process_is_never_called_where_process_batch_is_defined(
    make: Any, batch_size: int, folder: Path, tmp_path: Path
) -> None:
    reader, writer = JsonlReader(str(folder)), JsonlWriter(str(tmp_path / "out"))
    stages = [reader, Lengths().with_(batch_size=batch_size), writer]
    result = Pipeline("lengths", stages=stages).run(make(), progress="none", max_errors=5)
    assert counts_add_up(result.counts)
    assert result.to_dict()["quarantine_reasons"] == {"Lengths/ValueError": 1}
    found = records(result)
    assert [record["n"] for record in found] == [n for n in range(110) if n != 17]
    assert all(record["length"] == record["n"] % 20 for record in found)


@pytest.mark.parametrize("make", [SerialExecutor, lambda: LocalExecutor(workers=2)])
def test_a_later_stage_gets_initial_tasks_of_several_units_and_joins_only_those_of_one(make: Any) -> None:
    class Copies(ProcessingStage[Task, Task]):
        def process(self, task: Task) -> list[Task]:
            return [Task(data=task.data), Task(data=-task.data)]

    tasks = [Task(data=number) for number in range(1, 6)]
    result = Pipeline("sums", stages=[Copies(), Sums()]).run(make(), initial_tasks=tasks, progress="none", ledger=False)
    assert counts_add_up(result.counts)
    assert [number for task in result for number in task.data] == [n for k in range(1, 6) for n in (k, -k)]
    assert all(len({abs(number) for number in task.data}) == 1 for task in result)


class InPlace(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Writes to the data frame and to bytes; one record fails."""

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if 2 in task.values("n"):
            raise ValueError("no 2")
        task = task.replace("pcm", [bytes([n, 255]) for n in task.values("n")])
        frame = task.to_pandas()
        frame["half"] = frame["n"] / 2
        return task


class SeesBytes(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task: DocumentBatch) -> DocumentBatch:
        wrong = [value for value in task.values("pcm") if not isinstance(value, bytes)]
        return task.replace("wrong", [len(wrong)] * len(task)).replace("pcm", [v[0] for v in task.values("pcm")])


@pytest.mark.parametrize("make", [SerialExecutor, lambda: LocalExecutor(workers=1, fusion=False)])
def test_bytes_and_writes_in_place_reach_the_next_stage_also_after_a_failure(
    make: Any, folder: Path, tmp_path: Path
) -> None:
    stages = [JsonlReader(str(folder)), InPlace(), SeesBytes(), JsonlWriter(str(tmp_path / "out"))]
    found = records(Pipeline("bytes", stages=stages).run(make(), progress="none", max_errors=5))
    numbers = [n for n in range(110) if n != 2]
    assert [(r["n"], r["half"], r["pcm"], r["wrong"]) for r in found] == [(n, n / 2, n, 0) for n in numbers]
