# SPDX-License-Identifier: Apache-2.0
"""Whatever a stage raises is a failure of its record, on every executor; nothing of it ends the run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from thresher import DocumentBatch, JsonlReader, JsonlWriter, Pipeline, ProcessingStage, Task
from thresher.errors import RunFailedError


class Panic(BaseException):
    """As Rust code raises it."""


class Mute(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class CannotTravel(Exception):
    """Cannot be pickled, and not be made again from its arguments."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(lambda: first + second)


class Untidy:
    """Raises when it is collected."""

    def __del__(self) -> None:
        raise ValueError("in __del__")


def circle() -> BaseException:
    """An error that is its own cause in the end."""
    first, second = RuntimeError("first"), RuntimeError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def odd_syntax_error() -> BaseException:
    """An error that Python itself cannot show."""
    error = SyntaxError("odd")
    error.lineno, error.offset, error.text = "a", "b", 5  # type: ignore[assignment]  # that is what is odd
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "Panic": lambda: Panic("a bug in Rust"),
    "CancelledError": asyncio.CancelledError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(0),
    "Mute": Mute,
    "CannotTravel": lambda: CannotTravel(1, 2),
    "RuntimeError": circle,
    "SyntaxError": odd_syntax_error,
    "UnicodeError": lambda: UnicodeError("half a character: \ud800"),
}


class Raises(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Raises what a record names."""

    name = "raises"

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        Untidy()
        for name in batch.values("error"):
            if name:
                raise ERRORS[name]()
        return batch


class RaisesMidway(Raises):
    """Raises after it has given other records away."""

    def process(self, batch: DocumentBatch) -> Iterator[DocumentBatch]:  # type: ignore[override]  # a generator is as good
        for row in range(len(batch)):
            yield super().process(batch.take([row]))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # Untidy
@pytest.mark.parametrize("stage", [Raises, RaisesMidway])
def test_a_record_fails_alone_whatever_its_stage_raises(executor: Any, tmp_path: Path, stage: type[Raises]) -> None:
    (tmp_path / "in").mkdir()
    names = ["", *(name for error in ERRORS for name in (error, ""))]
    lines = [json.dumps({"number": number, "error": name}) for number, name in enumerate(names)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    stages = [JsonlReader(str(tmp_path / "in")), stage(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("failures", stages=stages).run(executor, progress="none", max_errors="100%")
    assert result.counts["written"] == len(ERRORS) + 1
    written = [json.loads(line) for path in result.output_paths for line in Path(path).read_text().splitlines()]
    assert [record["number"] for record in written] == [number for number, name in enumerate(names) if not name]
    folder = os.path.join(str(result.run_dir), "quarantine")
    entries = [json.loads(line) for path in Path(folder).glob("*.jsonl") for line in path.read_text().splitlines()]
    assert sorted(entry["error"] for entry in entries) == sorted(ERRORS)
    for entry in entries:
        assert json.loads(entry["record"])["error"] == entry["error"]
        assert entry["message"]
        assert entry["traceback"]


class MakesOddTexts(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes two records of each; of one it makes a text that is no Unicode."""

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        texts = ["\ud800" if number == 3 else "good" for number in batch.values("number") for _ in range(2)]
        return DocumentBatch([{"text": text} for text in texts])


class YieldsOddTexts(MakesOddTexts):
    """The same, with a generator."""

    def process(self, batch: DocumentBatch) -> Iterator[DocumentBatch]:  # type: ignore[override]  # a generator is as good
        yield super().process(batch)


class OddTextsByBatch(MakesOddTexts):
    """The same, in a list of another length than the one that was given."""

    def process_batch(self, tasks: list[DocumentBatch]) -> list[DocumentBatch]:
        return [made for task in tasks for made in (self.process(task), self.process(task))]


@pytest.mark.parametrize("stage", [MakesOddTexts, YieldsOddTexts, OddTextsByBatch])
def test_a_new_record_that_no_column_can_hold_fails_alone(
    executor: Any, tmp_path: Path, stage: type[MakesOddTexts]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("".join(f'{{"number": {number}}}\n' for number in range(6)))
    stages = [JsonlReader(str(tmp_path / "in")), stage(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("odd", stages=stages).run(executor, progress="none", max_errors="100%")
    assert result.counts["quarantined"] == 1
    assert result.counts["written"] == (20 if stage is OddTextsByBatch else 10)
    assert result.to_dict()["quarantine_reasons"] == {f"{stage().name}/TypeError": 1}


class Source(ProcessingStage[Task, DocumentBatch]):
    """Makes documents of tasks that are no batches."""

    def process(self, task: Task) -> DocumentBatch:
        return DocumentBatch([{"text": task.data}])


def test_a_document_made_of_a_task_that_no_column_can_hold_fails_alone(executor: Any, tmp_path: Path) -> None:
    tasks = [Task(data=text) for text in ("good", "\ud800", "good")]
    stages = [Source(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("odd", stages=stages).run(executor, initial_tasks=tasks, progress="none", max_errors="100%")
    assert (result.counts["written"], result.counts["quarantined"]) == (2, 1)
    assert result.to_dict()["quarantine_reasons"] == {"Source/TypeError": 1}


class Fragile(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Panics in the method that it is told."""

    def __init__(self, method: str) -> None:
        self.method = method

    def _reach(self, method: str) -> None:
        if method == self.method:
            raise Panic(f"in {method}")

    def setup_on_node(self, node_info: Any = None, worker_metadata: Any = None) -> None:
        self._reach("setup_on_node")

    def setup(self, worker_metadata: Any = None) -> None:
        self._reach("setup")

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        return batch

    def teardown(self) -> None:
        self._reach("teardown")


class FragileReader(JsonlReader):
    """Panics where it should parse."""

    def parse(self, task: Any) -> DocumentBatch:
        raise Panic("in parse")


class FragileWriter(JsonlWriter):
    """Panics where it should write."""

    def open_writer(self, local_path: str) -> Any:
        raise Panic("in open_writer")


def stages_of(tmp_path: Path, method: str) -> list[ProcessingStage[Any, Any]]:
    """Return stages of which one panics in `method`, and make their input."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"text": "a"}\n')
    reader = FragileReader if method == "parse" else JsonlReader
    writer = FragileWriter if method == "open_writer" else JsonlWriter
    return [reader(str(tmp_path / "in")), Fragile(method), writer(str(tmp_path / "out"))]


@pytest.mark.parametrize("method", ["setup_on_node", "setup", "parse", "open_writer"])
def test_where_no_record_is_at_fault_the_run_fails_and_says_where(executor: Any, tmp_path: Path, method: str) -> None:
    with pytest.raises(RunFailedError, match=f"Panic: in {method}"):
        Pipeline("fragile", stages=stages_of(tmp_path, method)).run(executor, progress="none")
    assert not list((tmp_path / "out").glob("*.jsonl"))


def test_a_teardown_that_raises_changes_nothing(executor: Any, tmp_path: Path) -> None:
    result = Pipeline("fragile", stages=stages_of(tmp_path, "teardown")).run(executor, progress="none")
    assert result.counts["written"] == 1
