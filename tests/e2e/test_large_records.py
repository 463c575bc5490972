# SPDX-License-Identifier: Apache-2.0
"""A large record that fails is kept in a file beside its entry in the quarantine, from the run to its retry."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thresher import DocumentBatch, JsonlReader, JsonlWriter, Pipeline, ProcessingStage, SerialExecutor
from thresher.cli.main import main
from thresher.inspect.audit import audit_run
from thresher.inspect.retry import RetryOptions, retry_run
from thresher.ledger.folder.find import read_quarantine
from thresher.ledger.quarantine import LARGE_BYTES
from thresher.ledger.stores.store import open_store
from thresher.stages.io.finished_files import count_records_in

SIZES = {"small": 10, "large": 3 * LARGE_BYTES, "larger": 4 * LARGE_BYTES}
LINES = [json.dumps({"n": name, "text": name[0] * size}).encode() for name, size in SIZES.items()]


class Fragile(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Fails on all records but the small one, until a file is there."""

    name = "fragile"
    max_attempts = 1

    def __init__(self, mended: str, always: tuple[str, ...] = ()) -> None:
        self.mended, self.always = mended, always

    def process(self, task: DocumentBatch) -> DocumentBatch:
        mended = Path(self.mended).exists()
        bad = [n for n in task.values("n") if n in self.always or (n != "small" and not mended)]
        if bad:
            raise ValueError(f"cannot work on {bad[0]}")
        return task


class Parts(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Makes two new records of each one."""

    name = "parts"

    def process(self, task: DocumentBatch) -> Iterator[DocumentBatch]:
        for name, text in zip(task.values("n"), task.values("text"), strict=True):
            yield DocumentBatch([{"n": name, "text": text}, {"n": "small", "text": ""}])


class Place:
    """A folder with an input, and an output, which may be in a bucket."""

    def __init__(self, folder: Path, output: str, options: dict[str, Any]) -> None:
        self.folder, self.output, self.options = folder, output, options
        self.run_dir = f"{output}/_thresher"
        self.store = open_store(self.run_dir, options)
        self.mended = folder / "mended"
        (folder / "in").mkdir()
        (folder / "in/a.jsonl").write_bytes(b"".join(line + b"\n" for line in LINES))

    def pipeline(self, *stages: Any, always: tuple[str, ...] = ()) -> Pipeline:
        reader = JsonlReader(str(self.folder / "in"))
        writer = JsonlWriter(self.output, storage_options=self.options or None)
        return Pipeline("large", stages=[reader, *stages, Fragile(str(self.mended), always), writer])

    def run(self, pipeline: Pipeline, **options: Any) -> Any:
        return pipeline.run(SerialExecutor(), progress="none", max_errors="100%", **options)

    def differences(self) -> list[str]:
        return audit_run(self.run_dir, self.options, count_records_in, lambda *_: None).differences

    def entries(self) -> list[Any]:
        return list(read_quarantine(self.run_dir, self.options))

    def record_files(self) -> list[str]:
        return [name for name in self.store.sizes("quarantine") if name.endswith(".bin")]


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.s3)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place(tmp_path, str(tmp_path / "out"), {})
    bucket, options = request.getfixturevalue("bucket"), request.getfixturevalue("s3_options")
    return Place(tmp_path, f"s3://{bucket}/out", options)


def test_large_records_are_kept_in_files_and_retried(place: Place) -> None:
    pipeline = place.pipeline(always=("larger",))
    place.run(pipeline)

    entries = place.entries()
    assert [entry.line for entry in entries] == LINES[1:]
    (unit,) = {entry.record_file.path.partition("/")[0] for entry in entries}
    assert [entry.record_file.path for entry in entries] == [f"{unit}/1.bin", f"{unit}/2.bin"]
    facts = [(entry.record_file.bytes, entry.record_file.sha256) for entry in entries]
    assert facts == [(len(line), hashlib.sha256(line).hexdigest()) for line in LINES[1:]]
    lines = (place.store.read(f"quarantine/{unit}.jsonl") or b"").splitlines()
    assert all(len(line) < 5000 and "record" not in json.loads(line) for line in lines)
    assert place.differences() == []

    place.mended.touch()
    result = retry_run(SerialExecutor(), pipeline, place.run_dir, RetryOptions(place.options, progress="none"))

    assert (result.tried, result.left) == (2, 1)
    (entry,) = place.entries()
    assert (entry.record_file.path, entry.line, entry.attempts) == (f"{unit}-retry-1/1.bin", LINES[2], 2)
    assert sorted(place.record_files()) == [
        f"{unit}-retry-1/1.bin",
        f"retried/{unit}/1.bin",
        f"retried/{unit}/2.bin",
    ]
    assert place.differences() == []


def test_a_large_record_that_a_stage_made_is_restored_from_its_file(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path / "out"), {})
    pipeline = place.pipeline(Parts())
    place.run(pipeline)
    assert [entry.is_child for entry in place.entries()] == [True, True]
    assert len(place.record_files()) == 2

    place.mended.touch()
    result = retry_run(SerialExecutor(), pipeline, place.run_dir, RetryOptions(progress="none"))

    assert (result.tried, result.left) == (2, 0)
    written = [json.loads(line) for path in tmp_path.glob("out/*.jsonl") for line in path.read_bytes().splitlines()]
    sizes = {entry["n"]: len(entry["text"]) for entry in written}
    assert (len(written), sizes["large"], sizes["larger"]) == (6, SIZES["large"], SIZES["larger"])
    assert place.differences() == []


def test_a_large_record_that_cannot_be_retried_stays_with_its_file(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path / "out"), {})
    pipeline = place.pipeline()
    place.run(pipeline)
    (path,) = tmp_path.glob("out/_thresher/quarantine/*.jsonl")
    first, second = path.read_text().splitlines()
    path.write_text(f"{json.dumps(json.loads(first) | {'stage': 'another'})}\n{second}\n".replace(": ", ":"))
    place.mended.touch()

    result = retry_run(SerialExecutor(), pipeline, place.run_dir, RetryOptions(progress="none"))

    assert (result.tried, result.skipped) == (1, 1)
    (entry,) = place.entries()
    assert (entry.stage, entry.line) == ("another", LINES[1])


def test_the_files_of_large_records_are_shown_and_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path, str(tmp_path / "out"), {})
    place.run(place.pipeline())
    (first, second) = sorted(tmp_path.glob("out/_thresher/quarantine/*/*.bin"))

    assert main(["quarantine", place.output]) == 0
    assert f"quarantine/{first.parent.name}/1.bin, {len(LINES[1]):,} bytes" in capsys.readouterr().out
    assert main(["quarantine", place.output, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["entries"][0]
    assert (shown["record"], shown["record_file"]["bytes"]) == (None, len(LINES[1]))
    assert main(["why", place.output, shown["id"]]) == 0
    assert "quarantined by fragile" in capsys.readouterr().out

    first.write_bytes(b"something else")
    second.unlink()
    changed, missing = place.differences()
    assert (f"{first.parent.name}/1.bin has 14 bytes" in changed, "2.bin is missing" in missing) == (True, True)


def test_a_run_that_starts_over_leaves_no_file_of_a_large_record(tmp_path: Path) -> None:
    place = Place(tmp_path, str(tmp_path / "out"), {})
    place.run(place.pipeline())
    place.mended.touch()
    place.run(place.pipeline(), fresh=True)

    assert place.record_files() == []
    assert len(list(tmp_path.glob("out/_thresher/old/*/quarantine/*/*.bin"))) == 2
    assert place.differences() == []
