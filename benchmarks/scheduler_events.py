# SPDX-License-Identifier: Apache-2.0
"""The cost of a scheduler event: a recorded run replayed, and runs like it in virtual time with 8 to 10,000 workers.

Give the events folder of any run (RUN/events/001) to replay it; without one, tiny tasks are run and recorded first.
What its ops do (times, sizes, fan-out) is measured from the log and rehearsed with more workers, on the same units.
From 10 to 10,000 workers the cost may grow as their logarithm does, by a factor of four, and no faster.
"""

from __future__ import annotations

import argparse
import gc
import math
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from harness import scratch
from tables import Spread, print_table, print_target, ratios, write_results

from thresher.observe.event_log import decode_line, read_log
from thresher.runtime.driver import rare_collections
from thresher.scheduler.actions import Dispatch
from thresher.scheduler.events import AnyEvent, Event, TaskDone, TaskEmitted, TaskParked, UnitsListed
from thresher.scheduler.model import RunSpec, UnitSpec
from thresher.scheduler.step import Scheduler
from thresher.simulate.scenario import Behaviour, OpBehaviour, simulate

FEW, MANY = 8, 1_000
GROWTH = (10, 100, 1_000, 10_000)
"""Numbers of workers whose costs are compared with their logarithms."""
LEAST_EVENTS = 50_000


@dataclass
class Recorded:
    """A run as its log tells it."""

    spec: RunSpec
    events: list[AnyEvent] = field(default_factory=list)
    units: list[UnitSpec] = field(default_factory=list)
    op_of: dict[int, int] = field(default_factory=dict)
    busy_s: dict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    sizes: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    parks: set[int] = field(default_factory=set)
    cuts: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    stream_of: dict[int, str] = field(default_factory=dict)

    def behaviour(self) -> Behaviour:
        """Return the average behaviour of the ops."""
        ops = []
        for op in self.spec.ops:
            ended = len(self.busy_s[op.index]) or 1
            whole = sum(self.busy_s[op.index]) / ended
            fan_out = round(len(self.sizes[op.index]) / ended) if op.next is not None else 0
            size = round(sum(self.sizes[op.index]) / (len(self.sizes[op.index]) or 1))
            step_s = whole / (fan_out + 1 if op.index in self.parks else 1)
            ops.append(OpBehaviour((step_s, step_s), (fan_out, fan_out), (size, size), op.index in self.parks))
        blocks = {stream: len(units) for stream, units in self.cuts.items()}
        return Behaviour(tuple(ops), commit_s=0.001, stream_blocks=blocks)


def read_recorded(folder: Path) -> Recorded:
    """The spec, the events and what can be measured from them."""
    lines = read_log(folder)
    spec = decode_line(next(lines)).item
    if not isinstance(spec, RunSpec):
        raise SystemExit(f"{folder} does not begin with a start line")
    run = Recorded(spec)
    streams: set[str] = set()
    for line in lines:
        item = decode_line(line).item
        if isinstance(item, Dispatch):
            for ref in item.tasks:
                run.op_of[ref.task] = item.op
                if ref.unit in streams:
                    run.stream_of[ref.task] = ref.unit
        elif isinstance(item, UnitsListed):
            run.units += item.units
            streams |= {unit.unit for unit in item.units if unit.stream}
        if isinstance(item, Event):
            run.events.append(item)
            note(run, item)
    return run


def note(run: Recorded, event: Event) -> None:
    """Measure what one event tells."""
    if not isinstance(event, TaskDone | TaskEmitted | TaskParked):
        return
    op = run.op_of[event.task]
    run.sizes[op] += [output.nbytes for output in event.outputs if output.task]
    if event.task in run.stream_of:
        run.cuts[run.stream_of[event.task]] |= {output.unit for output in event.outputs}
    if isinstance(event, TaskDone):
        run.busy_s[op].append(event.busy_s)
    else:
        run.parks.add(op)


