# SPDX-License-Identifier: Apache-2.0
"""The Slurm script with a real Ray cluster of two nodes on this host; only `srun` and `scontrol` are stand-ins."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

SCRIPT = Path(__file__).parents[2] / "deploy" / "slurm.sh"
RECIPE = """\
name: small
params: {input_path: ???, output_path: ???}
stages:
  - JsonlReader: {file_paths: "${input_path}", blocksize: 2kB}
  - {_target_: waiting.Wait, seconds: 0.02}
  - JsonlWriter: {path: "${output_path}"}
"""
STAGE = """\
import time
from thresher import DocumentBatch, ProcessingStage

class Wait(ProcessingStage[DocumentBatch, DocumentBatch]):
    def __init__(self, seconds):
        self.seconds = seconds
    def process(self, task):
        time.sleep(self.seconds)
        return task
"""
SRUN = """\
#!/bin/bash
while [[ "$1" == --* ]]; do shift; done
exec "$@"
"""
SCONTROL = """\
#!/bin/bash
case "$1" in
    show) printf 'localhost\\nother\\n' ;;
    requeue) echo "$2" >> requeued ;;
esac
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A folder with data, a recipe and the stand-ins; gives the environment of a job of two nodes."""
    pytest.importorskip("ray", reason="needs the extra `ray`")
    (tmp_path / "bin").mkdir()
    for name, text in {"srun": SRUN, "scontrol": SCONTROL}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "data").mkdir()
    lines = (json.dumps({"text": f"document {n} " + "word " * 20}) for n in range(2000))
    (tmp_path / "data" / "a.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "waiting.py").write_text(STAGE)
    bins = [str(tmp_path / "bin"), os.path.dirname(sys.executable), os.environ["PATH"]]
    yield {
        **os.environ,
        "PATH": os.pathsep.join(bins),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "localhost,other",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_ON_NODE": "1",
        "THRESHER_REQUEUE": "1",
    }
    left = [process for process in psutil.process_iter(["environ"]) if _belongs(process, str(tmp_path))]
    for process in left:
        process.kill()
    assert left == [], "the script left processes behind"


def _belongs(process: psutil.Process, folder: str) -> bool:
    found = process.info["environ"] or {}
    return found.get("PYTHONPATH", "").startswith(folder) and process.pid != os.getpid()


def start(tmp_path: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """The script as Slurm starts it."""
    command = [SCRIPT, "recipe.yaml", "input_path=data", "output_path=out", "--trust", "waiting"]
    with open(tmp_path / "log", "ab") as log:
        return subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)


def test_a_job_runs_on_its_own_cluster_and_one_that_is_told_to_end_goes_on(job: dict[str, str], tmp_path: Path) -> None:
    first = start(tmp_path, job)
    until = time.monotonic() + 180
    while not list(tmp_path.glob("out/*.jsonl")) and first.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=100) == 143, (tmp_path / "log").read_text()
    assert (tmp_path / "requeued").read_text().split() == [job["SLURM_JOB_ID"]]
    done_before = len(list(tmp_path.glob("out/*.jsonl")))
    assert done_before > 0

    assert start(tmp_path, job).wait(timeout=180) == 0, (tmp_path / "log").read_text()
    written = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("out/*.jsonl")))
    assert written == (tmp_path / "data" / "a.jsonl").read_bytes()
    attempts = json.loads((tmp_path / "out" / "_thresher" / "run.json").read_text())["attempts"]
    assert [attempt["exit_code"] for attempt in attempts] == [143, 0]
