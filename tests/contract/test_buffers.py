# SPDX-License-Identifier: Apache-2.0
"""Arrays between stages: seen in place, copied where a stage writes to them, and right whatever happens to workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.contract.item_records import ItemBatch, ItemWriter
from thresher import LocalExecutor, Pipeline, ProcessingStage, RunResult, Task

SIZE = 200_000


class Make(ProcessingStage[Task, Task]):
    """Makes arrays of its own number."""

    name = "make"

    def __init__(self, count: int, size: int = SIZE) -> None:
        self.tasks, self.size = count, size

    def process(self, task: Task) -> Iterator[Task]:
        for number in range(self.tasks):
            yield Task(data={"frames": [np.full(self.size, number, np.uint8)], "changes": 0})


class ChangeInPlace(ProcessingStage[Task, Task]):
    """Changes its task in two places, the second of which may be shared with others."""

    name = "change"

    def process(self, task: Task) -> Task:
        task.data["changes"] += 1
        task.data["frames"][0] += 1
        return task


class Sum(ProcessingStage[Task, Task]):
    name = "sum"

    def process(self, task: Task) -> Task:
        return Task(data=(task.data["changes"], int(task.data["frames"][0].sum(dtype=np.int64))))


class Describe(ProcessingStage[Task, Task]):
    """Says where the array of its task is, and what is in it."""

    name = "describe"

    def process(self, task: Task) -> Task:
        frame = task.data["frames"][0]
        return Task(data=(_file_behind(frame), bool(frame.flags.writeable), int(frame.sum(dtype=np.int64))))


def _file_behind(array: Any) -> str:
    """The file that the memory of an array belongs to."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            first, last = (int(end, 16) for end in line.split()[0].split("-"))
            if first <= array.ctypes.data < last:
                return line[73:].strip()
    return ""


def run(stages: list[ProcessingStage[Any, Any]], executor: Any, data: Any = 0) -> RunResult:
    return Pipeline("buffers", stages=stages).run(executor, initial_tasks=[Task(data=data)], progress="none")


def test_a_stage_may_change_buffers_in_place_and_is_given_each_task_as_it_was(executor: Any) -> None:
    result = run([Make(4), ChangeInPlace().with_(num_workers=1), Sum()], executor)
    assert sorted(task.data for task in result) == [(1, SIZE * (number + 1)) for number in range(4)]
    assert result.counts["quarantined"] == 0


def test_results_can_be_changed(executor: Any) -> None:
    (task,) = run([Make(1), ChangeInPlace().with_(num_workers=1)], executor)
    task.data["frames"][0] += 1
    assert task.data["frames"][0].sum() == 2 * SIZE


class GiveThenChange(ProcessingStage[Task, Task]):
    """Gives something before it changes its task in place, so that its call cannot start again by itself."""

    name = "give"

    def process(self, task: Task) -> Iterator[Task]:
        for _ in range(3):
            yield Task(data={"frames": [task.data["frames"][0].copy()], "changes": 0})
            task.data["frames"][0] += 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_stage_that_gave_something_before_it_writes_in_place_gets_copies_too(workers: int) -> None:
    stages = [Make(6), GiveThenChange().with_(num_workers=workers), Sum()]
    result = run(stages, LocalExecutor(workers=1))
    wanted = [(0, SIZE * (number + more)) for number in range(6) for more in range(3)]
    assert sorted(task.data for task in result) == sorted(wanted)


class MakeFrames(ProcessingStage[Task, ItemBatch]):
    name = "frames"

    def process(self, task: Task) -> Iterator[ItemBatch]:
        for number in range(4):
            batch = ItemBatch({"n": [number]}, [b"x"])
            batch.metadata["frame"] = np.full(SIZE, number, np.uint8)
            yield batch


class ChangeFrame(ProcessingStage[ItemBatch, ItemBatch]):
    name = "change"

    def process(self, batch: ItemBatch) -> ItemBatch:
        frame = batch.metadata["frame"]
        frame += 1
        batch.payloads = [bytes(frame[:3])]
        return batch


def test_a_stage_before_a_writer_may_write_in_place(tmp_path: Path) -> None:
    stages = [MakeFrames().with_(num_workers=1), ChangeFrame(), ItemWriter(str(tmp_path / "out"))]
    result = run(stages, LocalExecutor(workers=2))
    assert result.counts["written"] == 4
    written = b"".join(Path(path).read_bytes() for path in result.output_paths)
    assert all(written.count(bytes([number + 1]) * 3) == 1 for number in range(4))


@pytest.mark.parametrize("size", [SIZE, 100_000_000])
def test_another_worker_sees_a_buffer_in_shared_memory_and_read_only(size: int) -> None:
    result = run([Make(3, size), Describe().with_(num_workers=1)], LocalExecutor(workers=1))
    found = sorted(task.data for task in result)
    assert found == [("/memfd:thresher-arena (deleted)", False, size * number) for number in range(3)]


class KeepAll(ProcessingStage[Task, Task]):
    """Keeps the array of every task, and sums all that it has."""

    name = "keep"

    def setup(self, worker_metadata: Any = None) -> None:
        self.kept: list[Any] = []

    def process(self, task: Task) -> Task:
        self.kept.append(task.data["frames"][0])
        return Task(data=[int(frame.sum(dtype=np.int64)) for frame in self.kept])


def test_a_buffer_that_a_stage_keeps_after_its_task_stays_as_it_was() -> None:
    result = run([Make(12, 1_000_000), KeepAll().with_(num_workers=1)], LocalExecutor(workers=1))
    longest = max((task.data for task in result), key=len)
    assert sorted(longest) == [1_000_000 * number for number in range(12)]


class MakeThenCrash(ProcessingStage[Task, Task]):
    """Makes one array of each task; the worker is killed on one of them, the first time."""

    name = "crash"

    def __init__(self, crashed: str) -> None:
        self.crashed = crashed

    def process(self, task: Task) -> Task:
        if task.data == 5 and not os.path.exists(self.crashed):
            Path(self.crashed).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Task(data={"frames": [np.full(SIZE, task.data, np.uint8)], "changes": 0})


def test_what_a_crashed_worker_had_made_is_still_read(tmp_path: Path) -> None:
    stages = [MakeThenCrash(str(tmp_path / "crashed")).with_(num_workers=1), Sum().with_(num_workers=1)]
    result = Pipeline("buffers", stages=stages).run(
        LocalExecutor(workers=1), initial_tasks=[Task(data=number) for number in range(8)], progress="none"
    )
    assert sorted(task.data for task in result) == [(0, SIZE * number) for number in range(8)]


class MakeItems(ProcessingStage[Task, ItemBatch]):
    name = "items"

    def process(self, task: Task) -> ItemBatch:
        return ItemBatch({"n": [0, 1, 2]}, [bytes([number]) * 5_000_000 for number in range(3)])


class Lengths(ProcessingStage[ItemBatch, ItemBatch]):
    name = "lengths"

    def process(self, batch: ItemBatch) -> ItemBatch:
        assert {type(payload) for payload in batch.payloads} == {bytes}
        batch.columns["n"] = [len(payload) * (payload[0] + payload[-1]) for payload in batch.payloads]
        return batch


def test_records_with_large_payloads_of_bytes_arrive_as_bytes(executor: Any) -> None:
    (batch,) = run([MakeItems(), Lengths().with_(num_workers=1)], executor)
    assert isinstance(batch, ItemBatch)
    assert batch.columns["n"] == [0, 10_000_000, 20_000_000]
    assert [len(payload) for payload in batch.payloads] == [5_000_000] * 3
