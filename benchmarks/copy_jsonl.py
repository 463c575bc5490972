# SPDX-License-Identifier: Apache-2.0
"""Copying JSON lines with default settings against datatrove, NeMo Curator and a raw copy by two processes.

Start-up is included, the ledger is on, every output is fresh. NeMo Curator runs once: its single run takes longer
than all others together.
"""

from __future__ import annotations

import sys

import peers
from corpus import corpus_folder, folder_bytes
from harness import Command, Measurement, interleave, options, scratch, thresher_run, warm_cache
from tables import Spread, print_table, print_target, ratios, write_results

RAW = "raw copy, two processes"
OURS = "thresher"


def main() -> None:
    chosen = options(__doc__, repeats=5)
    source = corpus_folder(chosen.quick)
    ours = thresher_run(OURS, "copy", source, scratch("copy-thresher"))
    raw_output = scratch("copy-raw")
    raw = Command(RAW, [sys.executable, "benchmarks/raw_copy.py", source, raw_output, "2"], raw_output)
    commands = [raw, ours]
    if peers.available(peers.DATATROVE):
        commands.append(peers.datatrove_copy(source, scratch("copy-datatrove")))
    warm_cache(source)
    measured = interleave(commands, chosen.repeats)
    if peers.available(peers.NEMO):
        measured |= interleave([peers.nemo_copy(source, scratch("copy-nemo"))], 1)
    _check_complete(ours, folder_bytes(source))
    _report(measured, folder_bytes(source))


def _check_complete(command: Command, expected_bytes: int) -> None:
    """A fast copy that lost something is no copy."""
    assert command.output is not None
    if (got := folder_bytes(command.output)) != expected_bytes:
        raise SystemExit(f"{command.label} wrote {got:,} bytes of {expected_bytes:,}")


def _report(measured: dict[str, list[Measurement]], source_bytes: int) -> None:
    walls = {label: [one.wall_s for one in runs] for label, runs in measured.items()}
    rows = [
        [
            label,
            Spread.of(walls[label]).show(),
            Spread.of([source_bytes / 1e6 / wall for wall in walls[label]]).show(0),
            Spread.of([one.cpu_s for one in runs]).show(),
            Spread.of([one.others_cores for one in runs]).show(1),
            ratios(walls[label], walls[OURS]).show(),
        ]
        for label, runs in measured.items()
    ]
    header = ["", "wall s", "MB/s", "CPU s", "cores others used", "wall, times thresher's"]
    print_table(f"Copy of {source_bytes / 1e6:.0f} MB JSON lines, median (min..max)", header, rows)

    over_floor = [ours / (2 * raw + 0.6) for ours, raw in zip(walls[OURS], walls[RAW], strict=True)]
    floor = Spread.of(over_floor)
    print_target("wall over (2 x raw copy + 0.6 s)", "at most 1", floor.median, floor.median <= 1)
    for peer, factor in ((peers.DATATROVE, 3), (peers.NEMO, 25)):
        if peer.title in walls:
            ratio = ratios(walls[peer.title], walls[OURS])
            print_target(f"times as fast as {peer.title}", f"at least {factor}", ratio.median, ratio.median >= factor)
    results = {
        label: {
            "wall_s": walls[label],
            "cpu_s": [one.cpu_s for one in runs],
            "others_cores": [one.others_cores for one in runs],
            "times_ours": ratios(walls[label], walls[OURS]),
        }
        for label, runs in measured.items()
    }
    write_results("copy_jsonl", {"source_bytes": source_bytes, "over_floor": floor, "tools": results})


if __name__ == "__main__":
    main()
