# SPDX-License-Identifier: Apache-2.0
"""From process start to the first committed output file of a small input, and what `import thresher` costs.

For the peers the first output file with content counts, which is earlier than complete; for Thresher the file must have
its final name and its unit must be recorded in the ledger.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import peers
from corpus import corpus_folder
from harness import Command, Measurement, interleave, options, scratch, thresher_run
from tables import Spread, print_table, print_target, ratios, write_results

OURS = "thresher"
IMPORT = "python -c 'import thresher'"
PASS = "python -c pass"


def main() -> None:
    chosen = options(__doc__, repeats=7)
    source = small_input(chosen.quick)
    output = scratch("first-thresher")
    ours = dataclasses.replace(thresher_run(OURS, "copy", source, output), first_result=committed(output))
    commands = [ours]
    if peers.available(peers.DATATROVE):
        output = scratch("first-datatrove")
        command = peers.datatrove_copy(source, output)
        commands.append(dataclasses.replace(command, first_result=_has_content(output)))
    measured = interleave(commands, chosen.repeats)
    if peers.available(peers.NEMO):
        output = scratch("first-nemo")
        measured |= interleave([peers.nemo_copy(source, output, _has_content(output))], 1)
    imports = interleave(
        [Command(PASS, [sys.executable, "-c", "pass"]), Command(IMPORT, [sys.executable, "-c", "import thresher"])],
        5 if chosen.quick else 15,
    )
    _report(measured, imports)


def small_input(quick: bool) -> Path:
    """Two files of 500 documents each."""
    folder = scratch("first-input")
    folder.mkdir()
    for path in sorted(corpus_folder(quick).glob("*.jsonl"))[:2]:
        with path.open("rb") as lines:
            (folder / path.name).write_bytes(b"".join(islice(lines, 500)))
    return folder


def _has_content(output: Path) -> Callable[[], bool]:
    return lambda: any(path.stat().st_size > 0 for path in output.glob("*.jsonl"))


def committed(output: Path) -> Callable[[], bool]:
    """Return a function that tells whether a file of the output has its final name and its unit is in the ledger."""

    def recorded() -> bool:
        ledger = output / "_thresher" / "ledger"
        return any(path.stat().st_size > 0 for path in (*ledger.glob("*.jsonl"), *ledger.glob("inbox/[!.]*")))

    has_content = _has_content(output)
    return lambda: has_content() and recorded()


def _report(measured: dict[str, list[Measurement]], imports: dict[str, list[Measurement]]) -> None:
    firsts: dict[str, list[float]] = {}
    for label, runs in measured.items():
        firsts[label] = [one.first_result_s for one in runs if one.first_result_s is not None]
        if len(firsts[label]) != len(runs):
            raise SystemExit(
                f"{label} ended without a first result in {len(runs) - len(firsts[label])} of {len(runs)} runs"
            )
    rows = [
        [
            label,
            Spread.of(values).show(3),
            Spread.of([one.wall_s for one in measured[label]]).show(3),
            ratios(values, firsts[OURS]).show(1),
        ]
        for label, values in firsts.items()
    ]
    header = ["", "first file after s", "whole run s", "first file, times thresher's"]
    print_table("1,000 documents in two files, start-up included", header, rows)
    for peer, factor in ((peers.DATATROVE, 1), (peers.NEMO, 15)):
        if peer.title in firsts:
            ratio = ratios(firsts[peer.title], firsts[OURS])
            print_target(f"times as early as {peer.title}", f"at least {factor}", ratio.median, ratio.median >= factor)

    walls = {label: [one.wall_s * 1e3 for one in runs] for label, runs in imports.items()}
    print_table("Import", ["", "ms"], [[label, Spread.of(values).show(0)] for label, values in walls.items()])
    extra = Spread.of([ours - bare for ours, bare in zip(walls[IMPORT], walls[PASS], strict=True)])
    print_target("ms more than python -c pass", "at most 150", extra.median, extra.median <= 150)
    write_results("first_file", {"first_file_s": firsts, "import_ms": walls, "import_extra_ms": extra})


if __name__ == "__main__":
    main()
