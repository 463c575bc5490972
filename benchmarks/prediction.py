# SPDX-License-Identifier: Apache-2.0
"""Prediction: profile one run, predict another with four times the data and another number of workers.

Four pipelines of different shape: a copy, five rules, packed streams, and a fan-out with a stage that is not fused. In
each round the profile is taken, the prediction made, and the run that was predicted is run at once. A round beside
other work says little: rounds are repeated until enough of them were quiet, or patience ends, and the quietest count.

Both runs are also rehearsed as they were, with their own data and workers ("itself"). Nothing changes there, other work
on the machine is in the costs, and so what is off is a fault of the rehearsal alone.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpus import DATA, corpus_folder, folder_bytes
from harness import RECIPES, ROOT, Command, Measurement, compile_sources, options, run_once, scratch, warm_cache
from tables import Spread, print_table, print_target, write_results

FEW, MANY = 1, 2
TIMES = 4
WITHIN = 0.15
QUIET_CORES = 0.15
"""Cores that others may use during a round that counts."""
PATIENCE = 3
"""So many rounds for each that is asked for are tried to find quiet ones."""
PACKED_BYTES = 16_000_000
"""Unpacked size of one packed file."""


@dataclass(frozen=True, slots=True)
class Shape:
    """One pipeline."""

    label: str  # in tables
    recipe: str  # file in recipes/
    packed: bool = False  # reads packed streams


SHAPES = (
    Shape("copy", "copy"),
    Shape("five rules", "five_rules"),
    Shape("packed streams", "five_rules", packed=True),
    Shape("fan-out, unfused", "fan_out"),
)


@dataclass(frozen=True, slots=True)
class Round:
    """One profile, one prediction, one run."""

    profile_s: float  # wall time of the run that was profiled
    predicted_s: float  # wall time that was predicted
    measured_s: float  # wall time of the run that was predicted
    few_itself: float  # how far the rehearsal of the profiled run, as it was, is off
    many_itself: float  # the same of the run that was predicted
    others_cores: float  # cores that others kept busy, in the worse one of the two runs

    @property
    def error(self) -> float:
        """How far the prediction is off, as a part of what was measured."""
        return self.predicted_s / self.measured_s - 1


def main() -> None:
    chosen = options(__doc__, repeats=5)
    compile_sources()
    base = 1 if chosen.quick else 4
    print(f"profile: {FEW} worker, {base} x the small corpus; predicted: {MANY} workers, {base * TIMES} x")
    found: dict[str, list[Round]] = {}
    for shape in SHAPES:
        small, large = _input(shape, base), _input(shape, base * TIMES)
        warm_cache(small)
        found[shape.label] = _rounds(shape, small, large, chosen.repeats)
    _report(found)


def _rounds(shape: Shape, small: Path, large: Path, wanted: int) -> list[Round]:
    """The quietest rounds, as many as are wanted."""
    rounds: list[Round] = []
    while len(rounds) < PATIENCE * wanted:
        one = _round(shape, small, large)
        rounds.append(one)
        print(
            f"  {shape.label}: predicted {one.predicted_s:.2f} s, measured {one.measured_s:.2f} s ({one.error:+.0%}), "
            f"itself {one.few_itself:+.1%} and {one.many_itself:+.1%}, others kept {one.others_cores:.1f} cores busy",
            file=sys.stderr,
            flush=True,
        )
        if sum(each.others_cores <= QUIET_CORES for each in rounds) >= wanted:
            break
    return sorted(rounds, key=lambda each: each.others_cores)[:wanted]


def _round(shape: Shape, small: Path, large: Path) -> Round:
    profiled, predicted = scratch(f"prediction-profile-{os.getpid()}"), scratch(f"prediction-run-{os.getpid()}")
    first, first_s = _run(shape, small, profiled, FEW)
    predicted_s = _predict(shape, profiled, MANY, folder_bytes(large))
    second, second_s = _run(shape, large, predicted, MANY)
    few_itself = _predict(shape, profiled, FEW, None) / first_s - 1
    many_itself = _predict(shape, predicted, MANY, None) / second_s - 1
    others = max(first.others_cores, second.others_cores)
    return Round(first_s, predicted_s, second_s, few_itself, many_itself, others)


def _predict(shape: Shape, profile: Path, workers: int, data_bytes: int | None) -> float:
    """Wall time on this machine; without a number of bytes, with as much data as the profile had."""
    flags = ["--profile", str(profile), "--workers", str(workers), "--json"]
    flags += ["--node", f"{os.cpu_count()}cpu,{_memory_gb()}GB"]
    flags += [] if data_bytes is None else ["--data", str(data_bytes)]
    return float(json.loads(run_once(_command("simulate", shape, flags, None)).stdout)["wall_s"])


def _run(shape: Shape, source: Path, output: Path, workers: int) -> tuple[Measurement, float]:
    flags = [f"input_path={source}", f"output_path={output}", "--workers", str(workers), "--quiet", "--json"]
    measured = run_once(_command("run", shape, flags, output))
    return measured, float(json.loads(measured.stdout)["wall_s"])


def _command(name: str, shape: Shape, flags: list[str], output: Path | None) -> Command:
    recipe = str(RECIPES / f"{shape.recipe}.yaml")
    argv = [sys.executable, "-m", "thresher", name, recipe, *flags, "--trust", "prediction_stages"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "benchmarks")])
    return Command(f"{shape.label}, {name}", argv, output, {"PYTHONPATH": path}, ROOT / "benchmarks")


def _input(shape: Shape, times: int) -> Path:
    """The small corpus `times` over: plain files, or the same packed, each as one frame that cannot be split."""
    plain = corpus_folder(quick=True, times=times)
    if not shape.packed:
        return plain
    folder = DATA / f"{plain.name}-packed"
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        unfinished.mkdir(exist_ok=True)
        _pack(plain, unfinished)
        unfinished.rename(folder)
    return folder


def _pack(plain: Path, folder: Path) -> None:
    from zstandard import ZstdCompressor

    packer = ZstdCompressor(level=3, write_content_size=False)  # a frame that says its size could be read by itself
    waiting, count = b"", 0
    for path in sorted(plain.glob("*.jsonl")):
        waiting += path.read_bytes()
        if len(waiting) >= PACKED_BYTES:
            (folder / f"part-{count:03d}.jsonl.zst").write_bytes(packer.compress(waiting))
            waiting, count = b"", count + 1
    if waiting:
        (folder / f"part-{count:03d}.jsonl.zst").write_bytes(packer.compress(waiting))


def _memory_gb() -> int:
    return max(1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10**9)


def _report(found: dict[str, list[Round]]) -> None:
    rows = []
    results: dict[str, Any] = {}
    for label, rounds in found.items():
        errors = [one.error for one in rounds]
        rows.append(
            [
                label,
                Spread.of([one.profile_s for one in rounds]).show(),
                Spread.of([one.predicted_s for one in rounds]).show(),
                Spread.of([one.measured_s for one in rounds]).show(),
                Spread.of([100 * error for error in errors]).show(0),
                f"{statistics.median(100 * one.few_itself for one in rounds):+.1f}",
                f"{statistics.median(100 * one.many_itself for one in rounds):+.1f}",
                Spread.of([one.others_cores for one in rounds]).show(1),
            ]
        )
        results[label] = {
            "predicted_s": [one.predicted_s for one in rounds],
            "measured_s": [one.measured_s for one in rounds],
            "error": Spread.of(errors),
            "few_itself": [one.few_itself for one in rounds],
            "many_itself": [one.many_itself for one in rounds],
            "others_cores": [one.others_cores for one in rounds],
        }
    header = ["", "profile s", "predicted s", "measured s", "off by %", f"itself, {FEW} %", f"itself, {MANY} %"]
    header += ["cores others used"]
    print_table(f"Prediction of {TIMES} x the data with {MANY} workers, from {FEW}, median (min..max)", header, rows)
    for label, rounds in found.items():
        off = statistics.median(one.error for one in rounds)
        way = "too long" if off > 0 else "too short"
        print_target(f"{label}: prediction {way} by", f"at most {WITHIN:.0%}", abs(off), abs(off) <= WITHIN)
    write_results("prediction", {"few": FEW, "many": MANY, "times": TIMES, "pipelines": results})


if __name__ == "__main__":
    main()
