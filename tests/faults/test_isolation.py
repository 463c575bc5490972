# SPDX-License-Identifier: Apache-2.0
"""Records that crash or hang their worker: each is named and set aside, and everything else is written.

Every test compares with the undisturbed output: it must be that, without the poisoned records and nothing else, and
the quarantine must hold just these.
"""

from __future__ import annotations

import ctypes
import gzip
import json
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Pipeline,
    ProcessingStage,
    RunResult,
    Task,
)
from thresher.errors import RunFailedError, TooManyErrorsError


def segfault() -> None:
    """What a bug in C code does."""
    ctypes.string_at(0)


def kill_itself() -> None:
    """What the kernel does to a process where memory has run out."""
    os.kill(os.getpid(), signal.SIGKILL)


def leave() -> None:
    """What some libraries do."""
    os._exit(3)


def leave_well() -> None:
    """The same, as if all was well."""
    os._exit(0)


def hang() -> None:
    """A call that never comes back."""
    while True:
        time.sleep(60)


def hang_deaf() -> None:
    """The same, in a process that hears no signal that it could hear."""
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, signal.NSIG))
    hang()


def hang_in_c() -> None:
    """A call of C code that holds the interpreter: no thread of Python runs any more."""
    ctypes.PyDLL(None).sleep(3600)


def fail() -> None:
    """What stages do most often."""
    raise ValueError("poisoned")


FAULTS: dict[str, Callable[[], None]] = {
    "segfault": segfault,
    "kill": kill_itself,
    "exit": leave,
    "exit 0": leave_well,
    "hang": hang,
    "deaf": hang_deaf,
    "hang in C": hang_in_c,
    "error": fail,
}
ERRORS = {
    "segfault": "worker-crashed",
    "kill": "out-of-memory",
    "exit": "worker-crashed",
    "exit 0": "worker-crashed",
    "hang": "timeout",
    "deaf": "timeout",
    "hang in C": "timeout",
    "error": "ValueError",
}


