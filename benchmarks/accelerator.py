# SPDX-License-Identifier: Apache-2.0
"""How busy an accelerator is kept: inside the model stage's `process`, from its first to its last task and overall.

The accelerator is a declared one, since there is none on the machine that this was written on: one worker whose 50 ms
per task are a sleep, or half a sleep and half computing on the CPU that the other stages want.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from harness import options
from tables import Spread, print_table, print_target, write_results


def busy(variant: str, tasks: int) -> tuple[float, float]:
    """Share of the time from first to last task, and of the time from process start to its end."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "spans.json")
        started = time.time()
        command = [sys.executable, "benchmarks/accelerator_run.py", str(log), str(tasks), variant]
        subprocess.run(command, check=True)
        ended = time.time()
        spans = json.loads(log.read_text())
    inside = sum(end - start for start, end in spans)
    return inside / (spans[-1][1] - spans[0][0]), inside / (ended - started)


def main() -> None:
    """Print the shares for both variants."""
    chosen = options(__doc__, repeats=5)
    tasks = 100 if chosen.quick else 600
    results = {}
    rows = []
    for variant, title in (("sleep", "50 ms waiting"), ("spin", "25 ms computing, 25 ms waiting")):
        measured = [busy(variant, tasks) for _ in range(chosen.repeats)]
        between = Spread.of([first_to_last for first_to_last, _ in measured])
        overall = Spread.of([whole for _, whole in measured])
        rows.append([title, between.show(4), overall.show(4)])
        results[variant] = {"first_to_last": between, "whole_run": overall}
    print_table(
        f"{tasks} tasks, median (min..max)", ["model stage", "busy, first to last task", "busy, whole run"], rows
    )
    sleeping = results["sleep"]
    print_target(
        "busy, first to last task",
        "at least 0.995",
        sleeping["first_to_last"].median,
        sleeping["first_to_last"].median >= 0.995,
    )
    print_target("busy, whole run", "at least 0.95", sleeping["whole_run"].median, sleeping["whole_run"].median >= 0.95)
    write_results("accelerator", {"tasks": tasks, "results": results})


if __name__ == "__main__":
    main()
