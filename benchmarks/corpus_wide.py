# SPDX-License-Identifier: Apache-2.0
"""Stages that need the whole corpus against Ray Data on the same two cores: a global shuffle, and a count by key.

Start-up is included on both sides, every output is fresh, and ours keeps its ledger. The memory of our shuffle is
measured at one and at four times the data.
"""

from __future__ import annotations

import sys
from pathlib import Path

from corpus import corpus_folder, folder_bytes
from harness import Command, compile_sources, interleave, options, scratch, thresher_run, warm_cache
from ray_executor import several
from tables import Spread, print_table, print_target, ratios, write_results

RECIPES = {"shuffle": ("global shuffle", "shuffle"), "count": ("count by key", "count_by_key")}
MEMORY = "1GB"


def main() -> None:
    chosen = options(__doc__, repeats=3)
    corpus = corpus_folder(chosen.quick)
    source = corpus if chosen.quick else several(corpus)
    compile_sources()
    warm_cache(source)
    rows, results = [], {}
    for work, (title, recipe) in RECIPES.items():
        ours = thresher_run("thresher", recipe, source, scratch(f"corpus-{work}"), "--memory", MEMORY)
        output = scratch(f"corpus-{work}-ray")
        script = Path(__file__).with_name("peer_scripts") / "ray_data_corpus.py"
        ray = Command("Ray Data", [sys.executable, script, work, source, output], output, hides_cpu=True)
        measured = interleave([ours, ray], chosen.repeats)
        walls = {label: [one.wall_s for one in runs] for label, runs in measured.items()}
        times = ratios(walls["Ray Data"], walls["thresher"])
        rows.append([title, Spread.of(walls["thresher"]).show(), Spread.of(walls["Ray Data"]).show(), times.show(1)])
        results[work] = walls
        print_target(f"{title}, times as fast as Ray Data", "at least 3", times.median, times.median >= 3)
    megabytes = folder_bytes(source) / 1e6
    print_table(f"{megabytes:.0f} MB, two cores, s, median (min..max)", ["", "thresher", "Ray Data", "times"], rows)
    peaks = _peaks(corpus, source)
    for name, peak in peaks.items():
        print(f"  peak memory of the shuffle of {name}: {peak / 1e6:.0f} MB of {MEMORY}")
    write_results("corpus_wide", {"bytes": folder_bytes(source), "wall_s": results, "peak_bytes": peaks})


def _peaks(one: Path, four: Path) -> dict[str, int]:
    """Return the peak memory of a shuffle of two folders."""
    peaks = {}
    for folder in dict.fromkeys((one, four)):
        command = thresher_run("thresher", "shuffle", folder, scratch("corpus-peak"), "--memory", MEMORY)
        (measured,) = interleave([command], 1, memory=True)["thresher"]
        peaks[f"{folder_bytes(folder) / 1e6:.0f} MB"] = measured.peak_total_bytes
    return peaks


if __name__ == "__main__":
    main()
