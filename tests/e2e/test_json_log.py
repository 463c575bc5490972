# SPDX-License-Identifier: Apache-2.0
"""With `--log-format json`, each line on stderr of a real run is a JSON object, also if the run fails or is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import small_folder, thresher_in


def log_of(folder: Path, *arguments: str) -> tuple[int, list[dict[str, Any]], str]:
    """Run the recipe; return exit code, log, and standard output."""
    ran = thresher_in(folder, "run", "recipe.yaml", *arguments)
    return ran.returncode, [json.loads(line) for line in ran.stderr.splitlines()], ran.stdout


def test_a_run_logs_start_progress_and_end_with_the_numbers_of_its_report(tmp_path: Path) -> None:
    code, log, out = log_of(
        small_folder(tmp_path), "--log-format", "json", "--json", "--workers", "1", "executor.logging_interval=0.001"
    )
    assert code == 0
    report = json.loads(out)
    events = [line["event"] for line in log]
    assert (events[0], events[-1]) == ("start", "end")
    assert "progress" in events
    assert {key: log[-1][key] for key in ("status", "counts", "run_id")} == {
        key: report[key] for key in ("status", "counts", "run_id")
    }
    again = log_of(tmp_path, "--log-format=json")
    assert (again[0], again[1][-1]["status"]) == (0, "nothing-to-do")


@pytest.mark.parametrize(
    ("flags", "code", "ends"),
    [(["--max-errors", "0"], 3, ["failed", "stopped"]), (["--workers", "x"], 2, []), (["min_words=a"], 2, [])],
)
def test_a_run_that_fails_or_is_refused_logs_the_error(
    tmp_path: Path, flags: list[str], code: int, ends: list[str]
) -> None:
    small_folder(tmp_path)
    with (tmp_path / "input" / "part.jsonl").open("a") as file:
        file.write("broken\n")
    found, log, _ = log_of(tmp_path, "--log-format", "json", *flags)
    assert found == code
    assert (log[-1]["event"], log[-1]["level"]) == ("message", "error")
    assert [line["status"] for line in log if line["event"] == "end" and line["status"] not in ends] == []
    assert len([line for line in log if line["event"] == "end"]) == bool(ends)


def test_quiet_logs_nothing_but_errors(tmp_path: Path) -> None:
    assert log_of(small_folder(tmp_path), "--log-format", "json", "--quiet")[1] == []
