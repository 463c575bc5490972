# SPDX-License-Identifier: Apache-2.0
"""Workers on Ray that are killed, crash, hang or leak: what is told and set aside is what a local run tells."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.faults.ray_scene import (
    STORE_BYTES,
    RayScene,
    Visited,
    assert_same_as_local,
    lines_of,
    make_input,
    patiently,
    wait_until,
)
from thresher import DocumentBatch, LocalExecutor, Pipeline, Task, processing_stage
from thresher.backends.ray import RayExecutor
from thresher.runtime.payloads.payload import NOWHERE, Payload, PayloadMissing

pytest.importorskip("ray", reason="ray is not installed; `make all-extras` adds it")

from thresher.backends.ray_nodes.link import PayloadRefs

pytestmark = pytest.mark.timeout(900)  # Ray takes its time where many share a machine

DEADLY = "2-7"


@pytest.fixture(scope="module", autouse=True)
def ray_of_the_user() -> Iterator[None]:
    """A Ray that the user has started: every run uses it, and none ends it."""
    import ray

    assert not ray.is_initialized(), "another module has left Ray running"
    given: dict[str, Any] = {"num_cpus": 2, "include_dashboard": False, "object_store_memory": STORE_BYTES}
    patiently(lambda: ray.init(address="local", log_to_driver=False, logging_level="ERROR", **given))
    yield
    assert ray.is_initialized(), "what the user has started stays"
    ray.shutdown()


@pytest.fixture(scope="module")
def made_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_input(tmp_path_factory.mktemp("input") / "in")


@pytest.fixture
def scene(tmp_path: Path, made_input: Path) -> RayScene:
    return RayScene(tmp_path, made_input)


class Crashes(Visited):
    """One record ends its process."""

    name = "crashes"

    def work(self, task: DocumentBatch) -> None:
        if DEADLY in task.values("n"):
            ctypes.string_at(0)


class Hangs(Visited):
    """One record is never done."""

    name = "hangs"
    timeout_s = 2.0

    def work(self, task: DocumentBatch) -> None:
        while DEADLY in task.values("n"):
            time.sleep(0.1)


class Leaks(Visited):
    """Keeps 30 MB of every call."""

    name = "leaks"
    kept: list[bytearray] = []  # noqa: RUF012 - it shall be kept by the process

    def work(self, task: DocumentBatch) -> None:
        self.kept.append(bytearray(b"x") * 30_000_000)


def test_a_killed_worker_is_replaced_and_nothing_is_lost(scene: RayScene) -> None:
    def kill_one() -> None:
        victim = scene.wait_for_visits()[0]
        os.kill(victim.pid, signal.SIGKILL)
        scene.wait_until(lambda: victim.pid not in psutil.pids() and len(scene.visits()) > 1, "another worker")
        scene.go()

    with scene.meanwhile(kill_one):
        result = scene.run(RayExecutor())
    assert_same_as_local(scene, result)
    log = scene.log()
    assert len(lines_of(log, "WorkerLost")) == 1
    assert not lines_of(log, "NodeLost"), "a node is more than one worker"


@pytest.mark.parametrize("kind", [Crashes, pytest.param(Hangs, marks=pytest.mark.slow)])
def test_the_record_that_ends_its_worker_is_set_aside_as_on_one_machine(scene: RayScene, kind: type[Visited]) -> None:
    scene.go()
    result = scene.run(RayExecutor(), kind(str(scene.folder / "visits"), 0.0), max_errors="100%")
    assert result.counts["quarantined"] == 2, "the broken line, and the deadly record"
    assert_same_as_local(scene, result, kind(str(scene.folder / "local-visits"), 0.0))


@pytest.mark.slow
def test_a_worker_that_leaks_is_replaced(scene: RayScene) -> None:
    scene.go()
    result = scene.run(RayExecutor(memory="900MB"), Leaks(str(scene.folder / "visits"), 0.0))
    assert_same_as_local(scene, result)
    log = scene.log()
    assert len(lines_of(log, "StartWorker")) > 2, "a worker that has taken too much makes room for a new one"
    assert not lines_of(log, "WorkerLost"), "none of them was killed"


@processing_stage(name="grown")
def grown(task: Task) -> Task:
    """A result that is too large for a message."""
    return Task(data=bytes(200_000) + str(task.data).encode())


def test_runs_leave_nothing_behind_in_a_process_that_goes_on() -> None:
    import ray

    def run() -> None:
        tasks = [Task(data=number) for number in range(6)]
        result = Pipeline("again", stages=[grown]).run(
            RayExecutor(), initial_tasks=tasks, ledger=False, progress="none"
        )
        assert sorted(task.data[200_000:] for task in result) == [str(number).encode() for number in range(6)]

    def threads() -> int:
        return sum(thread.name.startswith(("worker-", "nodes")) for thread in threading.enumerate())

    run()
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        run()
    assert threads() == 0
    assert len(os.listdir("/proc/self/fd")) <= files + 4
    assert not ours_in_shared_memory()
    wait_until(lambda: ray.available_resources().get("CPU") == 2.0, "all CPUs to be given back")


def ours_in_shared_memory() -> list[str]:
    """Folders of agents whose process is one of this Ray's; those of others on this machine are not ours."""
    own = {child.pid for child in psutil.Process().children(recursive=True)}
    names = [name for name in os.listdir("/dev/shm") if name.startswith("thresher-node-")]
    return [name for name in names if int(name.split("-")[2]) in own]


def test_a_result_that_is_lost_before_the_driver_has_it_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = PayloadRefs.fetch
    lost: list[Payload] = []

    def lose_the_first(book: PayloadRefs, payload: Payload) -> Payload:
        found = fetch(book, payload)
        if payload.arena != NOWHERE and not lost:
            lost.append(payload)
            raise PayloadMissing("as if its node had gone at this moment")
        return found

    monkeypatch.setattr(PayloadRefs, "fetch", lose_the_first)
    tasks = [Task(data=number) for number in range(6)]
    result = Pipeline("lost", stages=[grown]).run(RayExecutor(), initial_tasks=tasks, ledger=False, progress="none")
    assert lost
    assert sorted(task.data[200_000:] for task in result) == [str(number).encode() for number in range(6)]
    local = Pipeline("lost", stages=[grown]).run(
        LocalExecutor(workers=1), initial_tasks=tasks, ledger=False, progress="none"
    )
    assert result.counts == local.counts
