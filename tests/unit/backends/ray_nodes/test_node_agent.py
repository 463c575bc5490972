# SPDX-License-Identifier: Apache-2.0
"""The agent of a node and the quota of CPUs that it holds, without Ray: workers are files, clusters are lists."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from thresher.runtime.crashes import crash_notes
from thresher.runtime.crashes.crash_notes import PROCESS, Note, keep_notes_in

pytest.importorskip("ray", reason="ray is not installed")

from thresher.backends.ray_nodes import fleet as ray_fleet
from thresher.backends.ray_nodes import node_agent as ray_node
from thresher.backends.ray_nodes.fleet import Allocation, Node, RayFleet
from thresher.backends.ray_nodes.node_agent import RayNode, fault_in
from thresher.backends.ray_nodes.session import RayNodeFacts
from thresher.backends.ray_nodes.worker import FAULT, NEW, _note_page

# -- what became of a worker ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "signal_number"),
    [
        ("faulthandler._sigsegv()", 11),
        ("faulthandler._sigabrt()", 6),
        ("os._exit(3)", 0),
        ("os.kill(os.getpid(), 9)", 0),
    ],
)
def test_a_crash_leaves_its_signal_and_a_kill_leaves_nothing(tmp_path: Path, code: str, signal_number: int) -> None:
    path = tmp_path / "fault"
    text = f"import faulthandler, os\nfile = open({str(path)!r}, 'w')\nfaulthandler.enable(file)\n{code}"
    subprocess.run([sys.executable, "-c", text], check=False, capture_output=True)
    assert fault_in(str(path)) == signal_number


def test_a_worker_that_left_no_file_is_not_known_to_have_crashed(tmp_path: Path) -> None:
    assert fault_in(str(tmp_path / "nothing")) == 0


def test_a_crash_report_gives_the_note_of_a_worker_and_removes_its_files() -> None:
    node = RayNode("here")
    try:
        folder = node._folder
        keep_notes_in(_note_page(folder, 4))
        Path(folder, f"4-{os.getpid()}{FAULT}").touch()
        Path(folder, f"5-{os.getpid()}{NEW}").touch()
        assert crash_notes.keeper is not None
        crash_notes.keeper.begin(Note(PROCESS, "stage", ("record",)))
        found = node.crash_report(4)
        assert found.note is not None
        assert (found.note.stage, found.note.names, found.crashed_with) == ("stage", ("record",), 0)
        assert os.listdir(folder) == [f"5-{os.getpid()}{NEW}"]
        assert node.crash_report(4).note is None, "it is examined once"
    finally:
        crash_notes.keeper = None
        node.close()
    assert not os.path.exists(folder)
    node.report()  # the last look of a watch that does not know yet


def test_folders_of_agents_that_were_killed_are_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = Path("/dev/shm" if os.path.isdir("/dev/shm") else "/tmp") / f"{ray_node.PREFIX}4194305-test"
    left.mkdir()  # no process has a number that large
    node = RayNode("here")
    node.close()
    assert not left.exists()


# -- how many CPUs a run holds ----------------------------------------------------------------------------------------


@dataclass
class Session:
    """A cluster that is a list."""

    found: list[RayNodeFacts]
    free: dict[str, float] = field(default_factory=dict)

    def nodes(self) -> list[RayNodeFacts]:
        return self.found

    def free_cpus(self) -> dict[str, float]:
        return {node.node_id: node.cpus for node in self.found} | self.free


class Agent:
    """An agent that does nothing."""

    def options(self, **_: Any) -> Agent:
        return self

    def remote(self, *_: Any) -> Agent:
        return self

    @property
    def resources(self) -> Agent:
        return self


def booked(monkeypatch: pytest.MonkeyPatch, session: Session, allocation: Allocation) -> dict[str, int]:
    monkeypatch.setattr(ray_fleet, "RayNodeActor", Agent())
    monkeypatch.setattr(ray_fleet, "RayWorkerActor", Agent())
    fleet = RayFleet(cast(Any, session), allocation)
    fleet._start_agents(session.nodes())
    return {name: node.cpus for name, node in fleet._coming.items()}


def facts(name: str, cpus: float, *, head: bool = False) -> RayNodeFacts:
    return RayNodeFacts(name * 56, name, cpus, 0.0, 10**8, is_head=head)


def test_each_node_gives_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session([facts("a", 2), facts("b", 64), facts("c", 0)])
    assert booked(monkeypatch, session, Allocation()) == {"a": 2, "b": 61, "c": 0}


@pytest.mark.parametrize(("free", "held"), [(4.0, 4), (1.5, 1), (0.0, 1)])
def test_an_agent_asks_for_no_more_than_is_free(monkeypatch: pytest.MonkeyPatch, free: float, held: int) -> None:
    """One that asked for more would wait for ever; where nothing is free it waits for one CPU."""
    session = Session([facts("a", 4)], {"a" * 56: free})
    assert booked(monkeypatch, session, Allocation()) == {"a": held}


def test_workers_are_a_limit_for_all_nodes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session([facts("a", 2), facts("b", 2), facts("c", 2)])
    assert booked(monkeypatch, session, Allocation(workers=3)) == {"a": 2, "b": 1, "c": 0}


def test_the_head_may_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    session = Session([facts("a", 2, head=True), facts("b", 2)])
    assert booked(monkeypatch, session, Allocation(ignore_head=True)) == {"b": 2}


def test_a_node_whose_agent_died_gets_another_one_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_fleet, "RayNodeActor", Agent())
    monkeypatch.setattr(ray_fleet, "RayWorkerActor", Agent())
    session = Session([facts("a", 4)], {"a" * 56: 0.0})  # Ray has not noticed yet that its CPUs are free
    fleet = RayFleet(cast(Any, session), Allocation())
    tries = 0
    fleet._nodes["a"] = Node(facts("a", 4), Agent(), 4)
    while "a" in fleet._nodes:
        fleet.lose("a")
        fleet._start_agents(session.nodes())
        fleet._nodes.update(fleet._coming)
        fleet._coming.clear()
        assert all(node.cpus == 4 for node in fleet._nodes.values())
        tries += 1
    assert tries == ray_fleet.TRIES


def test_actors_that_started_early_become_the_first_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(ray_fleet, "RayNodeActor", Agent())
    monkeypatch.setattr(ray_fleet, "kill_actor", killed.append)
    monkeypatch.setattr(ray_fleet, "new_actor", lambda node_id: object())
    session = Session([facts("a", 2)])
    fleet = RayFleet(cast(Any, session), Allocation())
    fleet._start_agents(session.nodes())
    node = fleet._nodes["a"] = fleet._coming.pop("a")
    first, second = node.spares
    assert {node.take_spare()} <= {first, second}
    fleet.drop_spares()
    assert len(killed) == 1, "nobody needed the other one"
    assert node.take_spare() not in (first, second), "later workers get new ones"
