# SPDX-License-Identifier: Apache-2.0
"""One large file: two workers against one with the five rules, and a single Zstandard frame in constant memory.

The speed-up is taken from the first to the last commit in the event log, so that start-up does not count. That flatters
two workers a little: when the first of two equal units is committed, the other is nearly done as well, so with N units
the best possible ratio is (N - 1) / (N / 2 - 1), not 2. The speed-up of the whole run, start-up included, is judged
beside it.
"""

from __future__ import annotations

import json
from pathlib import Path

from corpus import single_file
from harness import Measurement, options, run_once, scratch, thresher_run
from tables import Spread, print_table, print_target, ratios, write_results


def main() -> None:
    chosen = options(__doc__, repeats=3)
    source = single_file(chosen.quick)
    spans: dict[int, list[float]] = {1: [], 2: []}
    walls: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(chosen.repeats):
        for workers in spans:
            output = scratch(f"scaling-{workers}")
            # Little data needs small units, or two workers have nothing to share.
            smaller = ("JsonlReader.blocksize=8MB",) if chosen.quick else ()
            command = thresher_run("thresher", "five_rules", source, output, "--workers", str(workers), *smaller)
            walls[workers].append(run_once(command).wall_s)
            spans[workers].append(_first_to_last_commit_s(output))
    size_mb = source.stat().st_size / 1e6
    rows = [
        [
            str(workers),
            Spread.of(spans[workers]).show(),
            Spread.of(walls[workers]).show(),
            Spread.of([size_mb / wall for wall in walls[workers]]).show(0),
        ]
        for workers in spans
    ]
    header = ["workers", "first to last commit s", "wall s", "MB/s of the whole run"]
    print_table(f"One file of {size_mb:.0f} MB, five rules", header, rows)
    speedup = ratios(spans[1], spans[2])
    print_target("two workers over one, first to last commit", "at least 1.8", speedup.median, speedup.median >= 1.8)
    whole = ratios(walls[1], walls[2])
    print_target("two workers over one, whole run", "at least 1.8", whole.median, whole.median >= 1.8)
    frame = _single_frame(chosen.quick)
    write_results(
        "scaling",
        {"spans_s": spans, "walls_s": walls, "speedup": speedup, "speedup_whole_run": whole, "single_frame": frame},
    )


def _first_to_last_commit_s(output: Path) -> float:
    """The time between the first and the last `UnitCommitted` in the event log of the only attempt."""
    import zstandard

    times: list[float] = []
    for path in sorted((output / "_thresher" / "events").glob("*/*.jsonl.zst")):
        with zstandard.open(path, "rt", encoding="utf-8") as lines:
            times.extend(entry["t"] for entry in map(json.loads, lines) if entry.get("event") == "UnitCommitted")
    if len(times) < 2:
        raise SystemExit(f"{output}: {len(times)} commits in the event log; a span needs two")
    return times[-1] - times[0]


def _single_frame(quick: bool) -> dict[str, float]:
    """Run the single frame with memory sampled; its peak in the second half of the run against that in the first."""
    source = single_file(quick, compressed=True)
    measured = run_once(
        thresher_run("thresher", "five_rules", source, scratch("scaling-frame")),
        memory=True,
    )
    first, second = _half_peaks_mb(measured)
    print_table(
        f"One Zstandard frame of {source.stat().st_size / 1e6:.0f} MB",
        ["wall s", "peak MB in the first half", "peak MB in the second half"],
        [[f"{measured.wall_s:.1f}", f"{first:.0f}", f"{second:.0f}"]],
    )
    print_target("second half over first half", "at most 1.1", second / first, second / first <= 1.1)
    return {"first_half_peak_mb": first, "second_half_peak_mb": second, "wall_s": measured.wall_s}


def _half_peaks_mb(measured: Measurement) -> tuple[float, float]:
    halves: tuple[list[int], list[int]] = ([], [])
    for sample in measured.memory:
        halves[sample.at_s > measured.wall_s / 2].append(sample.total_bytes)
    if not all(halves):
        raise SystemExit(f"a run of {measured.wall_s:.2f} s is too short to sample its memory in both halves")
    return max(halves[0]) / 1e6, max(halves[1]) / 1e6


if __name__ == "__main__":
    main()
