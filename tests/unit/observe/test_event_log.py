# SPDX-License-Identifier: Apache-2.0
"""The event log can be read back line by line, whatever ended its writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.errors import CheckFailedError, RunFailedError
from thresher.observe import event_log
from thresher.observe.event_log import NOW, TIMELINE, EventLog, decode_line, read_log, read_timeline
from thresher.observe.progress import Snapshot, StageSnapshot
from thresher.scheduler.events import Tick
from thresher.scheduler.model import OpSpec, RunSpec

SPEC = RunSpec(ops=(OpSpec(index=0, name="read", source=True),), shared_workers=1, budget_bytes=1000)


def written(folder: Path, count: int, *, flush_every: int = 10**9) -> EventLog:
    """A log with a start line and `count` ticks, flushed now and then, not closed."""
    log = EventLog(folder)
    log.start(SPEC, seed=7)
    for n in range(1, count + 1):
        log.write(n, n / 10, Tick(n / 10))
        if n % flush_every == 0:
            log.flush()
    return log


def test_lines_come_back_in_order_and_decode_to_what_was_written(tmp_path: Path) -> None:
    written(tmp_path, 50).close()
    lines = [decode_line(line) for line in read_log(tmp_path)]
    assert lines[0].item == SPEC
    assert [line.n for line in lines] == list(range(51))
    assert [line.item for line in lines[1:]] == [Tick(n / 10) for n in range(1, 51)]


def test_the_start_line_carries_what_else_describes_the_run(tmp_path: Path) -> None:
    written(tmp_path, 0).close()
    assert b'"seed":7' in next(read_log(tmp_path))


def test_a_flushed_line_is_readable_while_the_log_is_still_open(tmp_path: Path) -> None:
    log = written(tmp_path, 3)
    assert list(read_log(tmp_path)) == []
    log.flush()
    assert len(list(read_log(tmp_path))) == 4
    log.close()


@given(cuts=st.lists(st.integers(1, 40), max_size=20))
def test_flushes_and_segments_leave_no_trace_in_the_lines(cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_log, "SEGMENT_BYTES", 500)
        log = EventLog(folder)
        n = 0
        for cut in cuts:
            for _ in range(cut):
                log.write(n, float(n), Tick(float(n)))
                n += 1
            log.flush()
        log.close()
        assert [decode_line(line).n for line in read_log(folder)] == list(range(n))


def test_a_long_log_is_cut_into_numbered_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "FRAME_BYTES", 200)
    monkeypatch.setattr(event_log, "SEGMENT_BYTES", 1000)
    written(tmp_path, 100).close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) > 3
    assert names == [f"{number:06d}.jsonl.zst" for number in range(len(names))]
    assert len(list(read_log(tmp_path))) == 101


def test_lines_of_a_killed_writer_are_readable_up_to_its_last_flush(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from thresher.observe.event_log import EventLog\n"
        "from thresher.scheduler.events import Tick\n"
        "log = EventLog(sys.argv[1])\n"
        "for n in range(1000):\n"
        "    log.write(n, 0.0, Tick(0.0))\n"
        "log.flush()\n"
        "log.write(1000, 0.0, Tick(0.0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [decode_line(line).n for line in read_log(tmp_path)] == list(range(1000))


def test_a_frame_that_was_cut_off_gives_whole_lines_only(tmp_path: Path) -> None:
    written(tmp_path, 200, flush_every=100).close()
    segment = tmp_path / "000000.jsonl.zst"
    os.truncate(segment, segment.stat().st_size - 10)
    numbers = [decode_line(line).n for line in read_log(tmp_path)]
    assert numbers == list(range(len(numbers)))
    assert 101 <= len(numbers) <= 201


def test_a_damaged_segment_is_named(tmp_path: Path) -> None:
    written(tmp_path, 10).close()
    segment = tmp_path / "000000.jsonl.zst"
    segment.write_bytes(b"not zstd at all" + segment.read_bytes())
    with pytest.raises(CheckFailedError, match=r"000000\.jsonl\.zst is damaged"):
        list(read_log(tmp_path))


def test_a_folder_that_holds_a_log_is_not_written_over(tmp_path: Path) -> None:
    written(tmp_path, 1).close()
    second = written(tmp_path, 1)
    with pytest.raises(RunFailedError, match=r"cannot write the event log .*000000\.jsonl\.zst: File exists"):
        second.flush()
    assert len(list(read_log(tmp_path))) == 2


def test_the_log_needs_neither_pyarrow_nor_numpy() -> None:
    script = (
        "import sys, tempfile\n"
        "import thresher.observe.event_log as log, thresher.observe.metrics, thresher.observe.report\n"
        "log.EventLog(tempfile.mkdtemp())\n"
        "print(sorted({'pyarrow', 'numpy', 'rich'} & set(sys.modules)))\n"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"


# -- the timeline -----------------------------------------------------------------------------------------------------


def snapshot(t: float, status: str = "running") -> Snapshot:
    """Return a snapshot of a run that reads a record a second."""
    stage = StageSnapshot(name="Reader", leads=True, out_docs=int(t), out_bytes=100 * int(t))
    return Snapshot(elapsed_s=t, stages=(stage,), status=status, memory_bytes=7)


def test_the_timeline_of_a_day_is_a_few_thousand_samples(tmp_path: Path) -> None:
    log, t = EventLog(tmp_path), 0.0
    while t < 86_400:
        if log.wants_sample(t):
            log.sample(snapshot(t))
        t += max(0.25, t / 800)
    moments = read_timeline((tmp_path / TIMELINE).read_bytes())
    assert 1_000 < len(moments) < 5_000
    assert moments[-1].docs == int(moments[-1].t)


def test_the_last_snapshot_is_kept_in_full_and_on_the_timeline(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    log.sample(snapshot(1.0))
    log.sample(snapshot(1.1))
    log.sample(snapshot(1.2, "finished"))
    assert [moment.t for moment in read_timeline((tmp_path / TIMELINE).read_bytes())] == [1.0, 1.2]
    now = msgspec.json.decode((tmp_path / NOW).read_bytes())
    assert (now["elapsed_s"], now["status"], now["stages"][0]["out_docs"]) == (1.2, "finished", 1)
    assert not list(tmp_path.glob("*.tmp"))


def test_a_timeline_that_ends_in_the_middle_of_a_line_is_read_up_to_it(tmp_path: Path) -> None:
    log = EventLog(tmp_path)
    for t in range(5):
        log.sample(snapshot(float(t)))
    content = (tmp_path / TIMELINE).read_bytes()
    assert [moment.t for moment in read_timeline(content[:-9])] == [0.0, 1.0, 2.0, 3.0]
    assert read_timeline(b"not a timeline") == []
