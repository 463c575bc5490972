# SPDX-License-Identifier: Apache-2.0
"""Output and run folder behind a URL, on a real server on loopback."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ledger.runs import commit, commit_all, lines_of, request, units, whole_run
from thresher.core.unit import Piece, Unit
from thresher.errors import OutputRefusedError, UsageError
from thresher.ledger.folder.find import find_run, read_commits, read_manifest, read_units
from thresher.ledger.folder.lock import Lease
from thresher.ledger.folder.opening import open_run
from thresher.ledger.records import CommitRecord, Journal, encode
from thresher.ledger.records import read_commits as read_journal
from thresher.ledger.stores.s3_store import S3Store
from thresher.ledger.stores.store import Owner, Store, open_store

pytestmark = pytest.mark.s3

PROJECT = Path(__file__).parents[3]


@pytest.fixture
def options(s3_options: dict[str, Any]) -> dict[str, Any]:
    return s3_options


@pytest.fixture
def url(bucket: str) -> str:
    return f"s3://{bucket}/out"


@pytest.fixture
def at_url(url: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return open_store(url, options)


def with_records(count: int) -> list[Unit]:
    return [unit for unit in units(count) if lines_of(unit)]


def test_a_run_behind_a_url_leaves_what_a_local_one_leaves(at_url: Store, options: dict[str, Any], tmp_path: Path):
    run = open_run(request(at_url.root, storage_options=options, plan={"n": 1}))
    folder = run.event_folder()
    assert folder is not None
    Path(folder, "000000.jsonl.zst").write_bytes(b"events")
    commit_all(run, units(5))
    run.finish("finished", 0)

    assert [name for name in at_url.names() if not name.startswith("_")] == [f"a-{u.id}.jsonl" for u in with_records(5)]
    assert at_url.read(f"a-{units(1)[0].id}.jsonl") == b"".join(line + b"\n" for line in lines_of(units(1)[0]))
    assert run.run_dir == find_run(at_url.root, options) == f"{at_url.root}/_thresher"
    assert [record.unit for record in read_commits(run.run_dir, options)] == [unit.id for unit in units(5)]
    assert len(read_manifest(run.run_dir, options)) == len(with_records(5))
    assert read_units(run.run_dir, options) == units(5)
    assert at_url.read("_thresher/events/001/000000.jsonl.zst") == b"events"
    assert at_url.read(f"_thresher/quarantine/{units(1)[0].id}.jsonl") is not None
    assert at_url.names("_thresher/ledger/inbox") == []
    assert os.listdir(tmp_path) == [], "no local file is left"


def test_a_run_behind_a_url_goes_on(at_url: Store, options: dict[str, Any]):
    asked = request(at_url.root, storage_options=options)
    run = open_run(asked)
    for unit in units(3):
        commit(run, unit)
    run.fold(units(3)[0].id)
    run.abandon(130)
    again = open_run(asked)

    assert sorted(again.committed) == [unit.id for unit in units(3)], "also what lay in the inbox"
    assert again.attempt == 2
    commit_all(again, units(5))
    again.finish("finished", 0)
    assert [line.units[0] for line in read_manifest(again.run_dir, options)] == [unit.id for unit in with_records(5)]


def test_files_of_a_target_size_are_joined_behind_a_url(at_url: Store, options: dict[str, Any], tmp_path: Path):
    run = whole_run(request(at_url.root, storage_options=options, target_file_size=10_000), 5)

    (line,) = read_manifest(run.run_dir, options)
    assert line.units == tuple(unit.id for unit in with_records(5))
    assert at_url.read(line.path) == b"".join(row + b"\n" for unit in units(5) for row in lines_of(unit))
    assert at_url.names("_thresher/parts") == []
    assert os.listdir(tmp_path) == []


def test_a_foreign_object_is_not_overwritten(at_url: Store, options: dict[str, Any]):
    at_url.write("other.jsonl", b"{}\n")

    with pytest.raises(OutputRefusedError, match=r"other\.jsonl"):
        open_run(request(at_url.root, storage_options=options))
    assert at_url.names() == ["other.jsonl"]

    whole_run(request(at_url.root, storage_options=options, mode="overwrite"), 1)
    assert at_url.names() == ["_thresher/", f"a-{units(1)[0].id}.jsonl"]


def test_starting_over_behind_a_url_replaces_the_old_files(at_url: Store, options: dict[str, Any]):
    old = whole_run(request(at_url.root, storage_options=options), 3)
    whole_run(request(at_url.root, storage_options=options, fresh=True), 1)

    assert at_url.names() == ["_thresher/", f"a-{units(1)[0].id}.jsonl"]
    assert "run.json" in at_url.names(f"_thresher/old/{old.run_id}")


def test_a_live_run_behind_a_url_is_respected(at_url: Store, options: dict[str, Any]):
    run = open_run(request(at_url.root, storage_options=options))

    assert run._folder is not None
    assert isinstance(run._folder.lock, Lease)
    with pytest.raises(OutputRefusedError, match="in use by a live run"):
        open_run(request(at_url.root, storage_options=options))
    run.finish("finished", 0)
    open_run(request(at_url.root, storage_options=options)).finish("finished", 0)


def test_a_local_run_folder_may_serve_an_output_behind_a_url(at_url: Store, options: dict[str, Any], tmp_path: Path):
    run = whole_run(request(at_url.root, storage_options=options, run_dir=str(tmp_path / "run")), 1)

    assert at_url.names() == [f"a-{units(1)[0].id}.jsonl"]
    assert run.run_dir == str(tmp_path / "run")


def test_the_ledger_behind_a_url_is_numbered_objects_that_are_never_overwritten(at_url: Store):
    journal = Journal(at_url, [])
    journal.add(CommitRecord("u", 2))
    at_url.write("ledger/000001.jsonl", encode(CommitRecord("v", 1)) + b"\n")  # by a driver that was believed dead
    journal.sync()

    assert at_url.names("ledger") == ["000001.jsonl", "000002.jsonl"]
    assert sorted(read_journal(at_url)) == ["u", "v"]


def test_of_two_records_of_a_unit_the_newer_attempt_counts(at_url: Store):
    at_url.write("ledger/000001.jsonl", encode(CommitRecord("u", 2)) + b"\n")
    at_url.write("ledger/000002.jsonl", encode(CommitRecord("u", 1)) + b"\n")

    assert read_journal(at_url)["u"].attempt == 2


def test_a_driver_that_lost_its_lease_writes_nothing_more(at_url: Store, options: dict[str, Any]):
    asked = request(at_url.root, storage_options=options)
    late = open_run(asked)
    at_url.write("_thresher/lock", b"{}")  # as if its lease had ended
    newer = open_run(asked)
    before = at_url.read("_thresher/run.json")
    late._clock = lambda: 4_000_000_000.0
    commit(newer, units(1)[0])
    newer.fold(units(1)[0].id)

    with pytest.raises(OutputRefusedError, match="was taken by process"):
        late.sync()
    with pytest.raises(OutputRefusedError):
        late.write_json("report.json", {})
    late.abandon(4)
    assert at_url.read("_thresher/run.json") == before
    assert at_url.read("_thresher/report.json") is None
    newer.finish("finished", 0)


def test_a_store_without_conditions_is_used_with_a_warning(
    at_url: Store, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    def deaf(self: S3Store, name: str, data: bytes) -> None:
        self.write(name, data)

    monkeypatch.setattr(S3Store, "_create_once", deaf)
    run = open_run(request(at_url.root, storage_options=options))
    assert [text for text in run.warnings if "start one at a time" in text]
    assert not run.target.conditional
    commit_all(run, units(3))
    run.finish("finished", 0)
    assert len(read_manifest(run.run_dir, options)) == 3


def test_a_url_of_another_kind_works_without_a_bucket(tmp_path: Path):
    run = whole_run(request("memory://thresher-test/out"), 3)

    assert len(read_manifest(run.run_dir)) == 3
    assert run.target.conditional
    store = open_store("memory://thresher-test/out")
    store.write("theirs.jsonl", b"theirs")
    (tmp_path / "mine").write_bytes(b"mine")
    with pytest.raises(OutputRefusedError, match=r"that this run did not write"):
        store.put(str(tmp_path / "mine"), "theirs.jsonl", Owner("run", 1, hashlib.sha256(b"mine").hexdigest()))


def test_a_password_in_a_url_is_refused_for_outputs_and_hidden_in_the_list_of_units(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^ftp://host/out: the URL holds a password") as refused:
        open_run(request("ftp://me:hunter2@host/out"))
    assert "hunter2" not in str(refused.value)

    piece = Piece("ftp://me:hunter2@host/in/a.jsonl", "a.jsonl", 100, "1")
    run = open_run(request(tmp_path / "out"))
    run.record_units([Unit(units(1)[0].id, (0, 0), (piece,), "a")], last=True)
    run.finish("finished", 0)
    assert b"ftp://me:***@host/in/a.jsonl" in (tmp_path / "out/_thresher/units.jsonl").read_bytes()


STARTS = """
import sys
from tests.unit.ledger.runs import request
from thresher.errors import ThresherError
from thresher.ledger.folder.opening import open_run

url, endpoint = sys.argv[1:]
options = {"endpoint_url": endpoint, "key": "test", "secret": "test"}
print("ready", flush=True)
sys.stdin.readline()
try:
    run = open_run(request(url, storage_options=options))
except ThresherError as error:
    print(error, flush=True)
    sys.exit(error.exit_code)
print("won", flush=True)
sys.stdin.readline()
run.finish("finished", 0)
"""


def test_of_processes_that_start_in_the_same_moment_one_wins_and_the_others_end_with_4(
    url: str, options: dict[str, Any]
):
    command = [sys.executable, "-c", STARTS, url, options["endpoint_url"]]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, cwd=PROJECT, **pipes) for _ in range(3)]
    for process in processes:
        assert process.stdout.readline() == "ready\n"  # type: ignore[union-attr]  # pipes were asked for
    for process in processes:
        process.stdin.write("go\n")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
    said = {process.stdout.readline(): process for process in processes}  # type: ignore[union-attr]

    winner = said.pop("won\n")
    assert len(said) >= 1
    assert all(f"in use by a live run: process {winner.pid} on" in text for text in said)
    for process in processes:
        process.communicate("end\n" if process is winner else None, timeout=100)
    assert sorted(process.returncode for process in processes) == [0, 4, 4]
