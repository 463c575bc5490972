# SPDX-License-Identifier: Apache-2.0
"""`thresher run`, `report` and `replay` as real processes: outputs, streams and exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import RECIPE, Thresher

WAITING_STAGE = """\
import os, time
from thresher import DocumentBatch, ProcessingStage


class Wait(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task):
        open("started", "w").close()
        while not os.path.exists("go"):
            time.sleep(0.01)
        return task


class Broken(ProcessingStage[DocumentBatch, DocumentBatch]):
    row_wise = False

    def process(self, task):
        raise ValueError("always")
"""


def outputs(folder: Path, name: str = "output") -> list[dict[str, Any]]:
    files = sorted((folder / name).glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.parametrize("executor", ["local", "serial"])
def test_a_run_writes_the_output_and_prints_its_summary_on_stdout(
    executor: str, folder: Path, thresher: Thresher
) -> None:
    done = thresher("run", "recipe.yaml", "--executor", executor)
    assert done.returncode == 0, done.stderr
    assert [record["id"] for record in outputs(folder)] == list(range(3, 100))
    assert "100 read = 97 written + 3 dropped + 0 quarantined" in done.stdout
    assert f"executor {executor}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_same_command_again_finds_nothing_to_do(folder: Path, thresher: Thresher) -> None:
    assert thresher("run", "recipe.yaml").returncode == 0
    again = thresher("run", "recipe.yaml", "--json")
    assert again.returncode == 0, again.stderr
    report = json.loads(again.stdout)
    assert (report["status"], report["units_resumed"]) == ("nothing-to-do", report["units_total"])


def test_json_is_the_report_that_the_run_folder_holds(folder: Path, thresher: Thresher) -> None:
    done = thresher("run", "recipe.yaml", "min_words=50", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["counts"]["written"] == 50
    assert report == json.loads((folder / "output/_thresher/report.json").read_text())
    shown = thresher("report", "output", "--json")
    assert json.loads(shown.stdout) == report


def test_quiet_prints_nothing_but_errors(folder: Path, thresher: Thresher) -> None:
    done = thresher("run", "recipe.yaml", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    failed = thresher("run", "none.yaml", "--quiet")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("thresher: error: none.yaml: there is no such file")


def test_a_run_needs_no_standard_streams(folder: Path) -> None:
    command = f"{sys.executable} -m thresher run recipe.yaml <&- >&- 2>&-"
    done = subprocess.run(["bash", "-c", command], cwd=folder, timeout=100, check=False)
    assert done.returncode == 0
    assert len(outputs(folder)) == 97


def test_flags_and_settings_come_in_any_order(folder: Path, thresher: Thresher) -> None:
    done = thresher(
        "run",
        "--executor",
        "serial",
        "recipe.yaml",
        "min_words=90",
        "--dropped-to",
        "dropped",
        "JsonlWriter.path=elsewhere",
    )
    assert done.returncode == 0, done.stderr
    assert len(outputs(folder, "elsewhere")) == 10
    assert len(outputs(folder, "dropped")) == 90
    assert outputs(folder, "dropped")[0]["_dropped"]["stage"] == "WordCountFilter"


def test_the_run_folder_keeps_the_recipe_as_it_was_resolved(folder: Path, thresher: Thresher) -> None:
    done = thresher("run", "recipe.yaml", "min_words=7", "--executor", "serial", "--run-dir", "notes")
    assert done.returncode == 0, done.stderr
    from thresher.core.recipes.recipe import load_recipe

    kept = load_recipe(folder / "notes" / "recipe.yaml")
    assert kept.params == {"min_words": 7}
    assert kept.resolved["stages"][1] == {"WordCountFilter": {"min_words": 7}}


def test_without_a_ledger_there_is_no_run_folder(folder: Path, thresher: Thresher) -> None:
    done = thresher("run", "recipe.yaml", "--no-ledger", "--executor", "serial")
    assert done.returncode == 0, done.stderr
    assert not (folder / "output" / "_thresher").exists()
    assert len(outputs(folder)) == 97


def test_a_changed_recipe_is_refused_with_exit_code_4_and_the_ways_on(folder: Path, thresher: Thresher) -> None:
    assert thresher("run", "recipe.yaml", "--executor", "serial").returncode == 0
    changed = thresher("run", "recipe.yaml", "min_words=50", "--executor", "serial")
    assert changed.returncode == 4
    assert "--fresh" in changed.stderr
    assert len(outputs(folder)) == 97
    fresh = thresher("run", "recipe.yaml", "min_words=50", "--executor", "serial", "--fresh")
    assert fresh.returncode == 0, fresh.stderr
    assert len(outputs(folder)) == 50


def test_a_foreign_output_folder_is_refused_with_exit_code_4(folder: Path, thresher: Thresher) -> None:
    (folder / "output").mkdir()
    (folder / "output" / "precious.txt").write_text("mine")
    done = thresher("run", "recipe.yaml", "--executor", "serial")
    assert done.returncode == 4
    assert "precious.txt" in done.stderr
    assert (folder / "output" / "precious.txt").read_text() == "mine"


def test_missing_input_is_refused_with_exit_code_2(folder: Path, thresher: Thresher) -> None:
    done = thresher("run", "recipe.yaml", "JsonlReader.file_paths=nowhere")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("thresher: error: ")
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


def test_too_many_bad_records_end_with_exit_code_3(folder: Path, thresher: Thresher) -> None:
    with (folder / "input" / "part.jsonl").open("a") as file:
        file.write("not json\n" * 5)
    done = thresher("run", "recipe.yaml", "--max-errors", "4")
    assert done.returncode == 3, done.stderr
    assert "max_errors is 4" in done.stderr
    assert thresher("run", "recipe.yaml", "--max-errors", "5").returncode == 0


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--max-errors", "few"], "max_errors: 'few' is neither a number of records such as 20 nor a share such as 5%"),
        (["--memory", "lots"], "memory: 'lots' is not a size"),
        (["--memory", "1MB"], "memory: '1MB' is less than"),
        (["--workers", "0"], "workers: 0 is not a whole number of 1 or more"),
        (["--address", "auto"], "'local' does not honour 'address' (address='auto'): it runs on this machine"),
        (["--executor", "locl"], "executor: 'locl' is not an executor. Did you mean 'local'?"),
        (["executor.workrs=2"], "unknown option 'workrs'. Did you mean 'workers'?"),
        (["--keep-scores", "--no-ledger"], "--keep-scores (keep_scores=…) is about the run folder, and there is none"),
    ],
)
def test_a_wrong_setting_is_refused_before_anything_is_written(
    flags: list[str], expected: str, folder: Path, thresher: Thresher
) -> None:
    done = thresher("run", "recipe.yaml", *flags)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr
    assert not (folder / "output").exists()


def test_code_of_the_current_folder_runs_only_if_it_is_trusted(folder: Path, thresher: Thresher) -> None:
    (folder / "own.py").write_text(WAITING_STAGE)
    (folder / "go").touch()
    (folder / "recipe.yaml").write_text(RECIPE.replace("  - WordCount", "  - {_target_: own.Wait}\n  - WordCount"))
    refused = thresher("run", "recipe.yaml")
    assert refused.returncode == 2
    assert "If you trust it, add --trust own" in refused.stderr
    done = thresher("run", "recipe.yaml", "--trust", "own")
    assert done.returncode == 0, done.stderr
    assert len(outputs(folder)) == 97


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_run_and_the_same_command_goes_on(number: signal.Signals, code: int, folder: Path) -> None:
    (folder / "own.py").write_text(WAITING_STAGE)
    (folder / "recipe.yaml").write_text(RECIPE.replace("  - WordCount", "  - {_target_: own.Wait}\n  - WordCount"))
    command = [sys.executable, "-m", "thresher", "run", "recipe.yaml", "--trust", "own"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _wait_for(folder / "started", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == code, err
    assert out == ""
    assert "the same command" in err.lower()
    assert "Traceback" not in err
    assert not list((folder / "output").glob("*.jsonl"))

    (folder / "go").touch()
    again = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert again.returncode == 0, again.stderr
    assert len(outputs(folder)) == 97


def test_replay_finds_no_difference_in_a_run_and_one_in_a_log_that_was_changed(
    folder: Path, thresher: Thresher
) -> None:
    assert thresher("run", "recipe.yaml", "JsonlReader.blocksize=5kB").returncode == 0
    done = thresher("replay", "output")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("attempt 001: ")
    assert done.stdout.endswith("lines replayed, no difference\n")

    import zstandard

    (segment,) = (folder / "output" / "_thresher" / "events" / "001").glob("*.zst")
    lines = (
        zstandard.ZstdDecompressor().stream_reader(segment.read_bytes(), read_across_frames=True).read().splitlines()
    )
    gone = next(n for n, line in enumerate(lines) if b'"action":"Dispatch"' in line.replace(b": ", b":"))
    segment.write_bytes(zstandard.ZstdCompressor().compress(b"\n".join(lines[:gone] + lines[gone + 1 :]) + b"\n"))
    changed = thresher("replay", "output", "--json")
    assert changed.returncode == 5
    assert "attempt 001: line " in changed.stderr
    assert json.loads(changed.stdout)["exit_code"] == 5


def test_report_of_a_run_that_was_not_finished_says_so(folder: Path, thresher: Thresher) -> None:
    assert thresher("run", "recipe.yaml", "--executor", "serial").returncode == 0
    (folder / "output" / "_thresher" / "report.json").unlink()
    done = thresher("report", "output")
    assert done.returncode == 2
    assert "has no report.json" in done.stderr
    (folder / "output" / "_thresher" / "report.json").write_text("{broken")
    done = thresher("report", "output")
    assert (done.returncode, "report.json is damaged" in done.stderr) == (2, True)


def test_the_text_report_names_every_stage(folder: Path, thresher: Thresher) -> None:
    assert thresher("run", "recipe.yaml", "--executor", "serial").returncode == 0
    done = thresher("report", "output/_thresher")
    assert done.returncode == 0, done.stderr
    for name in ("JsonlReader", "WordCountFilter", "JsonlWriter"):
        assert name in done.stdout


def test_the_installed_command_is_the_same() -> None:
    command = Path(sys.executable).parent / "thresher"
    if not command.exists():
        pytest.skip("the package is not installed in this environment")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, env=dict(os.environ), check=False)
    assert (done.returncode, done.stdout.split()[0]) == (0, "thresher")


def _wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 100
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.01)
