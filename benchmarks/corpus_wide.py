# SPDX-License-Identifier: Apache-2.0
"""Stages that need the whole corpus, on two cores: a global shuffle against Ray Data, and a count by key against Ray
Data, DuckDB and Polars; then time, memory and disk of our shuffle at one, four and sixteen times the data.

Start-up is included on all sides, every output is fresh, and ours keeps its ledger.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

from corpus import corpus_folder, folder_bytes
from disk_probe import DiskProbe, shuffled_bytes
from harness import Command, compile_sources, interleave, options, scratch, thresher_run, warm_cache
from peers import SCRIPTS, TABLES, available
from ray_executor import several
from tables import Spread, print_table, print_target, ratios, write_results

RECIPES = {"shuffle": ("global shuffle", "shuffle"), "count": ("count by key", "count_by_key")}
MEMORY, MEMORY_BYTES = "1GB", 10**9
MOST_DISK = 1.3
GROWTH = (1, 4, 16)
RAY = "Ray Data"


def main() -> None:
    chosen = options(__doc__, repeats=3)
    corpus = corpus_folder(chosen.quick)
    source = corpus if chosen.quick else several(corpus)
    compile_sources()
    warm_cache(source)
    rows, results = [], {}
    for work, (title, recipe) in RECIPES.items():
        ours = thresher_run("thresher", recipe, source, scratch(f"corpus-{work}"), "--memory", MEMORY)
        others = [_ray(work, source), *(_tables(source) if work == "count" and available(TABLES) else [])]
        measured = interleave([ours, *others], chosen.repeats)
        walls = {label: [one.wall_s for one in runs] for label, runs in measured.items()}
        results[work] = walls
        for other in others:
            faster = ratios(walls[other.label], walls["thresher"])
            shown = Spread.of(walls["thresher"]).show(), Spread.of(walls[other.label]).show(), faster.show(2)
            rows.append([title, other.label, *shown])
            least = 3 if other.label == RAY else 0.5
            wanted = f"at least {least:g}"
            print_target(f"{title}, times as fast as {other.label}", wanted, faster.median, faster.median >= least)
    megabytes = folder_bytes(source) / 1e6
    print_table(
        f"{megabytes:.0f} MB, two cores, s, median (min..max)", ["", "other", "thresher", "other", "times"], rows
    )
    growth = _growth(corpus, GROWTH[:2] if chosen.quick else GROWTH)
    write_results("corpus_wide", {"bytes": folder_bytes(source), "wall_s": results, "growth": growth})


def _ray(work: str, source: Path) -> Command:
    output = scratch(f"corpus-{work}-ray")
    return Command(RAY, [sys.executable, SCRIPTS / "ray_data_corpus.py", work, source, output], output, hides_cpu=True)


def _tables(source: Path) -> list[Command]:
    commands = []
    for label, tool in (("DuckDB", "duckdb"), ("Polars", "polars")):
        output = scratch(f"corpus-count-{tool}")
        commands.append(Command(label, [TABLES.python, SCRIPTS / "table_count.py", tool, source, output], output))
    return commands


def _growth(corpus: Path, copies: tuple[int, ...]) -> dict[str, dict[str, float]]:
    """Shuffle more and more data with the same memory, once each: time, CPU time, peak memory, and disk in between."""
    found: dict[str, dict[str, float]] = {}
    rows = []
    for n in copies:
        source, output = several(corpus, n), scratch("corpus-growth")
        command = thresher_run("thresher", "shuffle", source, output, "--memory", MEMORY)
        with DiskProbe(output) as probe:
            (measured,) = interleave([command], 1, memory=True)["thresher"]
        nbytes, disk = folder_bytes(source), probe.peak_phase_bytes / max(1, shuffled_bytes(output))
        times = {"wall_s": measured.wall_s, "cpu_s": measured.cpu_s}
        found[f"{n}x"] = {"bytes": nbytes, **times, "peak": measured.peak_total_bytes, "disk": disk}
        shown = [f"{n}x", f"{measured.wall_s:.1f}", f"{measured.cpu_s:.1f}", f"{nbytes / 1e6 / measured.wall_s:.0f}"]
        rows.append([*shown, f"{measured.peak_total_bytes / 1e6:.0f}", f"{disk:.2f}"])
    print_table(f"shuffle within {MEMORY}, once each", ["data", "s", "CPU s", "MB/s", "peak MB", "disk"], rows)
    _judge_growth(found)
    return found


def _judge_growth(found: dict[str, dict[str, float]]) -> None:
    """Compare each size with the smallest one, whose time may grow as n log n."""
    first = next(iter(found.values()))
    for name, one in found.items():
        n = one["bytes"] / first["bytes"]
        most = n * math.log(one["bytes"]) / math.log(first["bytes"])
        for what, key in (("time", "wall_s"), ("CPU time", "cpu_s")) if n > 1 else ():
            times = one[key] / first[key]
            print_target(f"{name} data, times the {what}", f"at most {most:.1f}", times, times <= most)
        share = one["peak"] / MEMORY_BYTES
        print_target(f"{name} data, peak memory, share of the limit", "at most 1", share, share <= 1)
        disk = one["disk"]
        print_target(f"{name} data, disk, times what is shuffled", f"at most {MOST_DISK}", disk, disk <= MOST_DISK)


if __name__ == "__main__":
    main()
