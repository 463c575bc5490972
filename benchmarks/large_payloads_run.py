# SPDX-License-Identifier: Apache-2.0
"""One run that passes large payloads from one worker to another.

Usage: large_payloads_run.py KIND MEGABYTES COUNT; KIND: array, written, arrays, items or table; prints JSON.
"""

from __future__ import annotations

import json
import mmap
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
from memory_probe import descendants, memfd_bytes

from thresher import DocumentBatch, LocalExecutor, Pipeline, ProcessingStage, Resources, Task
from thresher.core.records.record_ids import Rows
from thresher.core.records.record_task import RecordTask

PAGE = 4096
PARTS = 10
"""Number of arrays, items or rows that a payload consists of, except for `array`."""
PREPARED = 3
"""Payloads that the producer writes once, in its setup, and hands out in turn."""


class Items(RecordTask):
    """Records of a type of its own: a list of `bytes`."""

    def __init__(self, payloads: list[bytes]) -> None:
        super().__init__()
        self.payloads = payloads

    @property
    def num_items(self) -> int:
        return len(self.payloads)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.payloads))

    def pick(self, rows: Sequence[int] | Rows) -> Self:
        index = np.asarray(rows, dtype=np.int64)
        return self._with_rows_of(index, type(self)([self.payloads[row] for row in index]))

    def joined(self, others: Sequence[Self]) -> Self:
        parts = [self, *others]
        return self._with_notes_of(parts, type(self)([payload for part in parts for payload in part.payloads]))

    def json_lines(self) -> list[bytes | memoryview]:
        return [b"{}"] * len(self.payloads)


def make(kind: str, nbytes: int) -> Any:
    """Return what a payload consists of; no page of it is zero, so that none is left out anywhere."""
    array = np.arange(nbytes // 8, dtype=np.int64)
    parts = np.array_split(array, PARTS)
    if kind in ("array", "written"):
        return array
    if kind == "arrays":
        return {f"part{number}": [part.copy()] for number, part in enumerate(parts)}
    if kind == "items":
        return [part.tobytes() for part in parts]
    return pa.table({"clip": pa.array([part.tobytes() for part in parts], pa.large_binary())})


def task_of(kind: str, content: Any) -> Task:
    """Return a new task for prepared content: no byte of it is copied here."""
    if kind == "items":
        return Items(content)
    return DocumentBatch(content) if kind == "table" else Task(data=content)


def views_of(task: Task) -> list[np.ndarray[Any, Any]]:
    """Return all large buffers of a task as bytes."""
    if isinstance(task, Items):
        return [np.frombuffer(payload, np.uint8) for payload in task.payloads]
    if isinstance(task, DocumentBatch):
        chunks = task.to_pyarrow().column("clip").chunks
        return [np.frombuffer(chunk.buffers()[2], np.uint8) for chunk in chunks]
    if isinstance(task.data, dict):
        return [array.view(np.uint8) for arrays in task.data.values() for array in arrays]
    return [task.data.view(np.uint8)]


class Produce(ProcessingStage[Task, Task]):
    """Hands out payloads that were prepared in the setup."""

    name = "produce"

    def __init__(self, kind: str, nbytes: int, count: int) -> None:
        self.kind, self.nbytes, self.payloads = kind, nbytes, count

    def setup(self, worker_metadata: Any = None) -> None:
        self.prepared = [make(self.kind, self.nbytes) for _ in range(PREPARED)]

    def process(self, task: Task) -> Iterator[Task]:
        for number in range(self.payloads):
            made = task_of(self.kind, self.prepared[number % PREPARED])
            made.metadata = {"made_at": time.monotonic(), "cpu_s": time.process_time()}
            yield made


class Consume(ProcessingStage[Task, Task]):
    """Reads one byte of every page, on a worker of its own; `writes`: and changes the first one in place."""

    name = "consume"
    resources = Resources(cpus=1.0)

    def __init__(self, writes: bool) -> None:
        self.writes = writes

    def process(self, task: Task) -> Task:
        if self.writes:
            task.data[0] = 0
        touched = sum(int(view[::PAGE].sum(dtype=np.int64)) for view in views_of(task))
        made_at, cpu_s = task.metadata["made_at"], task.metadata["cpu_s"]
        return Task(data=(made_at, time.monotonic(), cpu_s, time.process_time(), touched))


class MemorySampler(threading.Thread):
    """Samples the shared memory of all processes below this one."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            self.peak_bytes = max(self.peak_bytes, memfd_bytes(descendants(os.getpid())))


def memcpy_s(nbytes: int) -> tuple[float, float]:
    """Return the median wall and CPU time of a copy into shared memory whose pages exist: no hand-over is faster."""
    source, target = np.ones(nbytes, np.uint8), np.frombuffer(mmap.mmap(-1, nbytes), np.uint8)
    target[:] = 1
    times = []
    for _ in range(9):
        started, cpu_s = time.perf_counter(), time.process_time()
        np.copyto(target, source)
        times.append((time.perf_counter() - started, time.process_time() - cpu_s))
    return statistics.median(wall for wall, _ in times), statistics.median(cpu for _, cpu in times)


def main() -> None:
    kind, nbytes, count = sys.argv[1], int(float(sys.argv[2]) * 1e6) // 8 * 8, int(sys.argv[3])
    copies = [memcpy_s(nbytes)]
    stages = [Produce(kind, nbytes, count), Consume(kind == "written").with_(num_workers=1)]
    sampler = MemorySampler()
    sampler.start()
    pipeline = Pipeline("large", stages=stages)
    result = pipeline.run(LocalExecutor(workers=1), initial_tasks=[Task(data=0)], progress="none")
    sampler.ended.set()
    sampler.join()
    copies.append(memcpy_s(nbytes))
    seen = sorted(task.data for task in result)
    sums = {touched for *_, touched in seen}
    if len(seen) != count or len(sums) != 1:
        raise SystemExit(f"{len(seen)} payloads of {count} arrived, with {len(sums)} different sums")
    first, middle, last = seen[0], seen[count // 2 - 1], seen[-1]
    steady = (count - count // 2) * nbytes
    print(
        json.dumps(
            {
                "bytes_per_s": count * nbytes / (last[1] - first[0]),
                "steady_bytes_per_s": steady / (last[1] - middle[1]),
                "producer_bytes_per_cpu_s": steady / (last[2] - middle[2]),
                "consumer_bytes_per_cpu_s": steady / (last[3] - middle[3]),
                "memcpy_bytes_per_s": nbytes / statistics.mean(wall for wall, _ in copies),
                "memcpy_bytes_per_cpu_s": nbytes / statistics.mean(cpu for _, cpu in copies),
                "peak_shared_bytes": sampler.peak_bytes,
            }
        )
    )


if __name__ == "__main__":
    main()
