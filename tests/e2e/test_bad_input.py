# SPDX-License-Identifier: Apache-2.0
"""Whole runs over what goes wrong in real life: a clear message or a record set aside, never a bare traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.memory_room import memory_beside_this_process
from thresher import JsonlReader, JsonlWriter, LocalExecutor, ParquetReader, Pipeline, ScoreFilter, WordCountFilter
from thresher.core.tally import counts_add_up
from thresher.errors import InputError, PlanError, RunFailedError, ThresherError, TooManyErrorsError

HOSTILE = Path(__file__).parents[3] / "shared" / "data" / "hostile"
needs_hostile = pytest.mark.skipif(not HOSTILE.is_dir(), reason="the collection of hostile files is not here")


def quarantine_of(out: Path) -> list[dict[str, Any]]:
    files = sorted((out / "_thresher" / "quarantine").glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@needs_hostile
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_folder_of_hostile_files_is_read_to_its_end(tmp_path: Path, kind: str) -> None:
    reader: Any = JsonlReader if kind == "jsonl" else ParquetReader
    out = tmp_path / "out"
    pipeline = Pipeline("hostile", stages=[reader(str(HOSTILE)), JsonlWriter(str(out))])
    result = pipeline.run(
        LocalExecutor(workers=2, memory=memory_beside_this_process(1500 * 10**6)), progress="none", max_errors="100%"
    )
    entries = quarantine_of(out)
    assert counts_add_up(result.counts)
    assert sum(entry.get("records", 1) or 1 for entry in entries) == result.counts["quarantined"] > 5
    for entry in entries:
        assert entry["id"], entry
        assert entry["source"], entry
        assert entry["position"] is not None, entry
        assert entry["error"], entry
        assert entry["message"], entry
        assert entry["stage"] == reader.__name__, entry


@needs_hostile
def test_records_of_the_wrong_type_are_set_aside_by_the_rule_that_needs_them(tmp_path: Path) -> None:
    out = tmp_path / "out"
    stages = [JsonlReader(str(HOSTILE / "wrong_types.jsonl")), ScoreFilter(WordCountFilter(0)), JsonlWriter(str(out))]
    result = Pipeline("types", stages=stages).run(LocalExecutor(workers=1), progress="none", max_errors="100%")
    assert result.counts["written"] == 12
    assert {entry["error"] for entry in quarantine_of(out)} == {"field-missing", "not-a-string"}


def test_a_record_too_large_for_the_memory_is_set_aside_and_one_below_is_processed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    with open(tmp_path / "in" / "a.jsonl", "w") as file:
        file.write('{"id": 1, "text": "before"}\n{"id": "huge", "text": "')
        file.writelines("lorem ipsum " * 87382 for _ in range(100))
        file.write('"}\n{"id": "large", "text": "' + "dolor " * 5_000_000 + '"}\n{"id": 2, "text": "after"}\n')
    out = tmp_path / "out"
    recipe = {"name": "huge", "stages": [{"JsonlReader": {"file_paths": str(tmp_path / "in")}}]}
    recipe["stages"].append({"JsonlWriter": {"path": str(out)}})
    (tmp_path / "huge.yaml").write_text(json.dumps(recipe))
    # A process of its own: the memory of the one that runs the tests would count.
    command = ["run", str(tmp_path / "huge.yaml"), "--workers", "2", "--memory", "1GB", "--quiet"]
    subprocess.run([sys.executable, "-m", "thresher", *command], check=True, timeout=100)
    report = json.loads((out / "_thresher" / "report.json").read_text())
    assert report["counts"]["written"] == 3
    (entry,) = quarantine_of(out)
    assert entry["error"] == "record-too-large"
    assert entry["position"] == 28
    assert report["peak_memory_bytes"] < 10**9


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_input_that_is_not_there_is_refused_before_anything_is_made(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    pipeline = Pipeline("nothing", stages=[JsonlReader(str(tmp_path / name)), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(InputError, match=name):
        pipeline.run(LocalExecutor(workers=1), progress="none")
    assert not (tmp_path / "out").exists()


def test_an_empty_file_is_no_error_and_gives_no_output(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").touch()
    pipeline = Pipeline("empty", stages=[JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    result = pipeline.run(LocalExecutor(workers=1), progress="none")
    assert (result.status, result.counts["read"], result.output_paths) == ("finished", 0, [])


def test_input_of_which_nothing_can_be_read_ends_with_exit_code_3(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text("no\njson\n")
    pipeline = Pipeline("junk", stages=[JsonlReader(str(tmp_path / "in")), JsonlWriter(str(tmp_path / "out"))])
    with pytest.raises(TooManyErrorsError, match="no input could be read: 2 JsonlReader/not-json"):
        pipeline.run(LocalExecutor(workers=1), progress="none")


@pytest.mark.parametrize(("source", "target"), [("in", "in/out"), ("in", "in"), ("out/in", "out")])
def test_an_output_among_the_input_is_refused(tmp_path: Path, source: str, target: str) -> None:
    folder = tmp_path / source
    folder.mkdir(parents=True)
    (folder / "a.jsonl").write_text('{"text": "x"}\n')
    pipeline = Pipeline("nested", stages=[JsonlReader(str(folder)), JsonlWriter(str(tmp_path / target))])
    with pytest.raises(PlanError):
        pipeline.run(LocalExecutor(workers=1), progress="none")
    assert [path.name for path in folder.iterdir()] == ["a.jsonl"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_with_its_name_and_the_same_command_goes_on(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": n, "text": "word " * 200}) for n in range(5000)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    pipeline = Pipeline(
        "full", stages=[JsonlReader(str(tmp_path / "in"), blocksize="500kB"), JsonlWriter(str(small_disk / "out"))]
    )
    with pytest.raises(RunFailedError, match=r"(?i)disk|space") as caught:
        pipeline.run(LocalExecutor(workers=2), progress="none")
    assert str(small_disk) in str(caught.value)
    assert isinstance(caught.value, ThresherError)
    subprocess.run(["mount", "-o", "remount,size=40m", str(small_disk)], check=True)
    result = pipeline.run(LocalExecutor(workers=2), progress="none")
    written = [line for path in result.output_paths for line in Path(path).read_text().splitlines()]
    assert written == lines
