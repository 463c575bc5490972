# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import errno
import hashlib
import json
import os
import pickle
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.core.json_batches import batch_of_lines
from tests.unit.ledger.runs import commit, lines_of, request, units
from thresher.core.tally import Tally
from thresher.errors import RunFailedError
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.folder.opening import open_run
from thresher.ledger.stores import store as stores
from thresher.ledger.unit_output import UnitOutput
from thresher.stages.io.jsonl.writer import JsonlWriter
from thresher.stages.io.parquet.writer import ParquetWriter

UNIT = units(1)[0]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[OpenRun]:
    opened = open_run(request(tmp_path / "out", dropped_to=str(tmp_path / "dropped")))
    yield opened
    opened.abandon(1)


def output_of(run: OpenRun, epoch: int = 0) -> UnitOutput:
    return UnitOutput(run.target, JsonlWriter("unused"), UNIT, epoch)


def visible(tmp_path: Path) -> list[str]:
    """What somebody sees who looks at the output, the dropped records and the quarantine."""
    folders = [tmp_path / "out", tmp_path / "dropped", tmp_path / "out/_thresher/quarantine"]
    return sorted(str(path.relative_to(tmp_path)) for folder in folders for path in folder.glob("*") if path.is_file())


def test_nothing_of_a_unit_is_visible_before_its_commit(tmp_path: Path, run: OpenRun):
    output = output_of(run)
    output.write(batch_of_lines([b'{"a": 1}']))
    output.quarantine([b"{}"])
    output.dropped([b"{}"])
    assert visible(tmp_path) == []

    output.commit(Tally(read=3, written=1))

    assert visible(tmp_path) == [
        f"dropped/a-{UNIT.id}.jsonl",
        f"out/_thresher/quarantine/{UNIT.id}.jsonl",
        f"out/a-{UNIT.id}.jsonl",
    ]
    assert os.listdir(run.target.tmp) == []


def test_the_record_describes_the_files(tmp_path: Path, run: OpenRun):
    record = commit(run, UNIT)

    for folder, (file,) in (("out", record.outputs), ("dropped", record.dropped_outputs)):
        content = (tmp_path / folder / file.path).read_bytes()
        assert file.bytes == len(content)
        assert file.records == content.count(b"\n")
        assert file.sha256 == hashlib.sha256(content).hexdigest()
    assert json.loads((tmp_path / f"out/_thresher/ledger/inbox/{UNIT.id}.json").read_text())["unit"] == UNIT.id


def test_lines_that_are_added_bit_by_bit_come_in_order(tmp_path: Path, run: OpenRun):
    output = output_of(run)
    for number in range(3):
        output.quarantine([b"%d" % number, b"-"])
        output.quarantine([])
    output.commit(Tally())

    assert (tmp_path / f"out/_thresher/quarantine/{UNIT.id}.jsonl").read_text().split() == [
        "0",
        "-",
        "1",
        "-",
        "2",
        "-",
    ]


def test_an_aborted_epoch_leaves_nothing(tmp_path: Path, run: OpenRun):
    output = output_of(run)
    output.write(batch_of_lines([b'{"a": 1}'] * 1000))
    output.quarantine([b"{}"])
    output.dropped([b"{}"])
    output.abort()

    assert visible(tmp_path) == []
    assert os.listdir(run.target.tmp) == []


def test_two_epochs_of_a_unit_do_not_touch_each_other(tmp_path: Path, run: OpenRun):
    old, new = output_of(run, 0), output_of(run, 1)
    old.write(batch_of_lines([b'{"epoch": 0}']))
    new.write(batch_of_lines([b'{"epoch": 1}']))
    old.abort()
    new.commit(Tally(read=1, written=1))

    assert (tmp_path / f"out/a-{UNIT.id}.jsonl").read_bytes() == b'{"epoch": 1}\n'


def test_a_unit_that_is_recorded_stays_as_it_is(tmp_path: Path, run: OpenRun):
    first = commit(run, UNIT)
    late = output_of(run, 1)
    late.write(batch_of_lines([b'{"late": true}']))

    assert late.commit(Tally(read=1, written=1)) == first
    assert (tmp_path / f"out/a-{UNIT.id}.jsonl").read_bytes() == b"".join(line + b"\n" for line in lines_of(UNIT))
    assert os.listdir(run.target.tmp) == []


def test_a_unit_without_records_has_no_file_even_if_a_crash_had_left_one(tmp_path: Path, run: OpenRun):
    (tmp_path / f"out/a-{UNIT.id}.jsonl").write_text("left by an attempt that died before it recorded the unit")

    record = output_of(run).commit(Tally(read=1))

    assert record.outputs == ()
    assert visible(tmp_path) == []


def test_the_place_travels_to_workers(run: OpenRun):
    assert pickle.loads(pickle.dumps(run.target)) == run.target


def fill(output: UnitOutput) -> None:
    """Write more than fits."""
    for number in range(2000):
        output.write(batch_of_lines([json.dumps({"n": number, "x": os.urandom(2000).hex()}).encode()]))
    output.commit(Tally())


@pytest.mark.parametrize("sink", [JsonlWriter("unused"), ParquetWriter("unused")], ids=["jsonl", "parquet"])
def test_an_output_that_cannot_grow_fails_with_its_path_and_what_to_do(tmp_path: Path, run: OpenRun, sink):
    output = UnitOutput(run.target, sink, UNIT, 0)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(RunFailedError) as failed:
            fill(output)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    output.abort()

    assert str(tmp_path / "out") in str(failed.value)
    assert "What is committed stays" in str(failed.value)
    assert os.listdir(run.target.tmp) == []


def test_an_output_on_another_file_system_is_copied_and_then_renamed(
    tmp_path: Path, run: OpenRun, monkeypatch: pytest.MonkeyPatch
):
    rename = os.replace

    def across(source: str, target: str) -> None:
        if os.path.dirname(source) == run.target.tmp:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    monkeypatch.setattr(stores.os, "replace", across)
    commit(run, UNIT)

    assert (tmp_path / f"out/a-{UNIT.id}.jsonl").read_bytes() == b"".join(line + b"\n" for line in lines_of(UNIT))
    assert sorted(os.listdir(tmp_path / "out")) == ["_thresher", f"a-{UNIT.id}.jsonl"]
    assert os.listdir(run.target.tmp) == []
