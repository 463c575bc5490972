# SPDX-License-Identifier: Apache-2.0
"""Streaming against batch on the same pipeline, at 1x and 8x the data: memory, accelerator, first output, wall time.

Read, 30 ms of computing, 50 ms on a declared accelerator, 10 ms of computing, write, for each batch of 1 MB. Memory is
the peak over the whole tree, sampled from outside; on disk is what lay between stages at most; the accelerator is busy
while its stage's `process` runs; the first output is there when a file with its final name has content.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import Command, Measurement, compile_sources, options, run_once, scratch, warm_cache
from tables import Spread, print_table, write_results

RUN = Path(__file__).resolve().parent / "streaming_vs_batch_run.py"
DATA = RUN.parent / ".data"
MODES = ("streaming", "batch")
TIMES = (1, 8)
FILE_BYTES = 10_000_000
LINE_BYTES = 2_000
SPILLED = "_thresher/**/payloads-*/*"
"""Where batch mode keeps what lies between stages, below the output folder."""
LOOK_S = 0.05
"""Time between two looks at what lies on the disk."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run."""

    peak_mb: float  # memory of the whole tree at most
    spilled_mb: float  # on disk between stages at most
    between: float  # share of the time from the model's first batch to its last that it was busy
    overall: float  # share of the whole run that it was busy
    first_s: float  # process start to the first output
    wall_s: float  # process start to its end
    others_cores: float  # cores that others kept busy


SHOWN: tuple[tuple[str, str, Callable[[Outcome], float], int], ...] = (
    ("peak_mb", "peak memory MB", lambda one: one.peak_mb, 0),
    ("spilled_mb", "on disk MB", lambda one: one.spilled_mb, 0),
    ("between", "busy, first to last %", lambda one: 100 * one.between, 1),
    ("overall", "busy, whole run %", lambda one: 100 * one.overall, 1),
    ("first_s", "first output s", lambda one: one.first_s, 2),
    ("wall_s", "wall s", lambda one: one.wall_s, 2),
)


class DiskWatch:
    """Looks, while a run goes on, at how much lies between its stages on the disk."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self.peak_bytes = 0

    def __enter__(self) -> DiskWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(LOOK_S):
            self.peak_bytes = max(self.peak_bytes, sum(map(_size, self._output.glob(SPILLED))))


def main() -> None:
    chosen = options(__doc__, repeats=5)
    compile_sources()
    base = 10 if chosen.quick else 40
    found: dict[tuple[int, str], list[Outcome]] = {(times, mode): [] for times in TIMES for mode in MODES}
    for times in TIMES:
        warm_cache(_input(base * times))
    for number in range(chosen.repeats):
        for times, mode in found:
            one = _measure(mode, _input(base * times))
            found[times, mode].append(one)
            line = f"  round {number + 1}/{chosen.repeats}  {times}x, {mode}: {one.wall_s:.2f} s"
            print(f"{line}, others kept {one.others_cores:.1f} cores busy", file=sys.stderr, flush=True)
    _report(found, base)


def _measure(mode: str, source: Path) -> Outcome:
    output = scratch(f"streaming-vs-batch-{os.getpid()}")
    spans_file = scratch(f"streaming-vs-batch-spans-{os.getpid()}")
    argv: list[str | Path] = [sys.executable, RUN, mode, source, output, spans_file]
    with DiskWatch(output) as disk:
        measured = run_once(Command(mode, argv, output, first_result=_has_output(output)), memory=True)
    spans: list[tuple[float, float]] = json.loads(spans_file.read_text())
    _check(measured, source)
    inside = sum(end - start for start, end in spans)
    assert measured.first_result_s is not None, "a run that wrote everything has a first output"
    return Outcome(
        measured.peak_total_bytes / 1e6,
        disk.peak_bytes / 1e6,
        inside / (spans[-1][1] - spans[0][0]),
        inside / measured.wall_s,
        measured.first_result_s,
        measured.wall_s,
        measured.others_cores,
    )


def _check(measured: Measurement, source: Path) -> None:
    """A run that lost something is no measurement."""
    written = json.loads(measured.stdout)["written"]
    wanted = sum(path.stat().st_size for path in source.iterdir()) // LINE_BYTES
    if written != wanted:
        raise SystemExit(f"{written:,} records were written, {wanted:,} were read from {source}")


def _has_output(output: Path) -> Callable[[], bool]:
    return lambda: any(_size(path) > 0 for path in output.glob("*.jsonl"))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # it was removed meanwhile
        return 0


def _input(megabytes: int) -> Path:
    """So many megabytes of records of 2 kB, in files of 10 MB; made when they are first asked for."""
    folder = DATA / f"streaming-vs-batch-{megabytes}"
    if not folder.is_dir():
        unfinished = folder.with_name(f"{folder.name}.unfinished-{os.getpid()}")
        unfinished.mkdir(parents=True)
        lines = FILE_BYTES // LINE_BYTES
        for file in range(megabytes * 10**6 // FILE_BYTES):
            records = (_record(file * lines + number) for number in range(lines))
            (unfinished / f"{file:03d}.jsonl").write_bytes(b"".join(records))
        unfinished.rename(folder)
    return folder


def _record(number: int) -> bytes:
    head = b'{"id": %d, "text": "' % number
    words = b"a sieve keeps what is worth keeping " * (LINE_BYTES // 36 + 1)
    return head + words[: LINE_BYTES - len(head) - 3] + b'"}\n'


def _report(found: dict[tuple[int, str], list[Outcome]], base: int) -> None:
    rows = []
    for (times, mode), runs in found.items():
        cells = [Spread.of([value(one) for one in runs]).show(digits) for _, _, value, digits in SHOWN]
        rows.append([f"{times}x, {mode}", *cells])
    header = ["", *(title for _, title, _, _ in SHOWN)]
    print_table(f"Streaming against batch, 1x = {base} MB in batches of 1 MB, median (min..max)", header, rows)
    for times in TIMES:
        first, wall = _times(found, times, lambda one: one.first_s), _times(found, times, lambda one: one.wall_s)
        print(f"  {times}x: batch takes {first:.1f} times as long to the first output, {wall:.2f} times to the end")
    results = {
        f"{times}x, {mode}": {name: Spread.of([value(one) for one in runs]) for name, _, value, _ in SHOWN}
        | {"others_cores": [one.others_cores for one in runs]}
        for (times, mode), runs in found.items()
    }
    write_results("streaming_vs_batch", {"base_mb": base, "runs": results})


def _times(found: dict[tuple[int, str], list[Outcome]], times: int, value: Callable[[Outcome], float]) -> float:
    """How many times as much batch takes, by medians."""
    streaming, batch = (statistics.median(value(one) for one in found[times, mode]) for mode in MODES)
    return batch / streaming


if __name__ == "__main__":
    main()
