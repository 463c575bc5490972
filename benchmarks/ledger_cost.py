# SPDX-License-Identifier: Apache-2.0
"""Measure the cost of the ledger: the same copy with it and with `--no-ledger`, for small blocks and for usual ones.

Both write the same files and sync them; the ledger adds a record for every unit, the event log and the report. Its size
is that of the whole run folder, against the input.
"""

from __future__ import annotations

from pathlib import Path

from corpus import corpus_folder, folder_bytes
from harness import Measurement, interleave, options, scratch, thresher_run, warm_cache
from tables import Spread, print_table, print_target, ratios, write_results

BLOCKS = ("1MB", "64MB")
COST_AT_MOST = 1.03
SHARE_AT_MOST = 0.01
TIMES = 6
"""The corpus so many times over: what a run costs once, at its start and end, is no matter of throughput."""


def main() -> None:
    chosen = options(__doc__, repeats=7)
    source = corpus_folder(chosen.quick, times=TIMES)
    warm_cache(source)
    results = {block: _measure(source, block, chosen.repeats) for block in BLOCKS}
    _report(results, folder_bytes(source))


def _measure(source: Path, block: str, repeats: int) -> tuple[list[Measurement], list[Measurement], int]:
    """Runs with and without a ledger, and the bytes of the run folder."""
    size = f"JsonlReader.blocksize={block}"
    kept, bare = scratch("ledger-kept"), scratch("ledger-none")
    commands = [
        thresher_run("with ledger", "copy", source, kept, size),
        thresher_run("--no-ledger", "copy", source, bare, size, "--no-ledger"),
    ]
    print(f"  blocks of {block}", flush=True)
    measured = interleave(commands, repeats)
    run_folder = sum(path.stat().st_size for path in (kept / "_thresher").rglob("*") if path.is_file())
    return measured["with ledger"], measured["--no-ledger"], run_folder


def _report(results: dict[str, tuple[list[Measurement], list[Measurement], int]], source_bytes: int) -> None:
    rows = []
    written: dict[str, object] = {"source_bytes": source_bytes}
    for block, (kept, bare, nbytes) in results.items():
        walls = [one.wall_s for one in kept], [one.wall_s for one in bare]
        times, cpu = ratios(*walls), ratios([one.cpu_s for one in kept], [one.cpu_s for one in bare])
        share = nbytes / source_bytes
        spreads = [Spread.of(wall).show() for wall in walls]
        rows.append([block, *spreads, times.show(3), cpu.show(3), f"{100 * share:.3f} %"])
        written[block] = {"with_s": walls[0], "without_s": walls[1], "times": times, "cpu_times": cpu, "share": share}
    header = ["blocks", "with ledger s", "--no-ledger s", "wall, times", "CPU, times", "run folder / input"]
    print_table(f"Copy of {source_bytes / 1e6:.0f} MB JSON lines, median (min..max)", header, rows)
    for block, (kept, bare, nbytes) in results.items():
        times = ratios([one.wall_s for one in kept], [one.wall_s for one in bare])
        holds = times.median <= COST_AT_MOST
        print_target(
            f"wall with ledger over without, blocks of {block}", f"at most {COST_AT_MOST}", times.median, holds
        )
        share = nbytes / source_bytes
        print_target(
            f"run folder over input, blocks of {block}", f"below {SHARE_AT_MOST}", share, share < SHARE_AT_MOST
        )
    write_results("ledger_cost", written)


if __name__ == "__main__":
    main()
