# SPDX-License-Identifier: Apache-2.0
"""The memory promise in whole runs with real processes."""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.memory_room import memory_beside_this_process
from thresher import (
    DocumentBatch,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Modify,
    Pipeline,
    ProcessingStage,
    ScoreFilter,
    WordCountFilter,
)
from thresher.errors import UsageError

LONG_WORD = "sieve" * 100 + " "


@pytest.fixture
def memory() -> int:
    """The limit of a run: as if its driver were of ordinary size."""
    return memory_beside_this_process(700 * 10**6)


class RunsOut(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Stands for a model that holds ten documents at a time and cannot hold the one with the number 13."""

    name = "runs_out"

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if len(task) > 10 or 13 in task.values("number"):
            raise MemoryError
        return task


class ManyOfOne(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes many batches of every document."""

    name = "many"
    fans_out = True

    def process(self, task: DocumentBatch) -> Generator[DocumentBatch]:
        for text in task.values("text"):
            for number in range(2000):
                yield DocumentBatch([{"text": text, "number": number}])


def write_lines(path: Path, texts: list[str]) -> None:
    """A file of records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"number": number, "text": text}) + "\n")


def records(paths: list[str]) -> list[dict[str, Any]]:
    """What was written."""
    return [json.loads(line) for path in paths for line in Path(path).read_bytes().splitlines()]


def swap_first(text: str) -> str:
    """A change to every text."""
    return text[:1].swapcase() + text[1:]


def test_records_up_to_a_sixteenth_of_the_memory_are_worked_on_within_it(tmp_path: Path, memory: int) -> None:
    largest = memory // 16
    for file in range(2):
        large = LONG_WORD * (largest // len(LONG_WORD) - 1)
        write_lines(tmp_path / "in" / f"{file}.jsonl", ["small words", large, "more words"])
    stages: list[Any] = [ScoreFilter(WordCountFilter(1, 10**9)), Modify(swap_first)]
    pipeline = Pipeline(
        "large", stages=[JsonlReader(str(tmp_path / "in")), *stages, JsonlWriter(str(tmp_path / "out"))]
    )
    result = pipeline.run(LocalExecutor(workers=2, memory=memory), progress="none")
    assert result.counts["written"] == 6
    assert result.peak_memory_bytes <= memory
    assert (
        sorted(len(record["text"]) for record in records(result.output_paths))[-2:]
        == [len(LONG_WORD) * (largest // len(LONG_WORD) - 1)] * 2
    )


def test_a_larger_record_is_set_aside_with_its_reason(tmp_path: Path, memory: int) -> None:
    write_lines(tmp_path / "in" / "0.jsonl", ["small", "x" * (memory // 16 + 1), "small too"])
    pipeline = Pipeline("too-large", stages=[JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.run(LocalExecutor(workers=2, memory=memory), progress="none", max_errors="100%")
    assert (result.counts["written"], result.counts["quarantined"]) == (2, 1)
    assert result.to_dict()["quarantine_reasons"] == {"JsonlReader/record-too-large": 1}


def test_a_stage_that_runs_out_of_memory_gets_less_and_only_the_record_that_never_fits_is_set_aside(
    tmp_path: Path,
) -> None:
    write_lines(tmp_path / "in" / "0.jsonl", [f"text {number}" for number in range(100)])
    stages: list[Any] = [JsonlReader(str(tmp_path / "in")), RunsOut(), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("splits", stages=stages).run(LocalExecutor(workers=2), progress="none", max_errors="100%")
    assert (result.counts["written"], result.counts["quarantined"]) == (99, 1)
    entry = next(stage for stage in result.stages if stage["name"] == "runs_out")
    assert entry["splits"] > 0
    assert entry["split_to"] == 1
    assert result.to_dict()["quarantine_reasons"] == {"runs_out/out-of-memory": 1}
    assert [record["number"] for record in records(result.output_paths)] == [
        number for number in range(100) if number != 13
    ]


def test_a_fan_out_far_beyond_the_memory_stays_within_it(tmp_path: Path, memory: int) -> None:
    write_lines(tmp_path / "in" / "0.jsonl", ["x" * 500_000, "y" * 500_000])
    stages: list[Any] = [JsonlReader(str(tmp_path / "in")), ManyOfOne(), ScoreFilter(WordCountFilter(2))]
    result = Pipeline("many", stages=[*stages, JsonlWriter(str(tmp_path / "out"))]).run(
        LocalExecutor(workers=2, memory=memory), progress="none"
    )
    assert result.counts["dropped"] == 4000
    assert result.peak_memory_bytes <= memory


def test_memory_below_the_floor_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "0.jsonl", ["text"])
    pipeline = Pipeline("small", stages=[JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(UsageError, match=r"memory: 500\.0 MB is below the .* that this plan needs with 64 workers"):
        pipeline.run(LocalExecutor(workers=64, memory="500MB"), progress="none")
    assert not (tmp_path / "out").exists()
