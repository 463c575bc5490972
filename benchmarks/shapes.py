# SPDX-License-Identifier: Apache-2.0
"""Six shapes of pipelines, against the best rate that a linear program allows.

The program: maximise r with r x (cost of each stage for one finished task) within the capacity of what the stage runs
on. There are three resources: devices, shared workers, and cores, of which the driver's own CPU share is taken off. All
stages of a resource compete for it and r is the only unknown, so the optimum is the smallest capacity / cost. The costs
are chosen so that whole workers can reach it. The rate counts tasks that leave the last stage, from process start plus
the longest setup plus 5 s until the first stage has ended its last input.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from statistics import fmean

from harness import Command, run_once, scratch
from shapes_run import SHAPES, WORKERS, Shape, Work
from tables import Spread, print_table, print_target, write_results

RUN = Path(__file__).resolve().parent / "shapes_run.py"
SETTLED_S = 5.0
TARGET = 0.95


@dataclass(frozen=True)
class Done:
    """One line of a run's log."""

    place: int  # of the stage in the pipeline
    at_s: float  # when the task ended, from process start
    number: int  # of the input that it came from
    inside_s: float  # seconds inside `process`


@dataclass(frozen=True)
class Stretch:
    """One steady part of a run."""

    title: str  # for tables
    begin_s: float  # from process start
    end_s: float
    finished: int  # tasks that left the last stage in it
    best: float  # tasks a second that the linear program allows
    best_as_measured: float  # the same with the time that tasks really spent in the stages, where the machine is shared
    others_cores: float  # cores that other processes of the machine kept busy during the run

    @property
    def rate(self) -> float:
        """Tasks that left the last stage in a second."""
        return self.finished / (self.end_s - self.begin_s)

    @property
    def reached(self) -> float:
        """Share of the best rate."""
        return self.rate / self.best

    @property
    def reached_as_measured(self) -> float:
        """Share of the best rate for the times that were measured."""
        return self.rate / self.best_as_measured


def task_times(shape: Shape, *, grown: bool = False) -> list[float]:
    """Seconds that a task spends in each stage."""
    return [work.spin_s + work.sleep_s * (work.grows_by if grown else 1.0) for work in shape.stages]


def costs(shape: Shape, times_s: Sequence[float]) -> dict[str, float]:
    """Seconds of each resource that one task costs until it leaves the last stage."""
    found = {"devices": 0.0, "workers": 0.0, "cores": 0.0}
    for work, share, task_s in zip(shape.stages, visits(shape.stages), times_s, strict=True):
        found["cores"] += share * work.spin_s
        if work.gpus:
            found["devices"] += share * work.gpus * task_s
        else:
            found["workers"] += share * task_s
    return found


def visits(stages: Sequence[Work]) -> list[float]:
    """Tasks of each stage for one task that leaves the last one."""
    found = [1.0]
    for work in reversed(stages[:-1]):
        found.append(found[-1] / work.mean_fan_out)
    return found[::-1]


def best_rate(shape: Shape, driver_cores: float, times_s: Sequence[float]) -> float:
    """The optimum of the linear program."""
    capacity = {"devices": float(shape.gpus), "workers": float(WORKERS), "cores": (os.cpu_count() or 1) - driver_cores}
    return min(capacity[name] / cost for name, cost in costs(shape, times_s).items() if cost)


def inputs_for(shape: Shape, seconds: float) -> tuple[int, int]:
    """Inputs that keep a shape busy for so long after its setup, and the first one whose cost has grown, midway."""
    rates = [best_rate(shape, 0.0, task_times(shape, grown=grown)) for grown in (False, True)]
    halves = [ceil(rate * (seconds + 1) / 2 * visits(shape.stages)[0]) for rate in rates]
    return sum(halves), halves[0]


def run(shape: Shape, seconds: float) -> list[Stretch]:
    """Run a shape once and look at its steady parts."""
    log = scratch(f"shape-{shape.name}.log")
    driver = scratch(f"shape-{shape.name}.log.driver")
    inputs, grown_from = inputs_for(shape, seconds)
    command = Command(shape.name, [sys.executable, RUN, shape.name, str(inputs), str(grown_from), log])
    measured = run_once(command)
    spent = json.loads(driver.read_text())
    started_s = spent["started_s"]
    lines = [line.split() for line in log.read_text().splitlines()]
    done = [Done(int(place), float(at) - started_s, int(number), float(inside)) for place, at, number, inside in lines]
    return stretches(shape, grown_from, done, spent["cpu_s"] / spent["wall_s"], measured.others_cores)


