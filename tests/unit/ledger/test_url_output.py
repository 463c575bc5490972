# SPDX-License-Identifier: Apache-2.0
"""Output and run folder behind a URL, on a real server on loopback."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ledger.runs import commit, commit_all, lines_of, request, units, whole_run
from thresher.core.unit import Unit
from thresher.errors import OutputRefusedError
from thresher.ledger.find import find_run, read_commits, read_manifest, read_units
from thresher.ledger.lock import Lease
from thresher.ledger.run import open_run
from thresher.ledger.store import Store, open_store

pytestmark = pytest.mark.s3


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
