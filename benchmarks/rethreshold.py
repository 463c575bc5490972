# SPDX-License-Identifier: Apache-2.0
"""Measure what keeping scores costs, and what `thresher rethreshold` saves against a full run with the new threshold.

Each round runs a plain run, a run that keeps its scores, a full run with another threshold, and `rethreshold` to the
same threshold from the kept scores. The outputs of the last two are compared byte for byte.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from corpus import corpus_folder, folder_bytes
from harness import THRESHER, Command, Measurement, interleave, options, scratch, thresher_run, warm_cache
from tables import Spread, print_table, ratios, write_results

PLAIN, KEPT = "plain run", "run with --keep-scores"
FULL, AGAIN = "full run, other threshold", "rethreshold"
CHANGE = "WordCountFilter.min_words=80"


def main() -> None:
    chosen = options(__doc__, repeats=5)
    source = corpus_folder(chosen.quick)
    kept, full, again = (scratch(f"rethreshold-{name}") for name in ("kept", "full", "again"))
    argv: list[str | Path] = [THRESHER, "rethreshold", kept, CHANGE, "--output", again, "--workers", "2", "--quiet"]
    commands = [
        thresher_run(PLAIN, "five_rules", source, scratch("rethreshold-plain")),
        thresher_run(KEPT, "five_rules", source, kept, "--keep-scores"),
        thresher_run(FULL, "five_rules", source, full, CHANGE),
        Command(AGAIN, argv, again),
    ]
    warm_cache(source)
    measured = interleave(commands, chosen.repeats)
    if _hashes(full) != _hashes(again):
        raise SystemExit(f"{AGAIN} and {FULL} wrote different files")
    _report(measured, folder_bytes(source), folder_bytes(kept / "_thresher" / "scores"))


def _hashes(folder: Path) -> dict[str, str]:
    files = [path for path in sorted(folder.iterdir()) if path.is_file()]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def _report(measured: dict[str, list[Measurement]], source_bytes: int, score_bytes: int) -> None:
    walls = {label: [one.wall_s for one in runs] for label, runs in measured.items()}
    cpu = {label: [one.cpu_s for one in runs] for label, runs in measured.items()}
    rows = [
        [
            label,
            Spread.of(walls[label]).show(),
            Spread.of(cpu[label]).show(),
            Spread.of([one.others_cores for one in runs]).show(1),
            ratios(walls[label], walls[FULL]).show(),
            ratios(cpu[label], cpu[FULL]).show(),
        ]
        for label, runs in measured.items()
    ]
    header = ["", "wall s", "CPU s", "cores others used", "wall, times the full run's", "CPU, times the full run's"]
    print_table(f"Five rules on {source_bytes / 1e6:.0f} MB JSON lines, median (min..max)", header, rows)
    print(f"\nscores: {score_bytes:,} bytes, {100 * score_bytes / source_bytes:.2f} % of the input")
    print(f"keeping scores takes {ratios(walls[KEPT], walls[PLAIN]).show()} times the wall time of a plain run")
    write_results(
        "rethreshold",
        {
            "source_bytes": source_bytes,
            "score_bytes": score_bytes,
            "wall_s": walls,
            "cpu_s": cpu,
            "kept_over_plain": ratios(walls[KEPT], walls[PLAIN]),
            "rethreshold_over_full": ratios(walls[AGAIN], walls[FULL]),
        },
    )


if __name__ == "__main__":
    main()
