# SPDX-License-Identifier: Apache-2.0
"""Measure how long the dashboard takes to open a run whose event log has a million tasks, and whether it grows.

The log is written by the same code as that of a run: every task is emitted, dispatched to a worker with an accelerator,
done and released, and the metrics are folded beside it. `opens` is a new process, from its start to the state and the
timeline of the run; `accelerators` is the chart that needs the whole log, which the page draws when it is there;
`grows` is what 500 further looks add to the memory of the process.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from harness import options, scratch
from tables import Spread, print_table, print_target, write_results

from thresher.observe.event_log import EventLog
from thresher.observe.metrics import Metrics
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec

TASKS, QUICK_TASKS = 1_000_000, 50_000
TASKS_PER_UNIT = 500
WORKERS = 8
OPENS_S = 3.0
GROWS_MB = 4.0
LOOK = """
import json, resource, sys, time
began, cpu = time.perf_counter(), time.process_time()
from thresher.dashboard.run_view import RunView
view = RunView(sys.argv[1])
state, timeline = view.state(), view.timeline()
opens, opens_cpu = time.perf_counter() - began, time.process_time() - cpu
assert len(timeline["t"]) > 10 and state["counts"]["read"], "there is something to see"
while not (chart := view.gantt())["complete"]:
    pass
accelerators, accelerators_cpu = time.perf_counter() - began, time.process_time() - cpu
assert len(chart["lanes"]) == int(sys.argv[2])
def private():
    with open("/proc/self/statm", encoding="ascii") as file:
        words = file.read().split()
    return (int(words[1]) - int(words[2])) * resource.getpagesize()
for _ in range(50):
    view._read_at = -1.0
    view.state(), view.timeline(), view.gantt()
before = private()
for _ in range(500):
    view._read_at = -1.0
    view.state(), view.timeline(), view.gantt()
found = {"opens": opens, "opens, CPU": opens_cpu, "accelerators": accelerators, "accelerators, CPU": accelerators_cpu}
print(json.dumps({**found, "grows": private() - before}))
"""


def main() -> None:
    chosen = options(__doc__, repeats=5)
    tasks = QUICK_TASKS if chosen.quick else TASKS
    run_dir = scratch("dashboard-open")
    began = time.perf_counter()
    nbytes = write_run(run_dir, tasks)
    print(
        f"  wrote a log of {tasks:,} tasks, {nbytes / 1e6:.1f} MB packed, in {time.perf_counter() - began:.0f} s",
        flush=True,
    )
    looks = [look(run_dir) for _ in range(chosen.repeats)]
    found = {name: [one[name] for one in looks] for name in looks[0]}
    rows = [[name, Spread.of(values).show(), "bytes" if name == "grows" else "s"] for name, values in found.items()]
    print_table(f"a run of {tasks:,} tasks in the dashboard", ["", "median (least..most)", ""], rows)
    # The time on a machine that does other work, too, is that of the other work.
    slowest, growth = max(found["opens, CPU"]), max(found["grows"])
    print_target("seconds of CPU to open, the slowest time", f"at most {OPENS_S}", slowest, slowest <= OPENS_S)
    print_target("megabytes that 500 looks add", f"at most {GROWS_MB}", growth / 1e6, growth / 1e6 <= GROWS_MB)
    write_results("dashboard_open", {"tasks": tasks, "log_bytes": nbytes, **found})


def look(run_dir: Path) -> dict[str, float]:
    """Open the run in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(run_dir), str(WORKERS)], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def write_run(run_dir: Path, tasks: int) -> int:
    """Write a run folder as a run of so many tasks leaves it; return the bytes of its log."""
    shutil.rmtree(run_dir, ignore_errors=True)
    folder = run_dir / "events" / "001"
    ops = (
        OpSpec(index=0, name="Reader", stages=("Reader",), source=True, next=1),
        OpSpec(index=1, name="Classify", stages=("Classify",), dedicated=True, gpus=1.0),
    )
    spec = RunSpec(ops=ops, shared_workers=2, budget_bytes=1 << 30)
    log, metrics = EventLog(folder), Metrics(["Reader", "Classify"], spec.ops)
    log.start(spec)
    n, t = 0, 0.0

    def put(item: ev.AnyEvent | act.AnyAction) -> None:
        nonlocal n
        n += 1
        log.write(n, t, item)
        metrics.update(t, item)

    for worker in range(1, WORKERS + 1):
        put(act.StartWorker(worker, op=1, devices=(worker - 1,)))
        put(ev.WorkerReady(worker))
    put(act.StartWorker(100))
    put(ev.WorkerReady(100))
    count = tasks // TASKS_PER_UNIT
    put(ev.UnitsListed(tuple(UnitSpec(f"u{u}", (u, 0), 0, 1000) for u in range(count)), more=False))
    for unit in range(count):
        put(act.Dispatch(100, 0, (act.TaskRef(-1 - unit, f"u{unit}"),)))
        first = unit * TASKS_PER_UNIT + 1
        ids = range(first, first + TASKS_PER_UNIT)
        read = [TASKS_PER_UNIT, 0, {0: [0, TASKS_PER_UNIT, 0, 1000 * TASKS_PER_UNIT]}]
        put(ev.TaskDone(-1 - unit, 100, tuple(ev.Emitted(task, 1000) for task in ids), 0.1, read))
        for task in ids:
            t += 0.01
            worker = 1 + task % WORKERS
            put(act.Dispatch(worker, 1, (act.TaskRef(task, f"u{unit}"),)))
            put(ev.TaskDone(task, worker, (), 0.05, [0, 1, {1: [1, 1, 1000, 1000]}]))
            put(act.Release((task,)))
            if log.wants_sample(t):
                log.sample(metrics.snapshot(t))
        put(ev.UnitCommitted(f"u{unit}"))
    put(act.Finish("finished"))
    log.sample(metrics.snapshot(t))
    log.close()
    write_facts(run_dir, t)
    return sum(file.stat().st_size for file in folder.glob("*.zst"))


def write_facts(run_dir: Path, seconds: float) -> None:
    """Write the other files of a run folder that was killed before its report."""
    attempt = {"number": 1, "executor": "local", "host": "elsewhere", "pid": 1, "start": "2026-01-01T00:00:00.000Z"}
    run = {"run_id": "20260101-000000-0000", "name": "million", "fingerprint": "0", "attempts": [attempt]}
    steps = [{"index": 0, "steps": [["read", 0]], "next": 1, "own_workers": False, "on_device": False}]
    steps.append({"index": 1, "steps": [["call", 1]], "next": None, "own_workers": True, "on_device": True})
    plan = {"name": "million", "stages": ["Reader", "Classify"], "groups": [["Reader"], ["Classify"]], "ops": steps}
    (run_dir / "run.json").write_text(json.dumps(run), encoding="utf-8")
    (run_dir / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    print(f"  {seconds:,.0f} s of a run", flush=True)


if __name__ == "__main__":
    main()
