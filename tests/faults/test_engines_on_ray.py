# SPDX-License-Identifier: Apache-2.0
"""Engines that schedule themselves lose workers, nodes, or the driver; output and counts are those of a local run."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.contract.ray_rows import OWN_WARNINGS, end_ray, need_ray, units_by_runner
from tests.faults.ray_scene import RayNodes
from thresher import DocumentBatch, JsonlReader, JsonlWriter, LocalExecutor, Pipeline, ProcessingStage, Resources
from thresher.backends import ray_actor_pool
from thresher.backends.ray import RayExecutor
from thresher.backends.ray_actor_pool import RayActorPoolExecutor
from thresher.backends.ray_data import RayDataExecutor
from thresher.backends.xenna import XennaExecutor
from thresher.core.tally import counts_add_up

PATIENCE_S = 120.0
"""How long something may take that must happen; a limit for a hang, not a measure of speed."""
pytestmark = [pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed"), OWN_WARNINGS]
ENGINES: dict[str, Callable[..., Any]] = {
    "actor-pool": RayActorPoolExecutor,
    "ray-data": RayDataExecutor,
    "xenna": XennaExecutor,
}


@pytest.fixture(params=["actor-pool", "ray-data", pytest.param("xenna", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest) -> Any:
    need_ray(request.param)
    return ENGINES[request.param]()


@pytest.fixture(scope="module", autouse=True)
def ray_ends_with_this_module() -> Iterator[None]:
    yield
    end_ray()


class Deadly(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Ends its process at one record: once, or every time."""

    def __init__(self, mark: str = "") -> None:
        self.mark = mark

    def process(self, task: DocumentBatch) -> DocumentBatch:
        if 77 in task.values("n") and not (self.mark and os.path.exists(self.mark)):
            if self.mark:
                Path(self.mark).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task


class OnADevice(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Says which devices its worker was given."""

    resources = Resources(gpus=0.5)
    devices: tuple[int, ...] = ()

    def setup(self, worker_metadata: Any = None) -> None:
        self.devices = worker_metadata.devices

    def process(self, task: DocumentBatch) -> DocumentBatch:
        self.count("with a device", len(self.devices) == 1)
        return task


class HangsOnNode(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Touch a file per node; never return on one node, and return on the others only after that one was reached."""

    def __init__(self, folder: str, node: str) -> None:
        self.folder = folder
        self.node = node
        self.here = ""

    def setup(self, worker_metadata: Any = None) -> None:
        self.here = worker_metadata.node.node_id

    def process(self, task: DocumentBatch) -> DocumentBatch:
        Path(self.folder, self.here).touch()
        while self.here == self.node or not Path(self.folder, self.node).exists():
            time.sleep(0.1)
        return task


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    lines = [json.dumps({"n": number, "text": "word " * (number % 30)}) for number in range(600)]
    (folder / "a.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.jsonl")}


def run(corpus: Path, out: Path, stages: list[Any], executor: Any) -> Any:
    pipeline = Pipeline("f", stages=[JsonlReader(str(corpus), blocksize="6kB"), *stages, JsonlWriter(str(out))])
    return pipeline.run(executor, progress="none")


def whole_units(run_dir: str) -> int:
    """How many units the engine itself has committed."""
    return len(units_by_runner(run_dir)[1])


def test_the_engine_itself_runs_and_commits_all_units(engine: Any, corpus: Path, tmp_path: Path) -> None:
    result = run(corpus, tmp_path / "out", [], engine)
    assert whole_units(result.run_dir) == result.units_total > 5


def test_a_worker_that_is_killed_costs_nothing(engine: Any, corpus: Path, tmp_path: Path) -> None:
    result = run(corpus, tmp_path / "out", [Deadly(str(tmp_path / "mark"))], engine)
    assert (tmp_path / "mark").exists()
    run(corpus, tmp_path / "expected", [], LocalExecutor(workers=1))
    assert digest(tmp_path / "out") == digest(tmp_path / "expected")
    assert result.counts["quarantined"] == 0
    assert whole_units(result.run_dir) >= result.units_total // 2


def test_a_record_that_ends_every_worker_is_set_aside_alone(engine: Any, corpus: Path, tmp_path: Path) -> None:
    result = run(corpus, tmp_path / "out", [Deadly()], engine)
    expected = run(corpus, tmp_path / "expected", [Deadly()], LocalExecutor(workers=1))
    assert digest(tmp_path / "out") == digest(tmp_path / "expected")
    assert result.counts == expected.counts
    assert result.counts["quarantined"] == 1
    assert counts_add_up(result.counts)


@pytest.mark.parametrize("name", ["actor-pool", pytest.param("ray-data", marks=pytest.mark.slow)])
def test_a_stage_on_declared_accelerators_gets_them(name: str, corpus: Path, tmp_path: Path) -> None:
    need_ray(name)
    result = run(corpus, tmp_path / "out", [OnADevice()], ENGINES[name]())
    assert whole_units(result.run_dir) == result.units_total
    assert result.stages[1]["user_counts"]["with a device"] == result.stages[1]["tasks"] > 0


