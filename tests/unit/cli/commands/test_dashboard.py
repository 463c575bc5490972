# SPDX-License-Identifier: Apache-2.0
"""`thresher dashboard` prints where it is, and ends when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from thresher.cli.main import main


def start(run: Path, *flags: str) -> subprocess.Popen[bytes]:
    """Start the dashboard of a run folder that need not be there."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "thresher", "dashboard", str(run), "--wait", "--port", "0", *flags]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)


def test_it_serves_until_its_input_ends(tmp_path: Path) -> None:
    with start(tmp_path, "--json", "--until-eof") as dashboard:
        assert dashboard.stdin is not None
        assert dashboard.stdout is not None
        found = json.loads(dashboard.stdout.readline())
        with urllib.request.urlopen(f"{found['url']}api/state", timeout=60) as answer:
            assert json.load(answer) == {"status": "waiting"}
        dashboard.stdin.close()
        assert dashboard.wait(60) == 0


@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_without_a_word_about_runs_to_resume(tmp_path: Path, end: signal.Signals, code: int) -> None:
    with start(tmp_path) as dashboard:
        assert dashboard.stdout is not None
        assert dashboard.stderr is not None
        url = dashboard.stdout.readline().decode().strip()
        # An answer shows that the server waits for requests, and so that the signal finds it there.
        urllib.request.urlopen(url, timeout=60).close()
        os.kill(dashboard.pid, end)
        assert dashboard.wait(60) == code
        assert b"again" not in dashboard.stderr.read()


def test_elsewhere_it_makes_a_token(tmp_path: Path) -> None:
    with start(tmp_path, "--host", "0.0.0.0", "--json", "--until-eof") as dashboard:
        assert dashboard.stdout is not None
        assert "?token=" in json.loads(dashboard.stdout.readline())["url"]


def test_what_is_refused_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dashboard", str(tmp_path)]) == 2
    assert "no run found there" in capsys.readouterr().err
    for token in ("short", "with space in it", "semicolon;and=more", "ümlauts-are-many"):
        assert main(["dashboard", str(tmp_path), "--wait", "--token", token]) == 2
        assert "--token" in capsys.readouterr().err
