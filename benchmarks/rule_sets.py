# SPDX-License-Identifier: Apache-2.0
"""The Gopher, C4 and FineWeb rule sets (JSON lines to JSON lines, two workers) against datatrove.

datatrove gets an eighth of the corpus, once; its time is scaled by bytes, with its start-up taken off: what the same
command takes on two files with a few documents each. Ours gets all of it, start-up included and, in another line, taken
off. datatrove finds words with spaCy, its default for English.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import peers
from corpus import corpus_folder, folder_bytes
from harness import Measurement, interleave, options, scratch, thresher_run, warm_cache
from tables import Spread, print_table, print_target, ratios, write_results

OURS, PEER = "thresher", peers.DATATROVE_RULES.title
TINY = " (start-up)"
TINY_DOCUMENTS = 50
PARTS = 8
LEAST = 200


def main() -> None:
    chosen = options(__doc__, repeats=5)
    source = corpus_folder(chosen.quick)
    files = sorted(source.glob("*.jsonl"))
    tiny, part = _few_documents(files[:2]), _linked(files[: max(2, len(files) // PARTS)])
    commands = [
        thresher_run(OURS, "rule_sets", source, scratch("rule-sets-1")),
        thresher_run(OURS + TINY, "rule_sets", tiny, scratch("rule-sets-2")),
    ]
    warm_cache(source)
    interleave(commands[:1], 1)  # compiles, where nothing is compiled yet
    measured = interleave(commands, chosen.repeats)
    if peers.available(peers.DATATROVE_RULES):
        start = peers.datatrove_rule_sets(tiny, scratch("rule-sets-datatrove-tiny"), TINY)
        measured |= interleave([start, peers.datatrove_rule_sets(part, scratch("rule-sets-datatrove"))], 1)
    sizes = {OURS: folder_bytes(source) - folder_bytes(tiny), PEER: folder_bytes(part) - folder_bytes(tiny)}
    _report(measured, sizes, folder_bytes(source))


def _few_documents(files: list[Path]) -> Path:
    """The first documents of some files, a file each, so that every worker starts."""
    folder = scratch("rule-sets-tiny-input")
    folder.mkdir()
    for file in files:
        with file.open("rb") as lines:
            (folder / file.name).write_bytes(b"".join(islice(lines, TINY_DOCUMENTS)))
    return folder


def _linked(files: list[Path]) -> Path:
    folder = scratch("rule-sets-part")
    folder.mkdir()
    for file in files:
        (folder / file.name).hardlink_to(file)
    return folder


def _seconds_per_gb(measured: dict[str, list[Measurement]], label: str, size: int, cpu: bool = False) -> list[float]:
    """Wall or CPU seconds of each round for a gigabyte, start-up taken off."""
    runs, starts = measured[label], measured[label + TINY]
    return [
        ((run.cpu_s - start.cpu_s) if cpu else (run.wall_s - start.wall_s)) / size * 1e9
        for run, start in zip(runs, starts, strict=True)
    ]


def _report(measured: dict[str, list[Measurement]], sizes: dict[str, int], source_bytes: int) -> None:
    labels = [label for label in (OURS, PEER) if label in measured]
    walls = {label: _seconds_per_gb(measured, label, sizes[label]) for label in labels}
    cpus = {label: _seconds_per_gb(measured, label, sizes[label], cpu=True) for label in labels}
    rows = [
        [
            label,
            Spread.of([one.wall_s for one in measured[label]]).show(),
            Spread.of([one.wall_s for one in measured[label + TINY]]).show(),
            Spread.of([1e3 / seconds for seconds in walls[label]]).show(2),
            Spread.of([1e3 / seconds for seconds in cpus[label]]).show(2),
            Spread.of([one.others_cores for one in measured[label]]).show(1),
        ]
        for label in labels
    ]
    header = ["", "wall s", "start-up s", "MB/s, no start-up", "MB per CPU second, no start-up", "cores others used"]
    title = f"Gopher, C4 and FineWeb sets: {sizes[OURS] / 1e6:.0f} MB of JSON lines"
    print_table(f"{title} ({sizes.get(PEER, 0) / 1e6:.0f} MB for datatrove), median (min..max)", header, rows)
    results: dict[str, object] = {"source_bytes": source_bytes, "wall_s_per_gb": walls, "cpu_s_per_gb": cpus}
    if PEER in walls:
        scaled = [seconds * source_bytes / 1e9 for seconds in walls[PEER]]
        with_start = ratios(scaled, [one.wall_s for one in measured[OURS]])
        without = ratios(walls[PEER], walls[OURS])
        per_cpu = ratios(cpus[PEER], cpus[OURS])
        what = f"times as fast as {PEER} (its start-up taken off)"
        print_target(f"{what}, ours included", f"at least {LEAST}", with_start.median, with_start.median >= LEAST)
        print_target(f"{what}, ours taken off", f"at least {LEAST}", without.median, without.median >= LEAST)
        print(f"  CPU seconds of {PEER} over ours: {per_cpu.show(0)}")
        results |= {"times_with_start": with_start, "times_without_start": without, "times_cpu": per_cpu}
    write_results("rule_sets", results)


if __name__ == "__main__":
    main()
