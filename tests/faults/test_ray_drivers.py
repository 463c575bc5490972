# SPDX-License-Identifier: Apache-2.0
"""Drivers of runs on Ray that are killed, and go on elsewhere; drivers that are interrupted, and leave nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.faults.disturbed import digests
from tests.faults.ray_scene import (
    DriverProcess,
    RayNodes,
    RayScene,
    assert_same_as_local,
    make_input,
    wait_until,
)
from thresher import LocalExecutor
from thresher.backends.ray import RayExecutor

pytest.importorskip("ray", reason="ray is not installed; `make all-extras` adds it")
pytestmark = pytest.mark.timeout(900)  # Ray takes its time where many share a machine


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    nodes = RayNodes(num_cpus=2)
    yield nodes
    nodes.close()


@pytest.fixture(scope="module")
def made_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_input(tmp_path_factory.mktemp("input") / "in")


@pytest.fixture
def scene(tmp_path: Path, made_input: Path) -> RayScene:
    return RayScene(tmp_path, made_input)


def folders() -> set[str]:
    """Folders of agents in shared memory."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("thresher-node-")}


def work_a_little(scene: RayScene, driver: DriverProcess) -> None:
    """Until some more units are written."""
    before = len(digests(scene.output))
    scene.go()
    driver.wait_until(lambda: len(digests(scene.output)) >= before + 3, "three more files")


def test_a_killed_run_goes_on_on_ray_or_on_one_machine(nodes: RayNodes, scene: RayScene) -> None:
    with DriverProcess(scene, "ray", address=nodes.address) as driver:
        work_a_little(scene, driver)
        driver.process.kill()
        driver.wait()
    wait_until(lambda: not any(psutil.pid_exists(visit.pid) for visit in scene.visits()), "the end of its workers")
    with DriverProcess(scene, "local", workers=1) as driver:
        work_a_little(scene, driver)
        driver.process.kill()
        driver.wait()
    with DriverProcess(scene, "ray", address=nodes.address) as driver:
        work_a_little(scene, driver)
        driver.process.kill()
        driver.wait()
    done = len(digests(scene.output))
    assert done >= 9
    result = scene.run(RayExecutor(address=nodes.address), scene.visited(0.1))
    assert result.units_resumed >= 9
    assert_same_as_local(scene, result)
    again = scene.run(LocalExecutor(workers=1), scene.visited(0.1))
    assert again.status == "nothing-to-do"


@pytest.mark.parametrize(
    ("number", "code", "private"),
    [
        (signal.SIGINT, 130, True),
        pytest.param(signal.SIGTERM, 143, True, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, False, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 143, False, marks=pytest.mark.slow),
    ],
    ids=["Ctrl-C", "SIGTERM", "Ctrl-C on a running cluster", "SIGTERM on a running cluster"],
)
def test_an_interrupted_run_leaves_nothing_behind_and_goes_on(
    request: pytest.FixtureRequest, scene: RayScene, number: signal.Signals, code: int, private: bool
) -> None:
    before = folders()
    options = {"workers": 2} if private else {"address": request.getfixturevalue("nodes").address}
    with DriverProcess(scene, "ray", **options) as driver:
        work_a_little(scene, driver)
        agents = folders() - before
        assert agents, "the agent keeps its folder while the run goes on"
        driver.process.send_signal(number)
        assert driver.wait() == code, driver.log.read_text()
    wait_until(lambda: not driver.left(), "the end of its processes")
    wait_until(lambda: not any(psutil.pid_exists(visit.pid) for visit in scene.visits()), "the end of its workers")
    own = {name for name in folders() & agents if not psutil.pid_exists(int(name.split("-")[2]))}
    assert not own, "folders of agents that are gone"
    if not private:
        result = scene.run(RayExecutor(**options), scene.visited(0.1))
        assert_same_as_local(scene, result)
