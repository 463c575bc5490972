# SPDX-License-Identifier: Apache-2.0
"""One run for `accelerator.py`: CPU 30 ms, a declared accelerator with one worker and 50 ms per task, CPU 10 ms."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from thresher import LocalExecutor, Pipeline, ProcessingStage, Resources, Task


def spin(seconds: float) -> None:
    """Keep a core busy."""
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        pass


class Before(ProcessingStage[Task, Task]):
    """CPU work before the model."""

    resources = Resources(cpus=0.5)

    def process(self, task: Task) -> Task:
        spin(0.030)
        return task


class Model(ProcessingStage[Task, Task]):
    """Stands for a model on an accelerator: waits, or waits for one half and computes for the other."""

    resources = Resources(cpus=0.5, gpus=1)

    def __init__(self, log: str, spins: bool) -> None:
        self.log = log
        self.spins = spins

    def setup(self, worker_metadata: Any = None) -> None:
        self.spans: list[tuple[float, float]] = []

    def process(self, task: Task) -> Task:
        started = time.time()
        if self.spins:
            spin(0.025)
            time.sleep(0.025)
        else:
            time.sleep(0.050)
        self.spans.append((started, time.time()))
        return task

    def teardown(self) -> None:
        Path(self.log).write_text(json.dumps(self.spans))


class After(ProcessingStage[Task, Task]):
    """CPU work behind the model."""

    resources = Resources(cpus=0.5)

    def process(self, task: Task) -> Task:
        spin(0.010)
        return task


def main(log: str, tasks: int, spins: bool) -> None:
    """Run, and leave the spans of the model stage in `log`."""
    pipeline = Pipeline("accelerator", stages=[Before(), Model(log, spins), After()])
    executor = LocalExecutor(workers=2, gpus=1)
    pipeline.run(executor, initial_tasks=[Task(data=n) for n in range(tasks)], progress="none", ledger=False)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3] == "spin")
