# SPDX-License-Identifier: Apache-2.0
"""Tiny tasks through three stages that do nothing, kept apart (no fusion), event log on: the cost of the engine alone.

For Thresher the whole run counts, start-up included; for NeMo Curator on Xenna only the time from its first to its last
task, which leaves its start-up out: the comparison is the hardest one for us.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import peers
from harness import Command, compile_sources, interleave, options, scratch
from tables import Spread, print_table, print_target, ratios, write_results

OURS = "thresher"


def main() -> None:
    chosen = options(__doc__, repeats=5)
    tasks = 2_000 if chosen.quick else 20_000
    run_dir = scratch("tiny-tasks")
    script = Path(__file__).with_name("tiny_tasks_run.py")
    ours = Command(OURS, [sys.executable, script, str(tasks), run_dir], run_dir)
    compile_sources()
    measured = interleave([ours], chosen.repeats)
    runs = [json.loads(one.stdout.splitlines()[-1]) for one in measured[OURS]]
    rates = {OURS: [run["tasks"] / run["run_s"] for run in runs]}
    if peers.available(peers.NEMO):
        (slow,) = interleave([peers.nemo_noop(100 if chosen.quick else 400)], 1)[peers.NEMO.title]
        run = json.loads(slow.stdout.splitlines()[-1])
        rates[peers.NEMO.title] = [run["tasks"] / run["first_to_last_s"]]
    rows = [[label, Spread.of(values).show(0), ratios(rates[OURS], values).show(1)] for label, values in rates.items()]
    print_table(f"{tasks:,} tasks through three no-op stages, unfused", ["", "tasks/s", "thresher, times this"], rows)
    if peers.NEMO.title in rates:
        ratio = ratios(rates[OURS], rates[peers.NEMO.title])
        print_target(f"tasks/s over {peers.NEMO.title}", "at least 100", ratio.median, ratio.median >= 100)
    cpu_us = Spread.of([one.cpu_s * 1e6 / (3 * tasks) for one in measured[OURS]])
    print(f"  CPU of the whole tree per stage call: {cpu_us.show(1)} us")
    write_results("tiny_tasks", {"tasks": tasks, "tasks_per_s": rates, "runs": runs, "cpu_us_per_call": cpu_us})


if __name__ == "__main__":
    main()
