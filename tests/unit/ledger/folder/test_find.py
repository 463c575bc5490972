# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.ledger.runs import request, units, whole_run
from thresher.errors import UsageError
from thresher.ledger.folder.find import find_run, read_commits, read_json, read_manifest, read_run, read_units
from thresher.ledger.folder.opening import open_run


def test_a_run_is_found_by_its_folder_and_by_its_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = whole_run(request(tmp_path / "out"))
    monkeypatch.chdir(tmp_path)

    assert find_run(str(tmp_path / "out/_thresher")) == run.run_dir
    assert find_run("out") == run.run_dir
    assert find_run("out/") == run.run_dir


def test_a_run_without_output_is_found_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    run = open_run(request("", sink_path=None))
    run.finish("finished", 0)

    assert find_run(run.run_id) == run.run_dir
    with pytest.raises(UsageError, match=f"Did you mean '{run.run_id}'"):
        find_run(run.run_id[:-1] + "x")


def test_what_is_no_run_is_refused_with_what_would_be_one(tmp_path: Path):
    with pytest.raises(UsageError) as refused:
        find_run(str(tmp_path / "nothing"))

    for text in ("nothing", "run.json", "_thresher/", "run id"):
        assert text in str(refused.value)


def test_an_appended_run_is_found_when_it_is_the_only_one_left(tmp_path: Path):
    out = tmp_path / "out"
    whole_run(request(out))
    appended = whole_run(request(out, mode="append", fingerprint={"version": "9"}))
    (out / "_thresher" / "run.json").unlink()

    assert find_run(str(out)) == appended.run_dir


def test_what_a_run_left_can_be_read(tmp_path: Path):
    run = open_run(request(tmp_path / "out"))
    run.write_json("report.json", {"counts": {"read": 3}})
    run.finish("finished", 0)
    run = whole_run(request(tmp_path / "out"), 3)

    assert read_run(run.run_dir).run_id == run.run_id
    assert read_json(run.run_dir, "report.json") == {"counts": {"read": 3}}
    assert read_json(run.run_dir, "missing.json") is None
    assert [record.unit for record in read_commits(run.run_dir)] == [unit.id for unit in units(3)]
    assert read_units(run.run_dir) == units(3)
    assert len(read_manifest(run.run_dir)) == 3
