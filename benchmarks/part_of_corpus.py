# SPDX-License-Identifier: Apache-2.0
"""A recipe of ours against a peer that is too slow for the whole corpus.

The peer gets an eighth of the corpus, once; its time is scaled by bytes, with its start-up taken off: what the same
command takes on two files with a few documents each. Ours gets all of it, start-up included and, in another line, taken
off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import peers
from corpus import corpus_folder, folder_bytes
from harness import Command, Measurement, interleave, options, scratch, thresher_run, warm_cache
from tables import Spread, print_table, print_target, ratios, write_results

OURS = "thresher"
TINY = " (start-up)"
TINY_DOCUMENTS = 50
PARTS = 8


@dataclass(frozen=True)
class Comparison:
    """A comparison of our recipe with another tool."""

    name: str  # of the results
    title: str  # for tables
    recipe: str  # ours, in recipes/
    peer: peers.Peer  # the other tool
    command: Callable[[Path, Path, str], Command]  # its run from input to output, with a suffix for its label
    least: float  # how many times as fast ours should be


def compare(comparison: Comparison, description: str | None) -> None:
    """Run both and print how many times as fast ours is."""
    chosen = options(description, repeats=5)
    source = corpus_folder(chosen.quick)
    files = sorted(source.glob("*.jsonl"))
    name = comparison.name.replace("_", "-")
    tiny = _few_documents(files[:2], scratch(f"{name}-tiny-input"))
    part = _linked(files[: max(2, len(files) // PARTS)], scratch(f"{name}-part"))
    commands = [
        thresher_run(OURS, comparison.recipe, source, scratch(f"{name}-1")),
        thresher_run(OURS + TINY, comparison.recipe, tiny, scratch(f"{name}-2")),
    ]
    warm_cache(source)
    interleave(commands[:1], 1)  # compiles, where nothing is compiled yet
    measured = interleave(commands, chosen.repeats)
    if peers.available(comparison.peer):
        start = comparison.command(tiny, scratch(f"{name}-peer-tiny"), TINY)
        measured |= interleave([start, comparison.command(part, scratch(f"{name}-peer"), "")], 1)
    peer = comparison.peer.title
    sizes = {OURS: folder_bytes(source) - folder_bytes(tiny), peer: folder_bytes(part) - folder_bytes(tiny)}
    _report(comparison, measured, sizes, folder_bytes(source))


def _few_documents(files: list[Path], folder: Path) -> Path:
    """The first documents of some files, a file each, so that every worker starts."""
    folder.mkdir()
    for file in files:
        with file.open("rb") as lines:
            (folder / file.name).write_bytes(b"".join(islice(lines, TINY_DOCUMENTS)))
    return folder


def _linked(files: list[Path], folder: Path) -> Path:
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


def _report(
    comparison: Comparison, measured: dict[str, list[Measurement]], sizes: dict[str, int], source_bytes: int
) -> None:
    peer, least = comparison.peer.title, comparison.least
    labels = [label for label in (OURS, peer) if label in measured]
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
    title = f"{comparison.title}: {sizes[OURS] / 1e6:.0f} MB of JSON lines"
    print_table(f"{title} ({sizes[peer] / 1e6:.0f} MB for {peer}), median (min..max)", header, rows)
    results: dict[str, object] = {"source_bytes": source_bytes, "wall_s_per_gb": walls, "cpu_s_per_gb": cpus}
    if peer in walls:
        scaled = [seconds * source_bytes / 1e9 for seconds in walls[peer]]
        with_start = ratios(scaled, [one.wall_s for one in measured[OURS]])
        without = ratios(walls[peer], walls[OURS])
        per_cpu = ratios(cpus[peer], cpus[OURS])
        what = f"times as fast as {peer} (its start-up taken off)"
        print_target(f"{what}, ours included", f"at least {least:g}", with_start.median, with_start.median >= least)
        print_target(f"{what}, ours taken off", f"at least {least:g}", without.median, without.median >= least)
        print(f"  CPU seconds of {peer} over ours: {per_cpu.show(0)}")
        results |= {"times_with_start": with_start, "times_without_start": without, "times_cpu": per_cpu}
    write_results(comparison.name, results)
