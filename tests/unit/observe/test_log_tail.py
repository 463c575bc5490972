# SPDX-License-Identifier: Apache-2.0
"""Reading an event log that grows."""

from __future__ import annotations

from pathlib import Path

import pytest

from thresher.observe import event_log
from thresher.observe.event_log import EventLog
from thresher.observe.follow import LogTail
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec, RunSpec

SPEC = RunSpec(ops=(OpSpec(index=0, name="a", source=True),), shared_workers=1, budget_bytes=1)


def test_every_line_is_read_once_however_the_log_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "SEGMENT_BYTES", 2000)
    log, tail, found = EventLog(tmp_path), LogTail(str(tmp_path)), []
    log.start(SPEC)
    for n in range(1, 200):
        log.write(n, float(n), ev.Tick(float(n)))
        if n % 7 == 0:
            log.flush()
        if n % 13 == 0:
            found += list(tail.read())
    log.close()
    found += list(tail.read())
    assert len(list(tmp_path.glob("*.zst"))) > 1
    assert found == list(event_log.read_log(tmp_path))
    assert list(tail.read()) == []


def test_a_frame_that_is_cut_off_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "full")
    log.start(SPEC)
    for n in range(1, 50):
        log.write(n, float(n), ev.Tick(float(n)))
        if n % 10 == 0:
            log.flush()
    log.close()
    content = (tmp_path / "full" / "000000.jsonl.zst").read_bytes()
    (tmp_path / "part").mkdir()
    tail, found = LogTail(str(tmp_path / "part")), []
    for end in (*range(0, len(content), 5), len(content)):
        (tmp_path / "part" / "000000.jsonl.zst").write_bytes(content[:end])
        found += list(tail.read())
    assert found == list(event_log.read_log(tmp_path / "full"))
