# SPDX-License-Identifier: Apache-2.0
"""The English heuristics (22 rules, JSON lines to JSON lines, two workers) against NeMo Curator on Xenna.

Wall time and memory include start-up. CPU seconds are those of the whole machine, because Ray's processes are nobody's
children, and measured on a quiet one. The start-up is taken off them on both sides: what the same command
takes on a file with 100 documents. NeMo Curator runs once: its single run takes longer than all others together.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import peers
from corpus import corpus_folder, folder_bytes
from harness import Command, Measurement, interleave, options, scratch, thresher_run, warm_cache
from tables import Spread, print_table, print_target, ratios, write_results

FILTERS, SCORES, ALONE = "thresher, filters", "thresher, all scores kept", "thresher, filters, one worker"
TINY = " (start-up)"
TINY_DOCUMENTS = 100


def main() -> None:
    chosen = options(__doc__, repeats=5)
    source = corpus_folder(chosen.quick)
    tiny = _tiny_input(source)
    commands = [*_ours(source, ""), *_ours(tiny, TINY)]
    warm_cache(source)
    interleave(commands[:1], 1)  # compiles, where nothing is compiled yet
    measured = interleave(commands, chosen.repeats, memory=True)
    if peers.available(peers.NEMO):
        peer = peers.nemo_heuristics(source, scratch("heuristics-nemo"))
        start = peers.nemo_heuristics(tiny, scratch("heuristics-nemo-tiny"), TINY)
        measured |= interleave([peer, start], 1, memory=True)
    _report(measured, folder_bytes(source))


def _tiny_input(source: Path) -> Path:
    """The first documents of the corpus; some of them are kept, because NeMo Curator fails where none is."""
    folder = scratch("heuristics-tiny-input")
    folder.mkdir()
    with min(source.glob("*.jsonl")).open("rb") as lines:
        (folder / "few.jsonl").write_bytes(b"".join(islice(lines, TINY_DOCUMENTS)))
    return folder


def _ours(source: Path, suffix: str) -> list[Command]:
    number = 1 + bool(suffix)
    return [
        thresher_run(FILTERS + suffix, "english_22", source, scratch(f"heuristics-{number}")),
        thresher_run(SCORES + suffix, "english_22", source, scratch(f"heuristics-scores-{number}"), "--keep-scores"),
        thresher_run(ALONE + suffix, "english_22", source, scratch(f"heuristics-alone-{number}"), "--workers", "1"),
    ]


def _cpu_s(measured: dict[str, list[Measurement]], label: str) -> list[float]:
    """CPU seconds of each round without start-up."""
    runs, starts = measured[label], measured[label + TINY]
    return [run.machine_cpu_s - start.machine_cpu_s for run, start in zip(runs, starts, strict=True)]


def _worker_s(measured: dict[str, list[Measurement]], label: str, workers: int) -> list[float]:
    """Seconds of all workers of each round without start-up."""
    runs, starts = measured[label], measured[label + TINY]
    return [workers * (run.wall_s - start.wall_s) for run, start in zip(runs, starts, strict=True)]


def _report(measured: dict[str, list[Measurement]], source_bytes: int) -> None:
    labels = [label for label in measured if not label.endswith(TINY)]
    megabytes = source_bytes / 1e6
    cpu = {label: _cpu_s(measured, label) for label in labels}
    peaks = {label: [one.peak_total_bytes / 1e6 for one in measured[label]] for label in labels}
    walls = {label: [one.wall_s for one in measured[label]] for label in labels}
    rows = [
        [
            label,
            Spread.of(walls[label]).show(),
            Spread.of([megabytes / wall for wall in walls[label]]).show(0),
            Spread.of([megabytes / seconds for seconds in cpu[label]]).show(1),
            Spread.of(peaks[label]).show(0),
            Spread.of([one.others_cores for one in measured[label]]).show(1),
        ]
        for label in labels
    ]
    header = ["", "wall s", "MB/s", "MB per CPU second, no start-up", "peak MB", "cores others used"]
    print_table(f"22 rules on {megabytes:.0f} MB JSON lines, median (min..max)", header, rows)
    alone, together = _worker_s(measured, ALONE, 1), _worker_s(measured, FILTERS, 2)
    kept = ratios(alone, together)
    print_target("speed of each of two workers over that of one alone", "at least 0.9", kept.median, kept.median >= 0.9)
    peer = peers.NEMO.title
    if peer in walls:
        wall = ratios(walls[peer], walls[FILTERS])
        print_target(f"times as fast as {peer}, wall", "at least 75", wall.median, wall.median >= 75)
        for label, least in ((FILTERS, 100), (SCORES, 60)):
            per_cpu = ratios(cpu[peer], cpu[label])
            what = f"{label}: CPU seconds of {peer} over ours"
            print_target(what, f"at least {least}", per_cpu.median, per_cpu.median >= least)
        memory = ratios(peaks[FILTERS], peaks[peer])
        print_target(f"peak memory over that of {peer}", "at most 0.2", memory.median, memory.median <= 0.2)
    results = {label: {"wall_s": walls[label], "cpu_s": cpu[label], "peak_mb": peaks[label]} for label in labels}
    write_results("heuristics", {"source_bytes": source_bytes, "tools": results})


if __name__ == "__main__":
    main()
