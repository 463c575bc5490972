# SPDX-License-Identifier: Apache-2.0
"""Corpora of awkward shapes through stages that need all documents, against well-behaved ones: one key with half of all
records, as many keys as records, units that hand on nothing, and 10,000 partitions.

Each case is run once. Told are time against the well-behaved case, peak memory against the limit, the largest number of
files in the run folder, and the largest size of the files between phases against what was shuffled.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

from corpus import DATA, folder_bytes
from disk_probe import DiskProbe, shuffled_bytes
from harness import Measurement, compile_sources, interleave, options, scratch, thresher_run, warm_cache
from tables import print_table, print_target, write_results

MEMORY, MEMORY_BYTES = "1GB", 10**9
RECORDS, QUICK_RECORDS = 1_000_000, 50_000
FILES = 16
PARTITIONS, QUICK_PARTITIONS = 10_000, 500
KEYS = 1000
MOST_DISK = 1.3


class Case(NamedTuple):
    """One shape."""

    name: str  # how it is called in tables
    recipe: str  # what is run
    flags: tuple[str, ...]  # settings of the recipe
    like: str = ""  # the well-behaved case with which its time is compared
    most_times: float = 0  # how many times as long it may take


def main() -> None:
    chosen = options(__doc__, repeats=1)
    records = QUICK_RECORDS if chosen.quick else RECORDS
    source = _corpus(records)
    compile_sources()
    warm_cache(source)
    partition = folder_bytes(source) // (QUICK_PARTITIONS if chosen.quick else PARTITIONS)
    cases = [
        Case("count, 1,000 keys", "count_by_key", ("GroupBy.by=even",)),
        Case("count, half in one key", "count_by_key", ("GroupBy.by=skewed",), "count, 1,000 keys", 1.5),
        Case("count, a key each", "count_by_key", ("GroupBy.by=distinct",), "count, 1,000 keys", 5),
        Case("sort, 1,000 keys", "sort", ("by=even",)),
        Case("sort, half in one key", "sort", ("by=skewed",), "sort, 1,000 keys", 2),
        Case("sort, a key each", "sort", ("by=distinct",), "sort, 1,000 keys", 1.5),
        Case("shuffle", "shuffle", ()),
        Case("shuffle, nearly all units empty", "shuffle_few", (), "shuffle", 1.5),
        Case("copy, as many units", "copy", (f"JsonlReader.blocksize={partition}",)),
        Case(
            "shuffle, many partitions", "shuffle", (f"GlobalShuffle.blocksize={partition}",), "copy, as many units", 3
        ),
    ]
    results: dict[str, dict[str, float]] = {}
    rows = []
    for case in cases:
        found = results[case.name] = _measured(case, source)
        times = found["wall_s"] / results[case.like]["wall_s"] if case.like else 1.0
        shown = [f"{found['wall_s']:.1f}", f"{times:.2f}" if case.like else "", f"{found['peak_bytes'] / 1e6:.0f}"]
        rows.append([case.name, *shown, f"{found['files']:,.0f}", f"{found['disk']:.2f}"])
        _judge(case, found, times)
    title = f"{records:,} records, {folder_bytes(source) / 1e6:.0f} MB, within {MEMORY}, once each"
    print_table(title, ["", "s", "times", "peak MB", "files", "disk"], rows)
    write_results("corpus_shapes", {"bytes": folder_bytes(source), "records": records, "cases": results})


def _measured(case: Case, source: Path) -> dict[str, float]:
    output = scratch("corpus-shapes")
    command = thresher_run(case.name, case.recipe, source, output, "--memory", MEMORY, *case.flags)
    with DiskProbe(output) as probe:
        (run,) = interleave([command], 1, memory=True)[case.name]
    shuffled = shuffled_bytes(output)
    return _figures(run, probe, shuffled)


def _figures(run: Measurement, probe: DiskProbe, shuffled: int) -> dict[str, float]:
    return {
        "wall_s": run.wall_s,
        "cpu_s": run.cpu_s,
        "peak_bytes": run.peak_total_bytes,
        "files": probe.peak_files,
        "shuffled_bytes": shuffled,
        "disk": probe.peak_phase_bytes / max(1, shuffled),
    }


def _judge(case: Case, found: dict[str, float], times: float) -> None:
    peak = found["peak_bytes"] / MEMORY_BYTES
    print_target(f"{case.name}: peak memory, share of the limit", "at most 1", peak, peak <= 1)
    print_target(
        f"{case.name}: disk, times what is shuffled", f"at most {MOST_DISK}", found["disk"], found["disk"] <= MOST_DISK
    )
    if case.like:
        wanted = f"at most {case.most_times:g}"
        print_target(f"{case.name}: time, times that of {case.like}", wanted, times, times <= case.most_times)


def _corpus(records: int) -> Path:
    """Short records with keys of three kinds, built if they are not there."""
    folder = DATA / f"shapes-{records}"
    if folder.is_dir():
        return folder
    unfinished = scratch(folder.name)
    unfinished.mkdir()
    chance = random.Random(20261118)
    words = [f"{chance.getrandbits(40):x}" for _ in range(5000)]
    for number in range(FILES):
        with (unfinished / f"part-{number:02d}.jsonl").open("w") as writer:
            for record in range(number * records // FILES, (number + 1) * records // FILES):
                key = f"key {chance.randrange(KEYS)}"
                length = 400 if record % 1000 == 0 else 20
                document = {
                    "id": record,
                    "even": key,
                    "skewed": "half of all" if chance.random() < 0.5 else key,
                    "distinct": f"{chance.getrandbits(64):016x}",
                    "text": " ".join(chance.choices(words, k=length)),
                }
                writer.write(json.dumps(document) + "\n")
    unfinished.rename(folder)
    return folder


if __name__ == "__main__":
    main()
