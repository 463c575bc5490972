# SPDX-License-Identifier: Apache-2.0
"""One run of tiny tasks through three no-op stages. Usage: tiny_tasks_run.py TASKS RUN_DIR; prints JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from thresher import LocalExecutor, Pipeline, ProcessingStage, Task


class Noop(ProcessingStage[Task, Task]):
    """Hands its task on."""

    name = "noop"

    def process(self, task: Task) -> Task:
        return task


def main() -> None:
    count, run_dir = int(sys.argv[1]), Path(sys.argv[2])
    pipeline = Pipeline("tiny", stages=[Noop().with_(name=f"noop{number}") for number in range(3)])
    tasks = [Task(data=number) for number in range(count)]
    started = time.perf_counter()
    result = pipeline.run(LocalExecutor(workers=2, fusion=False), initial_tasks=tasks, run_dir=str(run_dir))
    run_s = time.perf_counter() - started
    if len(result) != count:
        raise SystemExit(f"{len(result):,} tasks came out of {count:,}")
    log_bytes = sum(path.stat().st_size for path in run_dir.glob("events/**/*.jsonl.zst"))
    if not log_bytes:
        raise SystemExit(f"no event log in {run_dir}/events: the figure would not be the promised one")
    print(json.dumps({"tasks": count, "run_s": run_s, "event_log_bytes": log_bytes}))


if __name__ == "__main__":
    main()
