# SPDX-License-Identifier: Apache-2.0
"""Documents that were split are joined again, whatever lies between: batches, units, workers, failures."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thresher import (
    DocumentBatch,
    DocumentJoiner,
    DocumentSplitter,
    JsonlReader,
    JsonlWriter,
    LocalExecutor,
    Modify,
    Pipeline,
    ProcessingStage,
    ScoreFilter,
    SerialExecutor,
    WordCountFilter,
)
from thresher.cli.main import main

EXECUTORS = {
    "local": lambda: LocalExecutor(workers=2),
    "serial": SerialExecutor,
    "serial, nothing fused": lambda: SerialExecutor(fusion=False),
    "serial, stage after stage": lambda: SerialExecutor(execution_mode="batch"),
}
DOCUMENTS = [
    {
        "id": f"d{number}",
        "text": "\n".join(f"line {number} {k} {'x' * (k * 7 % 50)}" for k in range(number % 40 + 1)),
        "n": number,
    }
    for number in range(3000)
]
DOCUMENTS[7]["text"] = "\n".join("y" * 1000 for _ in range(5000))  # larger than a batch
LINES = [json.dumps(document) for document in DOCUMENTS]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    (folder / "a.jsonl").write_text("\n".join(LINES) + "\n")
    return folder


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streamed")
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(("\n".join(LINES) + "\n").encode(), 1))
    return folder


def written_lines(folder: Path) -> list[str]:
    files = sorted(name for name in os.listdir(folder) if name.endswith(".jsonl"))
    return [line for name in files for line in (folder / name).read_text().splitlines()]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("kind", ["plain", "streamed"])
def test_what_was_split_is_joined_to_the_same_lines(
    executor: str, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    stages = [
        JsonlReader(str(request.getfixturevalue(kind)), blocksize="2MB"),
        DocumentSplitter("\n"),
        DocumentJoiner("\n"),
    ]
    result = Pipeline("p", stages=[*stages, JsonlWriter(str(tmp_path / "out"))]).run(
        EXECUTORS[executor](), progress="none"
    )
    assert written_lines(tmp_path / "out") == LINES
    assert result.units_total > 2
    segments = sum(document["text"].count("\n") + 1 for document in DOCUMENTS)
    counts = {"read": 3000, "created": segments, "merged": segments, "written": 3000, "dropped": 0, "quarantined": 0}
    assert result.counts == counts
    assert result.stages[2]["in_docs"] == segments
    assert result.stages[2]["out_docs"] == result.stages[3]["in_docs"] == 3000


def test_stages_between_and_behind_see_segments_and_documents(plain: Path, tmp_path: Path) -> None:
    stages = [
        JsonlReader(str(plain), blocksize="2MB"),
        DocumentSplitter("\n"),
        ScoreFilter(WordCountFilter(min_words=4)),
        Modify(str.upper),
        DocumentJoiner(" / "),
        Modify(str.lower),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("p", stages=stages).run(LocalExecutor(workers=2), progress="none")
    expected = []
    for document in DOCUMENTS:
        kept = [line for line in document["text"].split("\n") if len(line.split()) >= 4]
        expected += [{**document, "text": " / ".join(kept)}] if kept else []
    assert [json.loads(line) for line in written_lines(tmp_path / "out")] == expected
    assert main(["audit", str(tmp_path / "out")]) == 0
    assert result.counts["dropped"] > 0


def test_segments_in_files_are_joined_over_the_ends_of_batches(plain: Path, tmp_path: Path) -> None:
    split = [JsonlReader(str(plain)), DocumentSplitter("\n"), JsonlWriter(str(tmp_path / "segments"))]
    Pipeline("split", stages=split).run(SerialExecutor(), progress="none")
    reader = JsonlReader(str(tmp_path / "segments"), files_per_partition=1)
    join = [reader, DocumentJoiner("\n"), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("join", stages=join).run(LocalExecutor(workers=2), progress="none")
    assert written_lines(tmp_path / "out") == LINES
    assert (result.counts["created"], result.counts["written"]) == (0, 3000)


class FailsOnce(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails in the middle of a batch, after half of it has gone on, until a file is there."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        half = len(task) // 2
        yield task.take(range(half))
        if not os.path.exists(self.mark):
            Path(self.mark).touch()
            raise RuntimeError("once")
        yield task.take(range(half, len(task)))


@pytest.mark.parametrize("executor", ["local", "serial"])
def test_a_unit_that_starts_again_joins_from_its_beginning(executor: str, plain: Path, tmp_path: Path) -> None:
    stages: list[Any] = [
        JsonlReader(str(plain), blocksize="2MB"),
        DocumentSplitter("\n"),
        FailsOnce(str(tmp_path / "mark")),
        DocumentJoiner("\n"),
        JsonlWriter(str(tmp_path / "out")),
    ]
    result = Pipeline("p", stages=stages).run(EXECUTORS[executor](), progress="none")
    assert os.path.exists(tmp_path / "mark")
    assert written_lines(tmp_path / "out") == LINES
    assert result.counts["quarantined"] == 0
