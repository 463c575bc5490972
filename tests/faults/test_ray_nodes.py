# SPDX-License-Identifier: Apache-2.0
"""Nodes of a Ray cluster that go, come, and fall behind, in the middle of a run. The output is that of a local run."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.disturbed import digests
from tests.faults.ray_scene import (
    BROKEN,
    UNIT,
    UNITS,
    RayNodes,
    RayScene,
    Visited,
    assert_same_as_local,
    lines_of,
    make_input,
    nodes_by_payloads,
    units_by_node,
)
from tests.memory_room import memory_beside_this_process
from thresher import GlobalShuffle, GroupBy, ProcessingStage, Resources, WorkerMetadata
from thresher.backends.ray import RayExecutor
from thresher.ledger.records import JOIN_PREFIX
from thresher.runtime.processes.worker_process import PAYLOAD_LOST

pytest.importorskip("ray", reason="ray is not installed; `make all-extras` adds it")

from thresher.backends.ray_nodes.link import PayloadRefs

pytestmark = pytest.mark.timeout(900)  # Ray takes its time where many share a machine


@pytest.fixture(scope="module")
def nodes() -> Iterator[RayNodes]:
    nodes = RayNodes()
    yield nodes
    nodes.close()


@pytest.fixture(scope="module")
def made_input(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_input(tmp_path_factory.mktemp("input") / "in")


@pytest.fixture
def scene(tmp_path: Path, made_input: Path) -> RayScene:
    return RayScene(tmp_path, made_input)


def on_head(nodes: RayNodes, name: str) -> bool:
    return bool(nodes.named(name) is nodes.cluster.head_node)


def test_a_lost_node_costs_the_work_in_flight_on_it_and_nothing_else(nodes: RayNodes, scene: RayScene) -> None:
    nodes.need(2)
    lost: list[str] = []
    before: set[str] = set()

    def lose_one() -> None:
        visits = scene.wait_for_visits(nodes=3)
        lost.append(next(visit.node for visit in visits if not on_head(nodes, visit.node)))
        scene.hold(lost[0])
        scene.go()
        scene.wait_for_files(6)
        before.update(digests(scene.output))
        nodes.remove(nodes.named(lost[0]))

    with scene.meanwhile(lose_one):
        result = scene.run(RayExecutor(address=nodes.address))
    assert_same_as_local(scene, result)

    log = scene.log()
    (loss,) = lines_of(log, "NodeLost")
    assert loss["node"] == lost[0]
    committed = {line["unit"] for line in lines_of(log, "UnitCommitted") if line["n"] < loss["n"]}
    assert len(committed) >= 6
    again = [ref["unit"] for line in lines_of(log, "Dispatch") if line["n"] > loss["n"] for ref in line["tasks"]]
    assert not committed & set(again), "what was committed is not run again"
    in_flight = units_by_node(log, until=loss["n"])[lost[0]]
    assert in_flight, "the node was at work when it was lost"
    repeated = {unit for unit in again if unit in started_before(log, loss["n"])}
    assert repeated == in_flight, "only what was in flight on the lost node is run again"


def test_a_node_that_is_lost_in_the_second_phase_costs_nothing_that_was_committed(
    nodes: RayNodes, scene: RayScene
) -> None:
    nodes.need(2)
    scene.before = (GlobalShuffle(seed=1, blocksize=UNIT),)

    def lose_one() -> None:
        visits = scene.wait_for_visits(nodes=2)
        lost = next(visit.node for visit in visits if not on_head(nodes, visit.node))
        scene.hold(lost)
        scene.go()
        scene.wait_for_files(3)
        nodes.remove(nodes.named(lost))

    with scene.meanwhile(lose_one):
        result = scene.run(RayExecutor(address=nodes.address))
    assert_same_as_local(scene, result)
    log = scene.log()
    (loss,) = lines_of(log, "NodeLost")
    committed = {line["unit"] for line in lines_of(log, "UnitCommitted") if line["n"] < loss["n"]}
    again = {ref["unit"] for line in lines_of(log, "Dispatch") if line["n"] > loss["n"] for ref in line["tasks"]}
    assert len(committed) >= UNITS, "the first phase, and a part of the second"
    assert not committed & again
    assert not list((scene.output / "_thresher").glob("phases/*"))


def test_a_count_by_key_is_exact_on_several_nodes_and_within_the_memory_of_each(
    nodes: RayNodes, scene: RayScene
) -> None:
    nodes.need(2)
    memory = memory_beside_this_process(900 * 10**6)
    scene.before = (scene.visited(),)
    count = GroupBy("source", {"documents": "count", "size": "sum(characters)"}, blocksize="64kB")

    def let_all_take_part() -> None:
        scene.wait_for_visits(nodes=3)
        scene.go()

    with scene.meanwhile(let_all_take_part):
        result = scene.run(RayExecutor(address=nodes.address, memory=memory), count)
    assert_same_as_local(scene, result, count)
    assert len(digests(scene.output)) > 3, "the groups are in several files"

    expected: dict[str, tuple[int, int]] = {}
    for document in documents_of(scene.input):
        documents, size = expected.get(document["source"], (0, 0))
        expected[document["source"]] = documents + 1, size + len(document["text"])
    written = documents_of(scene.output)
    assert len(written) == len(expected)
    assert {group["source"]: (group["documents"], group["size"]) for group in written} == expected

    log = scene.log()
    joined = {line["unit"] for line in lines_of(log, "UnitCommitted") if line["unit"].startswith(JOIN_PREFIX)}
    assert joined, "files between the phases were joined"
    assert 0 < result.peak_memory_bytes <= memory


def documents_of(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line != BROKEN]


def started_before(log: list[dict[str, Any]], n: int) -> set[str]:
    return {ref["unit"] for line in lines_of(log, "Dispatch") if line["n"] < n for ref in line["tasks"]}


@pytest.fixture
def anchored(nodes: RayNodes, scene: RayScene) -> Iterator[ProcessingStage[Any, Any]]:
    """The stage, on a node that reads nothing: what is read lies on two other nodes until the stage goes on."""
    nodes.need(2)
    anchor = nodes.add(num_cpus=0, resources={"anchor": 1})
    yield scene.visited(num_workers=1).with_(resources=Resources(custom={"anchor": 1.0}))
    nodes.remove(anchor)


def lose_the_one_that_holds_most(nodes: RayNodes, scene: RayScene, lost: list[str]) -> None:
    """Nothing is written yet: all that was read lies in the stores."""

    def holders() -> list[str]:
        return nodes_by_payloads(scene.log()) if scene.visits() else []

    scene.wait_until(holders, "payloads")
    lost.extend(holders()[:1])
    nodes.remove(nodes.named(lost[0]))
    scene.go()


def test_the_node_that_holds_most_payloads_takes_them_along_and_their_units_start_again(
    nodes: RayNodes, scene: RayScene, anchored: ProcessingStage[Any, Any]
) -> None:
    lost: list[str] = []
    with scene.meanwhile(lambda: lose_the_one_that_holds_most(nodes, scene, lost)):
        result = scene.run(RayExecutor(address=nodes.address, ignore_head_node=True), anchored)
    assert_same_as_local(scene, result)
    log = scene.log()
    assert [line["node"] for line in lines_of(log, "NodeLost")] == lost
    assert lines_of(log, "PayloadLost"), "what the node had read was lost with it"
    assert len(lines_of(log, "UnitCommitted")) == result.units_total


@pytest.mark.slow
def test_an_object_that_is_found_to_be_lost_by_its_reader_is_made_again(
    nodes: RayNodes, scene: RayScene, anchored: ProcessingStage[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The driver does not know what was on the lost node: those who want to read it find out.
    monkeypatch.setattr(PayloadRefs, "made_by", lambda book, workers: [])
    lost: list[str] = []
    with scene.meanwhile(lambda: lose_the_one_that_holds_most(nodes, scene, lost)):
        result = scene.run(RayExecutor(address=nodes.address, ignore_head_node=True), anchored)
    assert_same_as_local(scene, result)
    log = scene.log()
    failed = {line["task"] for line in lines_of(log, "TaskFailed") if line["error"] == PAYLOAD_LOST}
    assert failed
    assert failed <= {line["task"] for line in lines_of(log, "PayloadLost")}


@pytest.mark.slow
def test_a_node_that_joins_late_is_used(nodes: RayNodes, scene: RayScene) -> None:
    known = {str(node.node_id)[:8] for node in nodes.cluster.list_all_nodes()}

    def add_one() -> None:
        scene.wait_for_visits()
        nodes.add()
        scene.wait_until(lambda: {v.node[-8:] for v in scene.visits()} - known, "work on the new node")
        scene.go()

    with scene.meanwhile(add_one):
        result = scene.run(RayExecutor(address=nodes.address))
    assert_same_as_local(scene, result)
    log = scene.log()
    joined = [line["node"] for line in lines_of(log, "NodeJoined") if line["node"][-8:] not in known]
    assert len(joined) == 1
    workers = [line["worker"] for line in lines_of(log, "StartWorker") if line.get("node") == joined[0]]
    assert {line["worker"] for line in lines_of(log, "WorkerReady")} & set(workers)


@pytest.mark.slow
def test_a_slow_node_holds_nobody_up(nodes: RayNodes, scene: RayScene) -> None:
    nodes.need(1)

    def let_one_stand_still() -> None:
        visits = scene.wait_for_visits(nodes=2)
        scene.hold(visits[0].node)
        scene.go()
        # All but what the slow node holds is written while it stands still.
        scene.wait_for_files(UNITS - 4)
        (scene.folder / "visits" / f"hold@{visits[0].node}").unlink()

    with scene.meanwhile(let_one_stand_still):
        result = scene.run(RayExecutor(address=nodes.address))
    assert_same_as_local(scene, result)
    assert not lines_of(scene.log(), "NodeLost")


@pytest.mark.slow
def test_an_agent_that_dies_is_replaced_and_its_node_is_used_again(nodes: RayNodes, scene: RayScene) -> None:
    nodes.need(1)
    victims: list[str] = []

    def kill_an_agent() -> None:
        visits = scene.wait_for_visits(nodes=2)
        victim = next(visit.node for visit in visits if not on_head(nodes, visit.node))
        victims.append(victim)
        os.kill(nodes.agent_pid(victim), signal.SIGKILL)
        old = {visit.pid for visit in visits}
        scene.wait_until(
            lambda: [v for v in scene.visits() if v.node == victim and v.pid not in old], "work on the node again"
        )
        scene.go()

    with scene.meanwhile(kill_an_agent):
        result = scene.run(RayExecutor(address=nodes.address))
    assert_same_as_local(scene, result)
    log = scene.log()
    assert [line["node"] for line in lines_of(log, "NodeLost")] == victims
    assert victims[0] in [line["node"] for line in lines_of(log, "NodeJoined")]


@pytest.mark.slow
def test_the_head_node_is_left_alone_where_that_is_asked_for(nodes: RayNodes, scene: RayScene) -> None:
    nodes.need(1)
    scene.go()
    result = scene.run(RayExecutor(address=nodes.address, ignore_head_node=True))
    assert_same_as_local(scene, result)
    assert not any(on_head(nodes, visit.node) for visit in scene.visits())


@pytest.mark.slow
def test_cpus_that_another_job_holds_are_left_to_it(nodes: RayNodes, scene: RayScene) -> None:
    nodes.need(1)
    with nodes.other_job(cpus=1.0) as node:
        scene.go()
        result = scene.run(RayExecutor(address=nodes.address))
    assert_same_as_local(scene, result)
    assert not any(visit.node.endswith(node[:8]) for visit in scene.visits())


class Sees(Visited):
    """Leaves what its worker sees of the accelerators."""

    name = "sees"

    def setup(self, worker_metadata: WorkerMetadata | None = None) -> None:
        super().setup(worker_metadata)
        assert worker_metadata is not None
        devices = ",".join(map(str, worker_metadata.devices))
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "unset")
        Path(self.folder, f"sees@{self.node}@{os.getpid()}@{devices}@{visible}").touch()


@pytest.mark.slow
def test_workers_with_accelerators_are_spread_and_each_sees_its_own(nodes: RayNodes, scene: RayScene) -> None:
    added = [nodes.add(num_gpus=2) for _ in range(2)]
    stage = Sees(str(scene.folder / "visits")).with_(resources=Resources(gpus=1.0), num_workers=4)

    def sights() -> list[list[str]]:
        return [path.name.split("@")[1:] for path in (scene.folder / "visits").glob("sees@*")]

    def wait_for_all() -> None:
        scene.wait_until(lambda: len(sights()) == 4, "four workers with accelerators")
        scene.go()

    with scene.meanwhile(wait_for_all):
        result = scene.run(RayExecutor(address=nodes.address), stage)
    for node in added:
        nodes.remove(node)
    assert_same_as_local(scene, result)
    assert all(devices == visible for _, _, devices, visible in sights()), "what they are told is what they see"
    names = {str(node.node_id)[:8] for node in added}
    assert sorted((node[-8:], devices) for node, _, devices, _ in sights()) == sorted(
        (name, device) for name in names for device in "01"
    )
