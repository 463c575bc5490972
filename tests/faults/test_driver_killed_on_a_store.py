# SPDX-License-Identifier: Apache-2.0
"""A run whose output is an object store: its driver is killed, the same command finishes it, and what was set aside is
tried again there."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.conftest import wait_until, wait_until_gone
from tests.faults.test_object_store_faults import objects, unfinished_uploads
from thresher.ledger.folder.find import read_manifest
from thresher.ledger.stores.store import open_store

pytestmark = pytest.mark.s3
PROJECT = Path(__file__).parents[2]
UNITS = 30
SCRIPT = """
import sys, time
from thresher import DocumentBatch, JsonlReader, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage

class Slow(ProcessingStage):
    name = "slow"
    def process(self, task: DocumentBatch) -> DocumentBatch:
        time.sleep(float(sys.argv[3]))
        return task

if __name__ == "__main__":
    options = {options!r}
    stages = [
        JsonlReader(sys.argv[1], blocksize="20kB"),
        Slow(),
        JsonlWriter(sys.argv[2], storage_options=options),
    ]
    Pipeline("cloud", stages=stages).run(LocalExecutor(workers=2), progress="none")
"""
RECIPE = """
name: picky
stages:
  - JsonlReader: {{file_paths: "{source}", blocksize: 20kB}}
  - _target_: picky.Picky
  - JsonlWriter: {{path: "{output}"}}
"""
PICKY = """
from pathlib import Path
from thresher import DocumentBatch, ProcessingStage

class Picky(ProcessingStage):
    name = "picky"
    def process(self, task: DocumentBatch) -> DocumentBatch:
        if not Path("mended").exists() and any(number % 700 == 3 for number in task.values("n")):
            raise ValueError("not this one")
        return task
"""


def make_input(folder: Path) -> None:
    folder.mkdir()
    lines = (b'{"n": %d, "text": "%s"}\n' % (n, b"word " * 38) for n in range(UNITS * 100))
    (folder / "a.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)])
def test_a_killed_driver_is_followed_by_one_that_finishes(
    seed: int, bucket: str, s3_options: dict[str, Any], tmp_path: Path
) -> None:
    chance = random.Random(seed)
    make_input(tmp_path / "in")
    script = tmp_path / "run.py"
    script.write_text(SCRIPT.replace("{options!r}", repr(s3_options)))

    def start(output: str, pause_s: float) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(script), str(tmp_path / "in"), f"s3://{bucket}/{output}", str(pause_s)]
        with (tmp_path / "stderr").open("wb") as err:
            return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=err)

    assert start("calm", 0.0).wait(100) == 0
    for done in sorted(chance.sample(range(1, UNITS - 4), 2)):
        driver = start("out", 0.05)
        wait_until(lambda: len(objects(s3_options, bucket, "out")) >= done, f"{done} files")  # noqa: B023 at once
        import psutil

        below = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        wait_until_gone(below)
    last = start("out", 0.0)
    assert last.wait(100) == 0, (tmp_path / "stderr").read_text()

    assert objects(s3_options, bucket, "out") == objects(s3_options, bucket, "calm")
    assert unfinished_uploads(s3_options, bucket) == []
    folder = f"s3://{bucket}/out/_thresher"
    assert read_manifest(folder, s3_options) == read_manifest(f"s3://{bucket}/calm/_thresher", s3_options)
    assert open_store(folder, s3_options).names("ledger/inbox") == []


def test_what_was_set_aside_on_a_store_is_tried_again_there(
    bucket: str, s3_options: dict[str, Any], tmp_path: Path
) -> None:
    make_input(tmp_path / "in")
    (tmp_path / "picky.py").write_text(PICKY)
    output = f"s3://{bucket}/out"
    (tmp_path / "recipe.yaml").write_text(RECIPE.format(source=tmp_path / "in", output=output))
    environment = {
        "AWS_ENDPOINT_URL": s3_options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": s3_options["key"],
        "AWS_SECRET_ACCESS_KEY": s3_options["secret"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
    }

    def thresher(*arguments: str) -> str:
        command = [sys.executable, "-m", "thresher", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=90)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    thresher("run", "recipe.yaml", "--trust", "picky", "--quiet")
    written = b"".join(objects(s3_options, bucket, "out").values()).count(b"\n")
    assert written == UNITS * 100 - len(range(3, UNITS * 100, 700))
    (tmp_path / "mended").touch()
    thresher("retry", f"{output}/_thresher", "--trust", "picky", "--quiet")
    written = b"".join(objects(s3_options, bucket, "out").values()).count(b"\n")
    assert written == UNITS * 100
    thresher("audit", f"{output}/_thresher")
