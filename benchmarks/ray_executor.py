# SPDX-License-Identifier: Apache-2.0
"""One Ray node with two CPUs against this machine without Ray: copy, the English rules, tiny tasks, an accelerator.

The time counts from the first worker that is ready, on both sides: Ray's start is not in it, and neither is ours. The
corpus is read four times over, so that the run is long beside its last file. NeMo Curator on Xenna runs tiny tasks
once; its time counts from its first to its last task.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import peers
from corpus import corpus_folder
from harness import Command, compile_sources, interleave, options, scratch, warm_cache
from tables import Spread, print_table, print_target, ratios, write_results

COPIES = 4
Runs = dict[str, list[float]]
"""Executor to what its runs measured."""
TITLES = {"copy": "copy of JSON lines", "filter": "22 English rules", "tiny": "tiny tasks, three stages"}


def main() -> None:
    """Print the ratios."""
    chosen = options(__doc__, repeats=5)
    source = several(corpus_folder(chosen.quick))
    tasks = 2_000 if chosen.quick else 20_000
    compile_sources()
    warm_cache(source)
    seconds: dict[str, Runs] = {}
    for work in TITLES:
        inputs = [str(tasks)] if work == "tiny" else [str(source)]
        found = both(work, inputs, chosen.repeats)
        seconds[work] = {name: [run["seconds"] for run in runs] for name, runs in found.items()}
    busy = both("accelerator", ["100" if chosen.quick else "600"], chosen.repeats)
    report(seconds, {name: [run["busy"] for run in runs] for name, runs in busy.items()}, tasks, quick=chosen.quick)


def several(corpus: Path, copies: int = COPIES) -> Path:
    """A folder with each file of the corpus several times."""
    folder = scratch(f"{corpus.name}-{copies}")
    folder.mkdir()
    for path in sorted(corpus.iterdir()):
        for number in range(copies):
            os.link(path, folder / f"{number}-{path.name}")
    return folder


def both(work: str, inputs: list[str], repeats: int) -> dict[str, list[dict[str, float]]]:
    """Runs on this machine and on Ray, by turns."""
    script = Path(__file__).with_name("ray_executor_run.py")
    commands = []
    for name in ("local", "ray"):
        folder = scratch(f"ray-{work}-{name}")
        argv = [sys.executable, script, work, name, folder, *inputs]
        commands.append(Command(name, argv, folder, hides_cpu=name == "ray"))
    measured = interleave(commands, repeats)
    return {name: [json.loads(one.stdout.splitlines()[-1]) for one in runs] for name, runs in measured.items()}


def report(
    seconds: dict[str, dict[str, list[float]]], busy: dict[str, list[float]], tasks: int, *, quick: bool
) -> None:
    """Tables and targets."""
    rows = []
    shares = {}
    for work, title in TITLES.items():
        local, ray = seconds[work]["local"], seconds[work]["ray"]
        shares[work] = ratios(local, ray)
        rows.append([title, Spread.of(local).show(), Spread.of(ray).show(), shares[work].show(3)])
    print_table("Seconds, median (min..max)", ["", "local", "Ray, one node", "speed on Ray, of local"], rows)
    for work in ("copy", "filter"):
        share = shares[work].median
        print_target(f"speed of {TITLES[work]}, of local", "at least 0.85", share, share >= 0.85)
    found = Spread.of(busy["ray"])
    print(f"  accelerator busy on Ray {found.show(4)}, local {Spread.of(busy['local']).show(4)}")
    print_target("accelerator busy, first to last task", "at least 0.99", found.median, found.median >= 0.99)
    rates = {"ray": [tasks / one for one in seconds["tiny"]["ray"]]}
    if peers.available(peers.NEMO):
        (slow,) = interleave([peers.nemo_noop(100 if quick else 400)], 1)[peers.NEMO.title]
        run = json.loads(slow.stdout.splitlines()[-1])
        rates["nemo"] = [run["tasks"] / run["first_to_last_s"]]
        over = ratios(rates["ray"], rates["nemo"])
        print(f"  tiny tasks/s: {Spread.of(rates['ray']).show(0)} against {rates['nemo'][0]:.0f}")
        print_target(f"tiny tasks/s over {peers.NEMO.title}", "at least 30", over.median, over.median >= 30)
    write_results("ray_executor", {"seconds": seconds, "busy": busy, "tasks_per_s": rates})


if __name__ == "__main__":
    main()
