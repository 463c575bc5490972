# SPDX-License-Identifier: Apache-2.0
"""Peak memory of the whole process tree on the corpus and on eight times the corpus: it must not grow with the data.

PSS of every process is summed ten times a second. Memory-file pages that no process maps are in no PSS and are added
in a column of their own; what the run itself says stands beside it.
"""

from __future__ import annotations

import json
from itertools import product

from corpus import corpus_folder, folder_bytes
from harness import Command, Measurement, options, run_once, scratch, thresher_run
from tables import Spread, print_table, print_target, ratios, write_results

TIMES = 8
RECIPE_NAMES = ("copy", "five_rules", "english_22")
SETTINGS: dict[str, tuple[str, ...]] = {"default": (), "memory=1GB": ("--memory", "1GB")}


def main() -> None:
    chosen = options(__doc__, repeats=3)
    rows: list[list[str]] = []
    results: dict[str, dict[str, object]] = {}
    verdicts: list[tuple[str, float]] = []
    for recipe, setting in product(RECIPE_NAMES, SETTINGS):
        peaks: dict[int, list[float]] = {1: [], TIMES: []}
        reported: dict[int, int] = {}
        for _ in range(chosen.repeats):
            for times in peaks:
                measured, reported[times] = _measure(recipe, setting, times, chosen.quick)
                peaks[times].append(measured.peak_total_bytes / 1e6)
                rows.append(_row(recipe, setting, times, measured, reported[times]))
        growth = ratios(peaks[TIMES], peaks[1])
        verdicts.append((f"{recipe}, {setting}: {TIMES}x over 1x", growth.median))
        results[f"{recipe}, {setting}"] = {
            "peak_mb": {f"{times}x": Spread.of(values) for times, values in peaks.items()},
            "growth": growth,
            "reported_bytes": {f"{times}x": value for times, value in reported.items()},
        }
    header = ["recipe", "setting", "data", "peak PSS MB", "with unmapped MB", "the run's own peak MB", "wall s"]
    print_table("Peak memory of the process tree", header, rows)
    for what, growth_median in verdicts:
        print_target(what, "at most 1.1", growth_median, growth_median <= 1.1)
    write_results("memory", {"corpus_bytes": folder_bytes(corpus_folder(chosen.quick)), "growth": results})


def _measure(recipe: str, setting: str, times: int, quick: bool) -> tuple[Measurement, int]:
    """One run with its memory sampled, and the peak that its report states."""
    output = scratch("memory-output")
    command: Command = thresher_run("thresher", recipe, corpus_folder(quick, times), output, *SETTINGS[setting])
    measured = run_once(command, memory=True)
    report = json.loads((output / "_thresher" / "report.json").read_text())
    return measured, int(report["peak_memory_bytes"])


def _row(recipe: str, setting: str, times: int, measured: Measurement, reported: int) -> list[str]:
    pss, total = measured.peak_pss_bytes / 1e6, measured.peak_total_bytes / 1e6
    return [
        recipe,
        setting,
        f"{times}x",
        f"{pss:.0f}",
        f"{total:.0f}",
        f"{reported / 1e6:.0f}",
        f"{measured.wall_s:.1f}",
    ]


if __name__ == "__main__":
    main()