def test_a_node_that_is_lost_costs_what_it_had_in_hand(corpus: Path, tmp_path: Path) -> None:
    """1. A stage hangs on one of two nodes. 2. That node is removed. 3. The run ends, with all records."""
    end_ray()
    nodes = RayNodes()
    try:
        lost = nodes.add()
        executor = RayActorPoolExecutor(address=nodes.address)
        (tmp_path / "seen").mkdir()
        stages = [HangsOnNode(str(tmp_path / "seen"), lost.node_id)]
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(run(corpus, tmp_path / "out", stages, executor)))
        thread.start()
        until = time.monotonic() + PATIENCE_S
        while not (tmp_path / "seen" / lost.node_id).exists() and time.monotonic() < until:
            time.sleep(0.1)
        nodes.remove(lost)
        thread.join(PATIENCE_S)
        run(corpus, tmp_path / "expected", [], LocalExecutor(workers=1))
        assert digest(tmp_path / "out") == digest(tmp_path / "expected")
        assert whole_units(results[0].run_dir) >= results[0].units_total // 2
    finally:
        nodes.close()


BUSY: dict[str, Callable[..., Any]] = {
    "ray": RayExecutor,
    "actor-pool": RayActorPoolExecutor,
    "ray-data": RayDataExecutor,
}


@pytest.mark.parametrize(
    "name", ["actor-pool", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ray", "ray-data"))]
)
def test_a_cluster_of_which_another_job_holds_a_part_is_enough(name: str, corpus: Path, tmp_path: Path) -> None:
    """1. Another job holds 0.1 of 3 CPUs. 2. The run ends with what is left, without the machine of the driver."""
    need_ray(name)
    end_ray()
    nodes = RayNodes(num_cpus=3)
    try:
        with nodes.other_job(0.1):
            result = run(corpus, tmp_path / "out", [], BUSY[name](address=nodes.address))
        run(corpus, tmp_path / "expected", [], LocalExecutor(workers=1))
        assert digest(tmp_path / "out") == digest(tmp_path / "expected")
        if name != "ray":
            assert whole_units(result.run_dir) == result.units_total > 5
    finally:
        nodes.close()


def test_a_pool_that_gets_no_worker_says_what_it_waited_for(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """1. Another job holds the only CPU. 2. The pool gives up and says why. 3. The units run without it."""
    end_ray()
    monkeypatch.setattr(ray_actor_pool, "UP_S", 1.0)
    nodes = RayNodes(num_cpus=1)
    try:
        with nodes.other_job(1):
            stages = [JsonlReader(str(corpus), blocksize="6kB"), JsonlWriter(str(tmp_path / "out"))]
            executor = RayActorPoolExecutor(address=nodes.address)
            result = Pipeline("f", stages=stages).run(executor, progress="lines")
        assert result.counts["written"] == 600
        told = capfd.readouterr().err
        assert "the actor pool failed" in told
        assert "another job may hold what it needs" in told
    finally:
        nodes.close()


SCRIPT = """
import pathlib, time
from thresher import JsonlReader, JsonlWriter, Pipeline, processing_stage
from thresher.backends.{module} import {executor}

@processing_stage(name="slow")
def slow(task):
    pathlib.Path({mark!r}).touch()
    time.sleep(600)
    return task

Pipeline("p", stages=[JsonlReader({corpus!r}, blocksize="6kB"), slow, JsonlWriter({out!r})]).run({executor}(workers=1))
"""


@pytest.mark.parametrize(
    ("module", "executor"),
    [
        ("ray_actor_pool", "RayActorPoolExecutor"),
        pytest.param("ray_data", "RayDataExecutor", marks=pytest.mark.slow),
    ],
)
def test_an_interrupt_ends_a_private_ray_and_leaves_nothing(
    module: str, executor: str, corpus: Path, tmp_path: Path
) -> None:
    end_ray()
    facts = {"mark": str(tmp_path / "mark"), "corpus": str(corpus), "out": str(tmp_path / "out")}
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(module=module, executor=executor, **facts)))
    with (tmp_path / "stderr").open("w") as err:
        process = subprocess.Popen([sys.executable, str(script)], stderr=err, start_new_session=True)
    until = time.monotonic() + PATIENCE_S
    while not (tmp_path / "mark").exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    tree = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    code = process.wait(PATIENCE_S)
    told = (tmp_path / "stderr").read_text()
    assert code in (130, -signal.SIGINT), told
    assert "Run the same command again" in told
    assert "Traceback" not in told.replace("KeyboardInterrupt", "").split("units are done")[0]
    _, left = psutil.wait_procs(tree, timeout=PATIENCE_S)
    assert not left
