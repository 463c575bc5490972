# SPDX-License-Identifier: Apache-2.0
"""Trace one unit through the serial executor and print how many files of the package it crosses.

    python tools/walk.py [--list] [--check] [--path]

`run_files` are the files that a small run executes. The other figures are those of one unit in steady state, from a
user's stage to the same stage for the next unit: the files that run, the jumps between them, and the jumps that go
straight back to the file they came from. `--list` names the files, `--check` fails where a figure exceeds its limit.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import thresher
from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    Pipeline,
    ProcessingStage,
    ScoreFilter,
    SerialExecutor,
    UrlsFilter,
    WordCountFilter,
)

PACKAGE = os.path.dirname(thresher.__file__ or "") + os.sep
LIMITS = {"run_files": 106, "unit_files": 48, "there_and_back": 151}
"""Figures that `--check` accepts. Lower them when the code gets simpler; never raise them."""
UNITS = 9
"""Enough that the median unit is in steady state."""
RECORDS = 400
"""Records in each unit."""


class Trace:
    """The files of the package in the order in which control enters them."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.marks: list[int] = []
        """Positions in `files` at which a unit reached the user's stage."""

    def note(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Record a call or a return; this is a profile function of `sys.setprofile`."""
        if event == "return":
            entered = frame.f_back
        elif event == "call":
            entered = frame
        else:
            return
        name = entered.f_code.co_filename if entered is not None else ""
        if name.startswith(PACKAGE):
            file = name[len(PACKAGE) :]
            if not self.files or self.files[-1] != file:
                self.files.append(file)

    def median_unit(self) -> list[str]:
        """Return the files of the unit with the median number of jumps."""
        turns = [self.files[start:end] for start, end in zip(self.marks, self.marks[1:], strict=False)]
        return sorted(turns, key=len)[len(turns) // 2]


def trace_run() -> Trace:
    """Run a small pipeline on the serial executor under a profile function."""
    trace = Trace()

    class Mark(ProcessingStage[DocumentBatch, DocumentBatch]):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            trace.marks.append(len(trace.files))
            return task

    with tempfile.TemporaryDirectory() as folder:
        write_input(Path(folder, "in"))
        compile_rules(pipeline_of(folder, "warm-up"))
        pipeline = pipeline_of(folder, "out", Mark())
        threading.setprofile(trace.note)
        sys.setprofile(trace.note)
        try:
            pipeline.run(SerialExecutor(), progress="none")
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return trace


def pipeline_of(folder: str, output: str, *stages: Any) -> Pipeline:
    """Return a pipeline with two rules, and `stages` between them and the writer."""
    reader = JsonlReader(f"{folder}/in", files_per_partition=1)
    rules = ScoreFilter([WordCountFilter(min_words=50), UrlsFilter()])
    return Pipeline("walk", stages=[reader, rules, *stages, JsonlWriter(f"{folder}/{output}")])


def compile_rules(pipeline: Pipeline) -> None:
    """Run a pipeline in a process of its own, so that the traced run compiles nothing and imports everything."""
    child = os.fork()
    if not child:
        os.environ["THRESHER_BACKGROUND_COMPILE"] = "0"
        pipeline.run(SerialExecutor(), progress="none")
        os._exit(0)
    os.waitpid(child, 0)


def write_input(folder: Path) -> None:
    """Write one file of JSON lines per unit."""
    folder.mkdir()
    words = "the quick brown fox and that be to "
    for unit in range(UNITS):
        lines = [json.dumps({"text": words * (3 + number % 40), "id": number}) for number in range(RECORDS)]
        (folder / f"{unit}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def figures(trace: Trace) -> dict[str, int]:
    """Return what is counted, by name."""
    unit = trace.median_unit()
    back = sum(first == third for first, third in zip(unit, unit[2:], strict=False))
    return {
        "run_files": len(set(trace.files)),
        "unit_files": len(set(unit)),
        "unit_jumps": len(unit),
        "there_and_back": back,
    }


def main(arguments: Sequence[str]) -> int:
    """Print the figures; return 1 if one exceeds its limit."""
    parser = argparse.ArgumentParser(description="count the files that one unit crosses")
    parser.add_argument("--list", action="store_true", help="name the files of one unit, in order, with their visits")
    parser.add_argument("--path", action="store_true", help="print only the files of two units in a row, in order")
    parser.add_argument("--check", action="store_true", help="fail where a figure exceeds its limit")
    given = parser.parse_args(arguments)
    trace = trace_run()
    if given.path:
        first, _, last = trace.marks[3:6]
        sys.stdout.write(json.dumps(trace.files[first:last]) + "\n")
        return 0
    found = figures(trace)
    sys.stdout.write(json.dumps(found) + "\n")
    if given.list:
        visits = collections.Counter(trace.median_unit())
        sys.stdout.writelines(f"{count:5d} {file}\n" for file, count in visits.items())
    exceeded = [name for name, limit in LIMITS.items() if found[name] > limit] if given.check else []
    for name in exceeded:
        sys.stderr.write(f"walk: {name} is {found[name]}, more than {LIMITS[name]}: merge files or shorten the path\n")
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
