# SPDX-License-Identifier: Apache-2.0
"""Views: which one is chosen, when it draws, and what it shows on a real terminal."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.outlets import Branch
from thresher.errors import UsageError
from thresher.observe.json_lines import JsonProgress
from thresher.observe.layout import frame
from thresher.observe.lines import LineProgress, progress_line
from thresher.observe.progress import Message, NoProgress, RunInfo, Snapshot, StageSnapshot, make_progress
from thresher.observe.terminal import LiveProgress

INFO = RunInfo(name="english", executor="local", run_dir="out/_thresher", workers=2)


def snapshot(**changes: Any) -> Snapshot:
    """A run half way through."""
    stages = (
        StageSnapshot(
            name="JsonlReader",
            leads=True,
            in_docs=1000,
            docs_per_s=1234.5,
            bytes_per_s=45.6e6,
            kept_ratio=0.995,
            quarantined=5,
            queue_tasks=7,
            workers_busy=2,
            workers_total=2,
        ),
        StageSnapshot(name="WordCountFilter", leads=False, docs_per_s=1228.0, kept_ratio=0.75),
        StageSnapshot(
            name="JsonlWriter", leads=True, out_docs=750, queue_tasks=3, queue_bytes=12_300_000, workers_total=2
        ),
    )
    fields: dict[str, Any] = {
        "elapsed_s": 12.0,
        "stages": stages,
        "units_done": 13,
        "units_listed": 27,
        "listing_complete": True,
        "bytes_done": 800_000_000,
        "bytes_listed": 1_600_000_000,
        "progress_ratio": 0.5,
        "eta_s": 12.4,
        "memory_bytes": 412_000_000,
        "memory_limit_bytes": 10**9,
        "workers_busy": 2,
        "workers_total": 2,
        "quarantined": 5,
    }
    return Snapshot(**{**fields, **changes})


def shown(width: int, **changes: Any) -> list[str]:
    """The lines of the live view, without styles."""
    return ["".join(span.text for span in line) for line in frame(INFO, snapshot(**changes), width)]


# -- which view --------------------------------------------------------------------------------------------------------


def test_auto_writes_lines_where_there_is_no_terminal() -> None:
    assert isinstance(make_progress("auto", io.StringIO()), LineProgress)


def test_auto_is_the_live_view_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    leader, follower = pty.openpty()
    with os.fdopen(follower, "w") as terminal:
        assert isinstance(make_progress("auto", terminal), LiveProgress)
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(make_progress("auto", terminal), LineProgress)
    os.close(leader)


def test_none_shows_nothing_and_never_asks_for_a_snapshot() -> None:
    stream = io.StringIO()
    view = make_progress("none", stream)
    assert isinstance(view, NoProgress)
    view.start(INFO)
    view.message("hello")
    assert not view.due(1e9)
    view.finish(None)
    assert stream.getvalue() == ""


def test_an_unknown_mode_names_the_nearest_one() -> None:
    with pytest.raises(
        UsageError, match=r"'line' is not a kind of view; legal are auto, live, lines, json, none\. Did you mean"
    ):
        make_progress("line")


# -- lines -------------------------------------------------------------------------------------------------------------


def test_the_first_line_comes_early_and_the_others_at_intervals() -> None:
    stream = io.StringIO()
    view = make_progress("lines", stream, interval_s=10)
    due = []
    for tenths in range(320):
        if view.due(tenths / 10):
            due.append(tenths / 10)
        view.update(snapshot(elapsed_s=tenths / 10))
    assert due == [2.0, 12.0, 22.0]
    assert [line.split()[1] for line in stream.getvalue().splitlines()] == ["2.0", "12", "22"]


def test_a_line_tells_the_run_at_one_glance() -> None:
    assert progress_line(snapshot()) == (
        "12 s  50.0%  13/27 units  1.23k docs/s  45.6 MB/s  kept 75.0%  quarantined 5  workers 2/2  "
        "memory 412.0 MB of 1.0 GB  ETA 12 s"
    )


def test_a_run_without_an_input_to_measure_shows_how_many_records_were_made() -> None:
    without = {"bytes_listed": 0, "bytes_done": 0, "progress_ratio": 0.0, "eta_s": None}
    stages = (
        StageSnapshot(name="Make", leads=True, out_docs=12_345),
        StageSnapshot(name="W", leads=True, out_docs=999),
    )
    said = "12,345 made, 999 through all stages"
    assert said in progress_line(snapshot(**without, stages=stages))
    assert said in "\n".join(shown(100, **without, stages=stages))


@pytest.mark.parametrize("leads", [True, False])
def test_a_long_stage_name_is_whole_on_a_wide_terminal_and_cut_on_a_narrow_one(leads: bool) -> None:
    name = "a-stage-with-a-name-that-says-all-about-it-" + "x" * 40
    stages = (StageSnapshot(name=name, leads=leads),)
    assert any(name in line for line in shown(200, stages=stages))
    narrow = shown(80, stages=stages)
    assert not any(name in line for line in narrow)
    assert max(map(len, narrow)) < 80


def test_a_line_says_that_more_input_may_come() -> None:
    line = progress_line(snapshot(progress_ratio=None, eta_s=None, listing_complete=False))
    assert "13/27+ units" in line
    assert "ETA" not in line


def test_every_message_is_written_once() -> None:
    stream = io.StringIO()
    view = make_progress("lines", stream)
    first, second = Message(1, 1.0, "worker 1 is lost"), Message(2, 2.0, "worker 2 is lost")
    view.update(snapshot(elapsed_s=10.0, messages=(first,)))
    view.update(snapshot(elapsed_s=20.0, messages=(first, second)))
    assert stream.getvalue().count("worker 1 is lost") == 1
    assert stream.getvalue().count("worker 2 is lost") == 1


# -- lines of JSON -----------------------------------------------------------------------------------------------------


def test_a_json_log_has_the_figures_of_the_snapshot_at_the_times_of_the_lines() -> None:
    stream = io.StringIO()
    view = JsonProgress(stream, 10, clock=lambda: 1_000_000_000.5)
    view.start(INFO)
    for tenths in range(130):
        view.update(snapshot(elapsed_s=tenths / 10, messages=(Message(1, 1.0, "worker 1 is lost"),)))
    view.message("warning: a\n\u2028\x1b[31mb")
    lines = [json.loads(line) for line in stream.getvalue().split("\n")[:-1]]
    assert [(line["event"], line["level"]) for line in lines] == [
        ("start", "info"),
        ("message", "info"),
        ("progress", "info"),
        ("progress", "info"),
        ("message", "warning"),
    ]
    assert {line["time"] for line in lines} == {"2001-09-09T01:46:40.500Z"}
    assert (lines[0]["name"], lines[0]["run_dir"]) == ("english", "out/_thresher")
    assert [line["elapsed_s"] for line in lines[2:4]] == [2.0, 12.0]
    now = snapshot(elapsed_s=12.0)
    for key in ("units_done", "units_listed", "memory_bytes", "quarantined", "eta_s"):
        assert lines[3][key] == getattr(now, key)
    assert [stage["name"] for stage in lines[3]["stages"]] == [stage.name for stage in now.stages]
    assert lines[3]["stages"][0]["in_docs"] == 1000
    assert lines[4]["text"] == "a\n\u2028\x1b[31mb"
    assert stream.getvalue().isascii()
    assert "\x1b" not in stream.getvalue()


def test_a_json_log_of_a_run_without_a_report_ends_too() -> None:
    stream = io.StringIO()
    view = make_progress("json", stream)
    view.close()
    assert stream.getvalue() == ""
    view.start(INFO)
    view.finish(None)
    view.close()
    view.close()
    ends = [json.loads(line) for line in stream.getvalue().splitlines() if '"end"' in line]
    assert [(end["level"], end["status"]) for end in ends] == [("error", "failed")]


@pytest.mark.parametrize("mode", ["lines", "json", "live"])
def test_a_stream_that_is_closed_does_not_fail_the_run(mode: str) -> None:
    stream = io.StringIO()
    view = make_progress(mode, stream)
    view.start(INFO)
    stream.close()
    view.update(snapshot())
    view.message("hello")
    view.finish(None)
    assert stream.closed  # and none of the calls above raised


BRANCHES = (Branch("english", 0, None, 700), Branch("short", 1, 300), Branch("tiny", 2), Branch("dropped", 1, 50))
"""The pipeline is done, and its first outlet runs, which has an outlet of its own."""


def test_a_line_names_the_branch_and_what_the_others_get() -> None:
    info = msgspec.structs.replace(INFO, branches=BRANCHES)
    line = progress_line(snapshot(sent={"tiny": 12}, phases=2), info)
    assert line.startswith("12 s  branch 2/4  phase 1/2  50.0%  ")
    assert "  to tiny 12  to dropped 50  " in line


def test_the_first_line_of_a_branch_says_what_it_gets_and_what_comes_after_it() -> None:
    stream = io.StringIO()
    make_progress("lines", stream).start(msgspec.structs.replace(INFO, branches=BRANCHES))
    assert "english: executor local, branch 2/4 with 300 records, then tiny, dropped, 2 workers" in stream.getvalue()


# -- the live view -----------------------------------------------------------------------------------------------------


def test_the_live_view_names_every_stage_with_its_figures() -> None:
    text = "\n".join(shown(80))
    assert re.search(r"^english  local +elapsed 12 s   ETA 12 s$", text, re.MULTILINE)
    assert re.search(r"50\.0%   800\.0 MB of 1\.6 GB   13/27 units$", text, re.MULTILINE)
    assert re.search(r"^JsonlReader +1\.23k +45\.6 +99\.5% +7 +2/2 +5$", text, re.MULTILINE)
    assert re.search(r"^└ WordCountFilter +1\.23k +0\.00 +75\.0% +0$", text, re.MULTILINE)
    assert re.search(r"^JsonlWriter +0 +0\.00 +- +12\.3M +3 +0/2 +0$", text, re.MULTILINE)
    assert re.search(r"^memory ━+ 412\.0 MB of 1\.0 GB   workers 2/2 busy$", text, re.MULTILINE)


def test_the_live_view_draws_all_branches_with_their_state_and_counts() -> None:
    info = msgspec.structs.replace(INFO, branches=BRANCHES)
    lines = ["".join(span.text for span in line) for line in frame(info, snapshot(sent={"tiny": 12}), 80)]
    assert "branch 2/4   800.0 MB of" in lines[1]
    table = lines[lines.index(next(line for line in lines if line.startswith("branch"))) :][1:5]
    assert [line.split() for line in table] == [
        ["english", "done", "700"],
        ["short", "running", "300"],
        ["tiny", "to", "come", "12"],
        ["dropped", "to", "come", "50"],
    ]
    assert [len(line) - len(line.lstrip()) for line in table] == [0, 2, 4, 2]
    assert max(map(len, lines)) < 80


def test_a_pipeline_without_outlets_shows_no_branches() -> None:
    assert "branch" not in "\n".join([*shown(80), progress_line(snapshot(), INFO)])


def test_before_all_input_is_found_there_is_no_bar_and_no_eta() -> None:
    text = "\n".join(shown(80, progress_ratio=None, eta_s=None))
    assert "looking for input" in text
    assert "ETA" not in text


def test_workers_that_start_and_errors_are_told() -> None:
    assert "workers 0/0 busy, 2 starting   errors 3" in "\n".join(
        shown(100, workers_busy=0, workers_total=0, workers_starting=2, errors=3)
    )


@given(st.integers(1, 300), st.integers(0, 10**13), st.floats(0, 1e6))
def test_no_line_is_wider_than_the_terminal(width: int, size: int, seconds: float) -> None:
    message = Message(1, seconds, "a long message " * 20)
    changes = {"bytes_listed": size, "memory_limit_bytes": size, "units_listed": size, "elapsed_s": seconds}
    lines = shown(width, messages=(message,), **changes)
    # Below 80 columns figures of astronomical runs may be cut at the edge; tables and messages always fit.
    table = [line for line in lines if line.startswith(("stage", "Jsonl", "└")) or "a long message" in line]
    assert max(len(line) for line in table) <= max(40, width)
    if width >= 80:
        assert max(len(line) for line in lines[:1] + lines[2:]) < width


DRIVER = """
import subprocess, sys
sys.path.insert(0, {folder!r})
from thresher.observe.progress import RunInfo, make_progress
from test_progress import snapshot
view = make_progress("auto")
before = sys.stdout
view.start(RunInfo(name="english", executor={executor!r}))
assert (sys.stdout is before) == {debuggable}
view.update(snapshot(units_done=13))
print("printed by the driver")
view.message("something to know")
subprocess.run(["echo", "printed by a worker"], stdout=view.worker_output())
view.update(snapshot(units_done=14, elapsed_s=13.0))
subprocess.run(["printf", "no line feed"], stderr=subprocess.STDOUT, stdout=view.worker_output())
view.finish(None)
view.finish(None)
subprocess.run(["echo", "printed at its end"], stdout=view.worker_output())
view.close()
view.close()
print("after the end")
"""


def driver_script(executor: str = "local") -> str:
    """A driver that shows the live view; it checks where its own prints go."""
    return DRIVER.format(folder=os.path.dirname(__file__), executor=executor, debuggable=executor == "serial")


def on_a_terminal(script: str, **environment: str) -> str:
    """What a terminal receives from a script."""
    leader, follower = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **environment}
    with subprocess.Popen([sys.executable, "-c", script], stdout=follower, stderr=follower, env=env) as process:
        os.close(follower)
        received = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # Linux says so when the last follower is closed
                break
            if not piece:
                break
            received += piece
    os.close(leader)
    assert process.returncode == 0, received.decode()
    return received.decode()


def test_the_live_view_draws_in_place_prints_above_and_gives_the_terminal_back() -> None:
    text = on_a_terminal(driver_script())
    assert "\033[?25l" in text  # the cursor is hidden
    assert text.rindex("\033[?25h") > text.rindex("14/27 units")  # and shown again at the end
    places = ["13/27 units", "printed by the driver", "something to know", "printed by a worker", "14/27 units"]
    places += ["no line feed", "printed at its end", "after the end"]
    assert sorted(places, key=text.index) == places
    assert text.rstrip().endswith("after the end")
    assert "\033[32m" in text


def test_a_debugger_in_the_serial_executor_has_the_real_stdout() -> None:
    assert "after the end" in on_a_terminal(driver_script("serial"))


def test_no_color_means_no_color() -> None:
    text = on_a_terminal(driver_script(), NO_COLOR="1")
    assert "13/27 units" in text
    assert not re.search(r"\033\[[0-9;]*3[0-9][0-9;]*m", text)