def stretches(
    shape: Shape, grown_from: int, done: Sequence[Done], driver_cores: float, others_cores: float
) -> list[Stretch]:
    """The steady parts of a run: one, or two where a cost changes midway."""
    settled_s = max(work.setup_s for work in shape.stages) + SETTLED_S
    last = len(shape.stages) - 1
    end_s = max(line.at_s for line in done if line.place == 0)
    parts = [(shape.title, settled_s, end_s, False)]
    for place, work in enumerate(shape.stages):
        if work.grows_by != 1.0:
            grown = [d.at_s - d.inside_s for d in done if d.place == place and d.number >= grown_from]
            parts = [
                (f"{shape.title}: before", settled_s, min(grown), False),
                (f"{shape.title}: after", min(grown) + SETTLED_S, end_s, True),
            ]
    found = []
    for title, begin_s, until_s, is_grown in parts:
        inside = [[d.inside_s for d in done if d.place == n and begin_s < d.at_s <= until_s] for n in range(last + 1)]
        best = best_rate(shape, driver_cores, task_times(shape, grown=is_grown))
        measured = best_rate(shape, driver_cores, [fmean(times_s) if times_s else 0.0 for times_s in inside])
        found.append(Stretch(title, begin_s, until_s, len(inside[last]), best, measured, others_cores))
    return found


def main() -> None:
    """Print how much of the best rate each shape reaches."""
    names = [shape.name for shape in SHAPES]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="*", metavar="SHAPE", help=f"{', '.join(names)} (default: all)")
    parser.add_argument("--quick", action="store_true", help="short runs, one round: does it work at all")
    parser.add_argument("--repeats", type=int, default=None, help="rounds (default 5, with --quick 1)")
    chosen = parser.parse_args()
    unknown = set(chosen.shapes) - set(names)
    if unknown:
        parser.error(f"no shape is called {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    wanted = [shape for shape in SHAPES if not chosen.shapes or shape.name in chosen.shapes]
    measure(wanted, 20.0 if chosen.quick else 65.0, chosen.repeats or (1 if chosen.quick else 5))


def measure(wanted: Sequence[Shape], seconds: float, repeats: int) -> None:
    """Run the shapes in turn, round by round, and print the table."""
    found: dict[str, list[Stretch]] = {}
    for number in range(repeats):
        for shape in wanted:
            for stretch in run(shape, seconds):
                found.setdefault(stretch.title, []).append(stretch)
                line = f"  round {number + 1}/{repeats}  {stretch.title}: {stretch.reached:.3f} of {stretch.best:.1f}/s"
                line = f"{line} ({stretch.reached_as_measured:.3f} for measured times)"
                line = f"{line}, from {stretch.begin_s:.0f} to {stretch.end_s:.0f} s"
                print(f"{line}, others kept {stretch.others_cores:.1f} cores busy", file=sys.stderr, flush=True)
    rows, results = [], {}
    for title, stretch_list in found.items():
        reached = Spread.of([stretch.reached for stretch in stretch_list])
        best = Spread.of([stretch.best for stretch in stretch_list])
        as_measured = Spread.of([stretch.reached_as_measured for stretch in stretch_list])
        rows.append([title, f"{best.median:.1f}", reached.show(3), as_measured.show(3)])
        results[title] = {
            "best_per_s": best,
            "reached": reached,
            "reached_for_measured_times": as_measured,
            "others_cores": Spread.of([stretch.others_cores for stretch in stretch_list]),
        }
    header = ["shape", "best, tasks/s", "reached", "reached, for the times that tasks really took"]
    print_table("share of the linear program's rate, median (min..max)", header, rows)
    for title, result in results.items():
        median = result["reached"].median
        print_target(title, f"at least {TARGET}", median, median >= TARGET)
    name = "shapes" if len(wanted) == len(SHAPES) else "-".join(["shapes", *(shape.name for shape in wanted)])
    write_results(name, {"seconds": seconds, "repeats": repeats, "results": results})


if __name__ == "__main__":
    main()