def rehearse(run: Recorded, workers: int) -> tuple[RunSpec, list[AnyEvent]]:
    """The events of a run like the recorded one, repeated until it is long enough, with other numbers of workers."""
    spec = msgspec.structs.replace(run.spec, shared_workers=workers)
    units = []
    for turn in range(max(1, -(-LEAST_EVENTS // len(run.events)))):
        shift = turn * (1 + max(unit.order[0] for unit in run.units))
        for unit in run.units:
            order = (unit.order[0] + shift, unit.order[1])
            units.append(msgspec.structs.replace(unit, unit=f"{unit.unit}.{turn}", order=order))
    behaviour = run.behaviour()
    blocks = {unit.unit: behaviour.stream_blocks.get(unit.unit.rsplit(".", 1)[0], 1) for unit in units if unit.stream}
    behaviour = Behaviour(behaviour.ops, commit_s=behaviour.commit_s, stream_blocks=blocks)
    log = simulate(spec, units, behaviour, checked=False, logged=True).log
    items = [decode_line(line).item for line in log[1:]]
    return spec, [item for item in items if isinstance(item, Event)]


def microseconds(spec: RunSpec, events: list[AnyEvent]) -> float:
    """CPU time of one event, on average over the run, under the settings that the driver's loop has."""
    scheduler = Scheduler(spec)
    scheduler.start()
    gc.collect()
    with rare_collections():
        started = time.process_time()
        for event in events:
            scheduler.step(event)
        return (time.process_time() - started) / len(events) * 1e6


def record() -> Path:
    """Run tiny tasks and keep their event log."""
    run_dir = scratch("scheduler-events")
    script = Path(__file__).with_name("tiny_tasks_run.py")
    subprocess.run([sys.executable, script, "20000", run_dir], check=True, stdout=subprocess.DEVNULL)
    return next(iter(sorted(run_dir.glob("events/*"))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", nargs="?", type=Path, help="events folder of a recorded run")
    parser.add_argument("--quick", action="store_true", help="two rounds instead of seven")
    chosen = parser.parse_args()
    recorded = read_recorded(chosen.log or record())
    runs = {f"recorded, {recorded.spec.shared_workers} workers": (recorded.spec, recorded.events)}
    runs |= {_label(workers): rehearse(recorded, workers) for workers in sorted({FEW, MANY, *GROWTH})}
    costs: dict[str, list[float]] = {label: [] for label in runs}
    for _ in range(2 if chosen.quick else 7):
        for label, (spec, events) in runs.items():
            costs[label].append(microseconds(spec, events))
    rates = {label: Spread.of([1e6 / cost for cost in values]) for label, values in costs.items()}
    rows = [[label, f"{len(runs[label][1]):,}", Spread.of(costs[label]).show(), rates[label].show(0)] for label in runs]
    print_table("Scheduler", ["run", "events", "CPU us per event", "events/s"], rows)
    few, many = _label(FEW), _label(MANY)
    ratio = ratios(costs[many], costs[few])
    print_target(f"events/s with {FEW} workers", "at least 50,000", rates[few].median, rates[few].median >= 50_000)
    print_target(f"cost with {MANY:,} workers over {FEW}", "at most 2", ratio.median, ratio.median <= 2)
    growth = _growth(costs)
    measured = {"us_per_event": costs, "events_per_s": rates, "ratio_many_to_few": ratio, "growth": growth}
    write_results("scheduler_events", measured)


def _label(workers: int) -> str:
    return f"rehearsed, {workers:,} workers"


def _growth(costs: dict[str, list[float]]) -> dict[str, Spread]:
    """Cost over that of the fewest workers, for every larger number, beside what the logarithm allows."""
    least = GROWTH[0]
    found = {}
    for workers in GROWTH[1:]:
        allowed = math.log(workers) / math.log(least)
        ratio = ratios(costs[_label(workers)], costs[_label(least)])
        what = f"cost with {workers:,} workers over {least}"
        print_target(what, f"at most their logarithms' {allowed:g}", ratio.median, ratio.median <= allowed + 1e-9)
        found[str(workers)] = ratio
    return found


if __name__ == "__main__":
    main()
