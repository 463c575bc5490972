# SPDX-License-Identifier: Apache-2.0
"""The frame of the command line: what is found, what is refused, and which exit code every end has."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from thresher.cli import main as cli
from thresher.cli.main import COMMANDS, main
from thresher.errors import CheckFailedError, OutputRefusedError, RunFailedError, TooManyErrorsError
from thresher.version import __version__


def test_without_arguments_the_help_is_shown_and_nothing_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "commands:" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["help"]])
def test_the_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert f"usage: thresher {command}" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"thresher {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["rum"], "'rum' is not a command. Did you mean 'run'? Commands: run, plan"),
        (["run"], "the following arguments are required: RECIPE. `thresher run --help`"),
        (["run", "r.yaml", "--worker", "2"], "thresher run has no flag '--worker'. Did you mean '--workers'?"),
        (["run", "r.yaml", "--workers", "two"], "argument --workers: 'two' is not a whole number"),
        (["run", "r.yaml", "--gpus", "two"], "argument --gpus: 'two' is not a whole number."),
        (["run", "quick-text", "--metrics-port", "99999", "input_path=x", "output_path=y"], "99999 is not a port"),
        (["run", "quick-text", "--metrics-linger", "5", "input_path=x", "output_path=y"], "give that, too"),
        (["monitor", "up", "--target", "here"], "--target 'here' is not of the form HOST:PORT"),
        (["monitor", "up", "--grafana-port", "0"], "0 is not a port"),
        (["monitor", "down"], "invalid choice: 'down'"),
        (["run", "no-such.yaml"], "no-such.yaml: there is no such file, and no built-in recipe of that name."),
        (
            ["run", "quick-text", "--input", "x"],
            "no flag '--input'. Paths are params of the recipe: write input_path=PATH.",
        ),
        (["run", "quick-text", "--gpu", "1"], "no flag '--gpu'. Did you mean '--gpus'?"),
        (["run", "quick-text", "five"], "'five' is not of the form key=value; write a param as name=value"),
        (["run", "quick-text", "=5"], "'=5' is not of the form key=value"),
        (["run", "quick-text", "input_path=[a"], "input_path:1:3: not readable as YAML"),
        (["stages", "a", "b"], "thresher stages takes no argument 'b'"),
        (["report", "no-such-run"], "no-such-run: no run found there."),
        (["replay", "no-such-run"], "no-such-run: no run found there."),
        (["run", ""], "RECIPE is empty; a shell variable that is not set looks like this"),
        (["audit", ""], "RUN is empty; a shell variable that is not set looks like this"),
        (["why", "run", "--text", "a", "--limit", "0"], "--limit 0: give a number of records, 1 or more"),
        (["why", "run", "--text", "a", "--limit", "x"], "argument --limit: 'x' is not a whole number"),
        (["quarantine", "run", "--limit", "x"], "argument --limit: 'x' is not a whole number"),
        (["retry", "run", "--workers", "two"], "argument --workers: 'two' is not a whole number"),
    ],
)
def test_what_is_refused_says_what_is_legal_and_shows_no_traceback(
    arguments: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("thresher: error: ")
    assert expected in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("error", [RunFailedError, TooManyErrorsError, OutputRefusedError, CheckFailedError])
def test_every_error_of_ours_has_its_exit_code(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_dispatch", lambda arguments: _raise(error("no")))
    assert main(["run"]) == error.exit_code  # type: ignore[attr-defined]  # each has one


def test_an_error_of_ours_is_one_json_object_on_stdout_where_json_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "no-such.yaml", "--json"]) == 2
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["status"], found["exit_code"]) == ("failed", 2)
    assert f"thresher: error: {found['error']}\n" == shown.err


def test_an_unexpected_error_shows_its_traceback_and_asks_for_a_report(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_dispatch", lambda arguments: _raise(ZeroDivisionError("division by zero")))
    assert main(["run"]) == 1
    err = capsys.readouterr().err
    assert "Traceback (most recent call last):" in err
    assert "thresher: error: unexpected ZeroDivisionError: division by zero\nThis is a bug in Thresher" in err


def test_ctrl_c_and_sigterm_have_their_exit_codes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for end, code in ((KeyboardInterrupt(), 130), (SystemExit(143), 143)):
        monkeypatch.setattr(cli, "_dispatch", lambda arguments, end=end: _raise(end))
        assert main(["run", "--json"]) == code
        shown = capsys.readouterr()
        assert json.loads(shown.out)["exit_code"] == code
        assert "run the same command again to continue" in shown.err


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    command = f"set -o pipefail; {sys.executable} -m thresher stages | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "readers\n"


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">/dev/full", 1, "thresher: error: the result cannot be written to stdout: No space left on device\n"),
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
    ],
)
def test_streams_that_are_full_or_closed_are_no_fault_of_ours(redirection: str, code: int, said: str) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m thresher stages {redirection}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", said)


def test_letters_that_a_stream_cannot_show_are_spelled_out() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "thresher", "stages", "JsonlWriter"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("JsonlWriter: {path: \\u2026}\n")


@pytest.mark.parametrize("variables", [{"NO_COLOR": "1"}, {}])
def test_there_is_no_colour_where_there_is_no_terminal(variables: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "thresher", "rum"],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert done.returncode == 2
    assert "\033" not in done.stderr


def test_colour_on_a_terminal_can_be_turned_off() -> None:
    pty = importlib.import_module("pty")
    for no_color, colored in (("", True), ("1", False)):
        parent, child = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "thresher", "rum"],
            stderr=child,
            env={**os.environ, "NO_COLOR": no_color, "TERM": "xterm"},
        )
        assert process.wait(100) == 2
        os.close(child)
        shown = os.read(parent, 10_000).decode()
        os.close(parent)
        assert ("\033[" in shown) is colored


def test_showing_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from thresher.cli.main import main; main(['--version']);"
        "print([name for name in ('yaml', 'msgspec', 'numpy', 'pyarrow', 'rich', 'fsspec') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def _raise(error: BaseException) -> int:
    raise error
