# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, SIGTERM and SIGKILL in the middle of a run: nothing is left behind, and the same command goes on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

SCRIPT = """
import os, sys, time
from thresher import DocumentBatch, JsonlReader, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage

class Slow(ProcessingStage[DocumentBatch, DocumentBatch]):
    def process(self, task):
        time.sleep(float(os.environ["SLOW_S"]))
        return task

stages = [JsonlReader(sys.argv[1], blocksize="10kB"), Slow(), JsonlWriter(sys.argv[2])]
result = Pipeline("slow", stages=stages).run(LocalExecutor(workers=2), progress="lines")
print(result.status, result.units_resumed, result.units_total)
"""


def start(tmp_path: Path, seconds: float) -> subprocess.Popen[str]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "in"), str(tmp_path / "out")]
    environment = {**os.environ, "SLOW_S": str(seconds)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def wait_for_a_commit(tmp_path: Path, process: subprocess.Popen[str]) -> None:
    while process.poll() is None:
        if any((tmp_path / "out").glob("*.jsonl")):
            return
        time.sleep(0.01)  # polls for a file that another process makes
    pytest.fail(f"the run ended before its first commit: {process.communicate()}")


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(process.pid).children(recursive=True)
    return []


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.jsonl"))}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    lines = [json.dumps({"n": n, "text": "word " * 20}) for n in range(3000)]
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("signals", "codes"),
    [
        ([signal.SIGINT], (130, -signal.SIGINT)),
        ([signal.SIGTERM], (143,)),
        ([signal.SIGINT] * 2, (130, -signal.SIGINT)),
    ],
    ids=["ctrl-c", "sigterm", "ctrl-c-twice"],
)
def test_a_signal_ends_cleanly_and_the_same_command_goes_on(
    corpus: Path, signals: list[signal.Signals], codes: tuple[int, ...]
) -> None:
    process = start(corpus, 0.05)
    wait_for_a_commit(corpus, process)
    workers = descendants(process)
    for number in signals:
        process.send_signal(number)
    _, errors = process.communicate(timeout=100)
    assert process.returncode in codes, errors
    if len(signals) == 1:
        assert "Run the same command again to go on" in errors
        assert errors.lower().count("run the same command again") == 1
    assert psutil.wait_procs(workers, timeout=100)[1] == []
    assert not list((corpus / "out" / "_thresher" / "tmp").glob("**/*"))
    check_resume(corpus)


def test_a_killed_driver_leaves_no_process_and_the_run_can_be_resumed(corpus: Path) -> None:
    process = start(corpus, 0.05)
    wait_for_a_commit(corpus, process)
    workers = descendants(process)
    assert workers
    process.kill()
    process.communicate(timeout=100)
    assert psutil.wait_procs(workers, timeout=100)[1] == []
    check_resume(corpus)


def test_a_killed_worker_is_replaced_and_nothing_is_lost(corpus: Path) -> None:
    process = start(corpus, 0.05)
    wait_for_a_commit(corpus, process)
    youngest = max(descendants(process), key=lambda child: child.pid)
    os.kill(youngest.pid, signal.SIGKILL)
    output, errors = process.communicate(timeout=100)
    assert output.split()[0] == "finished", errors
    check_output(corpus)


def check_resume(folder: Path) -> None:
    process = start(folder, 0)
    output, errors = process.communicate(timeout=100)
    status, resumed, total = output.split()
    assert (status, int(resumed) >= 1, int(total) > int(resumed)) == ("finished", True, True), errors
    check_output(folder)


def check_output(folder: Path) -> None:
    lines = [line for path in sorted((folder / "out").glob("*.jsonl")) for line in path.read_text().splitlines()]
    assert lines == (folder / "in" / "a.jsonl").read_text().splitlines()
    files = {path.name for path in (folder / "out").iterdir()}
    assert all(name.endswith(".jsonl") or name == "_thresher" for name in files)
