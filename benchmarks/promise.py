# SPDX-License-Identifier: Apache-2.0
"""The memory promise: six pipelines that want more than they are given.

Each runs under its limit and with the default (60 % of the machine). The memory of the whole tree is sampled ten times
a second from outside: PSS of all processes, and memory-file pages that nobody maps. It must stay below the limit, no
record below a sixteenth of it may be set aside, and the run may take at most a quarter longer than with the default.
"""

from __future__ import annotations

import functools
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from harness import Command, Measurement, run_once, scratch
from tables import Spread, print_table, print_target, ratios, write_results

RUN = Path(__file__).resolve().parent / "promise_run.py"
WORDS = ["a", "sieve", "keeps", "what", "is", "worth", "keeping", "and", "lets", "the", "chaff", "go", "é", "по"]
MB = 10**6


@dataclass(frozen=True)
class Case:
    """One adversarial pipeline."""

    name: str
    """As `promise_run.py` knows it."""
    memory: str
    """The limit."""
    limit: int
    """The same in bytes."""
    sizes: Callable[[bool], Iterator[int]]
    """Sizes of the texts, for a quick run or a full one."""
    files: int = 2
    """How many files the records are spread over."""


def _skewed(quick: bool) -> Iterator[int]:
    chance = random.Random(7)
    for number in range(600 if quick else 3000):
        yield int(1000 * MB / 16 * 0.97) if number % 150 == 9 else int(10 ** chance.uniform(0, 6))


CASES = (
    Case("records of 200 MB", "4GB", 4000 * MB, lambda quick: iter([200 * MB] * (4 if quick else 12))),
    Case("records of 50 MB", "1GB", 1000 * MB, lambda quick: iter([50 * MB] * (8 if quick else 40))),
    Case("fan-out of 10,000", "1GB", 1000 * MB, lambda quick: iter([2000] * (2 if quick else 20))),
    Case("slow writer", "1GB", 1000 * MB, lambda quick: iter([20_000] * (15_000 if quick else 75_000)), files=8),
    Case("leaking stage", "1GB", 1000 * MB, lambda quick: iter([20_000] * (15_000 if quick else 75_000)), files=8),
    Case("skewed sizes", "1GB", 1000 * MB, _skewed, files=4),
)


def main() -> None:
    from argparse import ArgumentParser

    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data, one round")
    parser.add_argument("--repeats", type=int, default=None, help="rounds (default 5, with --quick 1)")
    parser.add_argument("--only", default="", help="only pipelines whose name holds this text")
    chosen = parser.parse_args()
    repeats = chosen.repeats or (1 if chosen.quick else 5)
    rows: list[list[str]] = []
    results: dict[str, object] = {}
    for case in CASES:
        if chosen.only in case.name:
            results[case.name] = _measure(case, chosen.quick, repeats, rows)
    header = ["pipeline", "limit MB", "peak MB", "default peak MB", "wall s", "default wall s", "rate", "set aside"]
    print_table("The memory promise", header, rows)
    write_results("promise", results)


def _measure(case: Case, quick: bool, repeats: int, rows: list[list[str]]) -> dict[str, object]:
    source, records = _input(case, quick)
    within: list[Measurement] = []
    free: list[Measurement] = []
    lost = 0
    for _ in range(repeats):
        within.append(run_once(_command(case, source, case.memory), memory=True))
        free.append(run_once(_command(case, source, "-"), memory=True))
        told = json.loads(within[-1].stdout)
        lost = max(lost, records - told["counts"]["read"], told["counts"]["quarantined"])
    peak = max(m.peak_total_bytes for m in within) / MB
    free_peak = max(m.peak_total_bytes for m in free) / MB
    rate = ratios([m.wall_s for m in free], [m.wall_s for m in within])
    walls = [Spread.of([m.wall_s for m in measured]) for measured in (within, free)]
    rows.append(
        [
            case.name,
            f"{case.limit / MB:.0f}",
            f"{peak:.0f}",
            f"{free_peak:.0f}",
            walls[0].show(1),
            walls[1].show(1),
            rate.show(),
            str(lost),
        ]
    )
    print_target(f"{case.name}: peak over limit", "at most 1", peak * MB / case.limit, peak * MB <= case.limit)
    print_target(f"{case.name}: records set aside", "0", lost, lost == 0)
    print_target(f"{case.name}: rate over the default's", "at least 0.8", rate.median, rate.median >= 0.8)
    return {"peak_mb": peak, "default_peak_mb": free_peak, "rate": rate, "set_aside": lost, "limit_mb": case.limit / MB}


def _command(case: Case, source: Path, memory: str) -> Command:
    output = scratch(f"promise-output-{os.getpid()}")
    return Command(
        f"{case.name}, {memory}", [sys.executable, RUN, case.name, source, output, memory], output, cwd=RUN.parent
    )


def _input(case: Case, quick: bool) -> tuple[Path, int]:
    """The input of a case, made when it is first asked for; and how many records it has."""
    name = f"promise-{case.name.replace(' ', '-').replace(',', '')}{'-quick' if quick else ''}"
    folder = RUN.parent / ".data" / name
    sizes = list(case.sizes(quick))
    if not folder.exists():
        unfinished = folder.with_name(f"{name}-unfinished-{os.getpid()}")
        unfinished.mkdir(parents=True)
        for file in range(case.files):
            with (unfinished / f"{file:02}.jsonl").open("wb") as writer:
                for number in range(file, len(sizes), case.files):
                    _write_record(writer.write, sizes[number], number)
        unfinished.rename(folder)
    return folder, len(sizes)


@functools.cache
def _block(number: int) -> bytes:
    """A megabyte of words."""
    text = " ".join(random.Random(number).choices(WORDS, k=300_000)).encode()[:MB]
    return text.decode("utf-8", "ignore").encode()


def _write_record(write: Callable[[bytes], object], size: int, number: int) -> None:
    """One line with a text of about `size` bytes, a megabyte at a time."""
    block = _block(number % 16)
    write(b'{"id": %d, "text": "' % number)
    left = size
    while left > 0:
        write(block[:left] if left >= len(block) else block[:left].decode("utf-8", "ignore").encode())
        left -= len(block)
    write(b'"}\n')


if __name__ == "__main__":
    main()
