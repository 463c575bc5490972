# SPDX-License-Identifier: Apache-2.0
"""Following a log while it is written."""

from __future__ import annotations

from pathlib import Path

import pytest
import zstandard

from thresher.core.tally import StageTally, Tally
from thresher.errors import CheckFailedError
from thresher.observe.event_log import EventLog, read_log
from thresher.observe.follow import FollowedRun, LogTail
from thresher.observe.metrics import Metrics, Restored
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec, RunSpec, UnitSpec

SPEC = RunSpec(
    ops=(OpSpec(index=0, name="copy", stages=("Reader", "Writer"), source=True, sink=True),),
    shared_workers=1,
    budget_bytes=1000,
)
RESTORED = Restored(units=2, nbytes=20, tally=Tally(read=7, written=7, stages={0: StageTally(in_docs=7, out_docs=7)}))


def begun(folder: Path) -> EventLog:
    log = EventLog(folder)
    plan = {"name": "a run", "stages": ["Reader", "Writer"], "phases": 1}
    log.start(SPEC, plan=plan, executor="local", restored=RESTORED)
    return log


def test_the_figures_of_a_log_are_those_of_the_run_at_every_moment(tmp_path: Path) -> None:
    log, live = begun(tmp_path), Metrics(("Reader", "Writer"), SPEC.ops, RESTORED)
    followed = FollowedRun(tmp_path)
    items: list[ev.Event | act.Action] = [
        act.StartWorker(1),
        ev.WorkerReady(1),
        ev.UnitsListed((UnitSpec("u", (0, 0), 0, 100),)),
        act.Dispatch(1, 0, (act.TaskRef(-1, "u"),)),
        ev.MemorySample(10, 100, (ev.DeviceReading("local/0", 5, 80, 25.0),)),
        ev.TaskDone(-1, 1, busy_s=0.25, tally=Tally(read=9, stages={0: StageTally(in_docs=9, reasons={"A": 2})})),
        ev.Tick(1.0),
        ev.UnitCommitted("u"),
        act.Finish("finished"),
    ]
    assert followed.read() is None
    for n, item in enumerate(items, 1):
        log.write(n, n / 4, item)
        log.flush()
        live.update(n / 4, item)
        assert followed.read() == live.snapshot(n / 4), item
    log.close()
    assert followed.info is not None
    assert (followed.info.name, followed.info.executor, followed.info.units_resumed) == ("a run", "local", 2)
    end = followed.read()
    assert end is not None
    assert (end.status, end.counts["read"], end.stages[0].in_docs) == ("finished", 16, 16)
    assert end.stages[0].service.count == 1
    assert end.devices[0].busy_ratio == 0.25


def test_a_frame_that_is_still_being_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = begun(tmp_path / "whole")
    log.write(1, 0.5, ev.Tick(0.5))
    log.close()
    whole = (tmp_path / "whole" / "000000.jsonl.zst").read_bytes()
    (tmp_path / "part").mkdir()
    tail = LogTail(tmp_path / "part")
    path = tmp_path / "part" / "000000.jsonl.zst"
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        assert list(tail.read()) == []
    path.write_bytes(whole)
    assert list(tail.read()) == list(read_log(tmp_path / "whole"))
    assert list(tail.read()) == []


def test_every_line_of_several_segments_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.observe.event_log.SEGMENT_BYTES", 500)
    log, tail, lines = begun(tmp_path), LogTail(tmp_path), []
    for n in range(1, 100):
        log.write(n, n / 10, ev.Tick(n / 10))
        if n % 3 == 0:
            log.flush()
        if n % 7 == 0:
            lines += tail.read()
    log.close()
    lines += tail.read()
    assert len(list(tmp_path.iterdir())) > 3
    assert lines == list(read_log(tmp_path))


def test_a_frame_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.observe.follow.MOST_BYTES", 1000)
    (tmp_path / "000000.jsonl.zst").write_bytes(zstandard.compress(b"\n" * 10**6))
    with pytest.raises(CheckFailedError, match="too large"):
        FollowedRun(tmp_path).read()


def test_a_damaged_log_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "000000.jsonl.zst").write_bytes(b"this is no log of any run")
    with pytest.raises(CheckFailedError, match="is damaged"):
        FollowedRun(tmp_path).read()