class Poisoned(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Does what the field `poison` of a record says."""

    name = "poisoned"

    def __init__(self, timeout_s: float | None = None) -> None:
        self.timeout_s = timeout_s

    def process(self, task: DocumentBatch) -> DocumentBatch:
        for poison in task.values("poison"):
            if poison:
                FAULTS[poison]()
        return task.replace("seen", [True] * len(task))


class OwnWorkers(Poisoned):
    """The same with workers of its own."""

    def num_workers(self) -> int:
        return 2


class FansOut(Poisoned):
    """Gives each record away by itself."""

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:  # type: ignore[override]  # a generator is as good
        for row in range(len(task)):
            yield super().process(task.take(range(row, row + 1)))


class OnlyTogether(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Crashes where it gets more than a few records at a time."""

    name = "only_together"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if len(task) > 7:
            segfault()
        return task.replace("seen", [True] * len(task))


class Grouped(ProcessingStage[Task, Task]):
    """Takes several tasks in one call."""

    name = "grouped"
    batch_size = 8

    def process(self, task: Task) -> Task:
        return self.process_batch([task])[0]

    def process_batch(self, tasks: Sequence[Task]) -> list[Task]:
        for task in tasks:
            if task.data[1]:
                FAULTS[task.data[1]]()
        return list(tasks)


class NotByRows(Poisoned):
    """May not be given a part of a batch."""

    row_wise = False


def write_input(
    folder: Path, poisons: dict[int, str], count: int = 300, *, files: int = 2, packed: bool = False
) -> None:
    """So many records, some of them poisoned."""
    folder.mkdir()
    share = count // files
    for file in range(files):
        numbers = range(file * share, (file + 1) * share)
        lines = [json.dumps({"number": n, "text": f"text {n}", "poison": poisons.get(n, "")}) for n in numbers]
        data = ("\n".join(lines) + "\n").encode()
        name = f"{file}.jsonl.gz" if packed else f"{file}.jsonl"
        (folder / name).write_bytes(gzip.compress(data) if packed else data)


def run(tmp_path: Path, stage: ProcessingStage[Any, Any], *, fusion: bool = True, **options: Any) -> RunResult:
    """The input of a test through a stage."""
    reader = JsonlReader(str(tmp_path / "in"), blocksize=options.pop("blocksize", "20kB"))
    stages: list[Any] = [reader, stage, JsonlWriter(str(tmp_path / "out"))]
    options.setdefault("max_errors", "100%")
    executor = LocalExecutor(workers=2, fusion=fusion)
    return Pipeline("poisoned", stages=stages).run(executor, progress="none", **options)


def written(tmp_path: Path) -> list[int]:
    """Which records were written, in order."""
    files = sorted(path for path in (tmp_path / "out").iterdir() if path.is_file())
    return [json.loads(line)["number"] for path in files for line in path.read_bytes().splitlines()]


def set_aside(tmp_path: Path) -> dict[int, dict[str, Any]]:
    """The entries of the quarantine by number of the record; none of them is there twice."""
    entries = [
        json.loads(line)
        for path in (tmp_path / "out" / "_thresher" / "quarantine").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    found = {json.loads(entry["record"])["number"]: entry for entry in entries}
    assert len(found) == len(entries)
    return found


def check(tmp_path: Path, poisons: dict[int, str], count: int = 300) -> None:
    """Exactly the poisoned records are missing, and exactly they are set aside, each with its error."""
    entries = set_aside(tmp_path)
    assert written(tmp_path) == [number for number in range(count) if number not in poisons]
    assert {number: entry["error"] for number, entry in entries.items()} == {
        number: ERRORS[poison] for number, poison in poisons.items()
    }
    for entry in entries.values():
        assert entry["id"]
        assert entry["source"]
        assert entry["position"] is not None
        assert entry["attempts"] >= 1


STAGES = {
    "fused": (Poisoned, True),
    "unfused": (Poisoned, False),
    "own-workers": (OwnWorkers, True),
    "generator": (FansOut, True),
}


@pytest.mark.parametrize("shape", STAGES)
@pytest.mark.parametrize("poison", ["segfault", "kill", "exit"])
def test_a_record_that_crashes_its_worker_is_set_aside_and_all_others_are_written(
    tmp_path: Path, shape: str, poison: str
) -> None:
    stage, fusion = STAGES[shape]
    poisons = {17: poison, 40: "error", 41: "exit 0" if poison == "exit" else poison, 250: poison}
    write_input(tmp_path / "in", poisons)
    run(tmp_path, stage(), fusion=fusion)
    check(tmp_path, poisons)


@pytest.mark.parametrize("poison", ["hang", "deaf", "hang in C"])
def test_a_record_that_hangs_its_worker_is_set_aside_after_its_time(tmp_path: Path, poison: str) -> None:
    poisons = {100: poison}
    write_input(tmp_path / "in", poisons)
    run(tmp_path, Poisoned(timeout_s=0.5))
    check(tmp_path, poisons)
    assert "timeout_s" in set_aside(tmp_path)[100]["message"]


def test_a_stage_with_workers_of_its_own_that_hangs_is_found_too(tmp_path: Path) -> None:
    poisons = {100: "hang", 200: "segfault"}
    write_input(tmp_path / "in", poisons)
    run(tmp_path, OwnWorkers(timeout_s=0.5))
    check(tmp_path, poisons)


def test_records_of_a_stream_are_isolated(tmp_path: Path) -> None:
    poisons = {5: "segfault", 120: "segfault", 260: "kill"}
    write_input(tmp_path / "in", poisons, packed=True)
    run(tmp_path, Poisoned(), blocksize="2kB")
    check(tmp_path, poisons)


def test_records_that_crash_only_together_are_all_written(tmp_path: Path) -> None:
    write_input(tmp_path / "in", {}, 2000)
    result = run(tmp_path, OnlyTogether(), blocksize="2kB")
    check(tmp_path, {}, 2000)
    entry = next(stage for stage in result.stages if stage["name"] == "only_together")
    assert entry["split_to"] == 1


@pytest.mark.parametrize("poison", ["segfault", "kill"])
def test_a_task_that_crashes_a_call_for_several_is_set_aside_alone(poison: str) -> None:
    tasks = [Task(data=(number, poison if number in (3, 21) else "")) for number in range(40)]
    result = Pipeline("grouped", stages=[Grouped()]).run(
        LocalExecutor(workers=2), initial_tasks=tasks, progress="none", max_errors="100%"
    )
    assert sorted(task.data[0] for task in result) == [number for number in range(40) if number not in (3, 21)]
    assert result.to_dict()["quarantine_reasons"] == {f"grouped/{ERRORS[poison]}": 2}


def test_a_batch_that_may_not_be_cut_is_set_aside_as_a_whole(tmp_path: Path) -> None:
    write_input(tmp_path / "in", {17: "segfault"})
    run(tmp_path, NotByRows())
    assert written(tmp_path) == list(range(150, 300))
    assert sorted(set_aside(tmp_path)) == list(range(150))


@pytest.mark.slow
@pytest.mark.timeout(900)  # 40 workers are started: that takes minutes beside other work on all cores
def test_a_thousand_poisoned_records_among_a_hundred_thousand(tmp_path: Path) -> None:
    chance = random.Random(4)
    numbers = chance.sample(range(100_000), 1000)
    poisons = dict.fromkeys(numbers[20:], "error") | dict.fromkeys(numbers[:20], "segfault")
    write_input(tmp_path / "in", poisons, 100_000, files=4)
    run(tmp_path, Poisoned(), blocksize="1MB", max_errors="5%")
    check(tmp_path, poisons, 100_000)


def test_too_many_crashes_stop_the_run_and_the_reasons_are_told_with_an_example(tmp_path: Path) -> None:
    poisons = dict.fromkeys(range(0, 300, 20), "segfault") | dict.fromkeys(range(1, 300, 20), "error")
    write_input(tmp_path / "in", poisons)
    with pytest.raises(TooManyErrorsError) as stopped:
        run(tmp_path, Poisoned(), max_errors=5)
    text = str(stopped.value)
    assert "max_errors is 5" in text
    assert "poisoned/worker-crashed, such as " in text
    assert "SIGSEGV" in text
    assert stopped.value.exit_code == 3


class CrashingReader(JsonlReader):
    """Crashes while it parses."""

    def parse(self, task: Task) -> DocumentBatch:
        segfault()
        return super().parse(task)


class CrashingWriter(JsonlWriter):
    """Crashes when it should begin to write."""

    def open_writer(self, local_path: str) -> Any:
        segfault()
        return super().open_writer(local_path)


@pytest.mark.parametrize("at", ["reader", "writer"])
def test_a_reader_or_writer_that_crashes_fails_the_run_and_the_place_is_named(tmp_path: Path, at: str) -> None:
    write_input(tmp_path / "in", {}, files=1)
    reader = (CrashingReader if at == "reader" else JsonlReader)(str(tmp_path / "in"))
    writer = (CrashingWriter if at == "writer" else JsonlWriter)(str(tmp_path / "out"))
    with pytest.raises(RunFailedError) as failed:
        Pipeline("crash", stages=[reader, Poisoned(), writer]).run(LocalExecutor(workers=2), progress="none")
    text = str(failed.value)
    assert "SIGSEGV" in text
    assert "0.jsonl" in text
    assert ("from byte 0 on" if at == "reader" else "wrote records from") in text
    assert not list((tmp_path / "out").glob("*.jsonl"))
