# SPDX-License-Identifier: Apache-2.0
"""The nodes of a Ray cluster that a run uses: an agent on each, those that come later, those that go."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from thresher.backends.ray_node import Autopsy, NodeMeans, NodeReport, RayNodeActor
from thresher.backends.ray_session import RayNodeFacts, RaySession, kill_actor
from thresher.backends.ray_worker import RayWorkerActor
from thresher.core.resources import Resources
from thresher.errors import RunFailedError
from thresher.runtime.accelerators import DEFAULT_MEMORY_BYTES
from thresher.runtime.memory import DEFAULT_SHARE
from thresher.scheduler.model import NodeSpec

WATCH_S = 0.5
"""Time between two looks at the nodes."""
ANSWER_S = 5.0
"""How long agents may take to come up beside the first one, and to end."""
UP_S = 60.0
"""How long the first agent may take until it is up; another job may hold all CPUs."""
FREE_S = 2.0
"""How long the first look at the cluster waits for CPUs that another run may just be giving back."""
TRIES = 3
"""Agents that may fail on one node before it is left alone."""


@dataclass(frozen=True)
class Wish:
    """What a run may use of each node."""

    workers: int | None = None
    """Shared workers of the whole run; `None`: as many as `share` allows."""
    share: float = 0.95
    """Part of a node's CPUs."""
    ignore_head: bool = False
    """Leave the head node alone."""


@dataclass(eq=False)
class Node:
    """A node and its agent."""

    facts: RayNodeFacts
    """What Ray says about it."""
    agent: Any
    """The agent."""
    cpus: int
    """CPUs that the agent holds."""
    means: NodeMeans | None = None
    """What the agent found; `None`: it has not answered yet."""
    asked: Any = None
    """The question for that."""
    surroundings: Any = None
    """What its workers will find; an object that is there when the node is set up."""
    report: NodeReport | None = None
    """The last measurement."""
    measuring: Any = None
    """The next one."""
    spares: list[Any] = field(default_factory=list)
    """Actors whose processes start while the run is still being planned."""

    def take_spare(self) -> Any:
        """An actor that asks for nothing special, and may be up already."""
        return self.spares.pop() if self.spares else new_actor(self.node_id)

    def drop_spares(self) -> None:
        """No more workers are about to start."""
        while self.spares:
            kill_actor(self.spares.pop())

    @property
    def node_id(self) -> str:
        """Ray's id."""
        return self.facts.node_id

    def device_bytes(self) -> tuple[int, ...]:
        """Memory of each accelerator that Ray counts; found by NVML, or else assumed."""
        count = int(self.facts.gpus)
        found = self.means.gpus if self.means is not None else ()
        return found if len(found) == count else (DEFAULT_MEMORY_BYTES,) * count


def new_actor(node_id: str, **asks: Any) -> Any:
    """An actor on a node, for a worker."""
    affinity = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return RayWorkerActor.options(
        num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=affinity, **asks
    ).remote()


@dataclass(frozen=True)
class NodeUp:
    """A node may be used from now on."""

    spec: NodeSpec
    """What it has."""


@dataclass(frozen=True)
class NodeGone:
    """A node is lost."""

    node: str
    """Its name."""
    reason: str
    """Why, for people."""


@dataclass
class Fleet:
    """All nodes that a run uses or will use."""

    session: RaySession
    """The cluster."""
    wish: Wish
    """What may be used."""
    memory_bytes: int | None = None
    """Ceiling of each node; `None`: a share of the smallest."""
    _nodes: dict[str, Node] = field(default_factory=dict)
    """By name, those that are up."""
    _coming: dict[str, Node] = field(default_factory=dict)
    """By name, those whose agent has not answered yet."""
    _had: dict[str, int] = field(default_factory=dict)
    """By name, CPUs of those that were lost; Ray may still have the node, and only its agent has died."""
    _failures: Counter[str] = field(default_factory=Counter)
    """By name, agents that have failed."""
    _refusal: str = ""
    """Why the last one failed."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _watcher: threading.Thread | None = None
    _setup: Any = None
    _watches_time: bool = False

    # -- before the run -----------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start an agent on each node and wait for those that come up soon."""
        self._wait_for_cpus()
        self._book_new(self.session.nodes())
        if not self._coming:
            raise RunFailedError("the Ray cluster has no node that may be used (ignore_head_node leaves the head out)")
        ends_at = time.monotonic() + UP_S
        while self._coming and not self._nodes and time.monotonic() < ends_at:
            self._welcome(1, ends_at - time.monotonic())
        self._welcome(len(self._coming), ANSWER_S)
        if not self._nodes:
            raise RunFailedError(
                f"the agents of this run could not start on any node of the Ray cluster: {self._refusal}"
                if self._refusal
                else f"no node of the Ray cluster gave this run a CPU within {UP_S:.0f} s; another job may hold them "
                "all. See `ray status`"
            )

    def _usable(self, found: list[RayNodeFacts]) -> list[RayNodeFacts]:
        return [facts for facts in found if not (self.wish.ignore_head and facts.is_head)]

    def _wait_for_cpus(self) -> None:
        """A run that has just ended gives its CPUs back a moment later."""
        ends_at = time.monotonic() + FREE_S
        while time.monotonic() < ends_at:
            free = self.session.free_cpus()
            usable = self._usable(self.session.nodes())
            offered = sum(int(min(free.get(node.node_id, 0.0), self._share(node))) for node in usable)
            if offered >= (self.wish.workers or sum(map(self._share, usable))):
                return
            time.sleep(0.1)

    def _book_new(self, found: list[RayNodeFacts]) -> None:
        """Start agents on nodes that have none."""
        known = {node.node_id for node in self._booked()}
        new = [node for node in self._usable(found) if node.node_id not in known and self._failures[node.name] < TRIES]
        if not new:
            return
        free = self.session.free_cpus()
        for facts in new:
            cpus = self._had.get(facts.name) or self._quota(facts, free.get(facts.node_id, facts.cpus))
            affinity = NodeAffinitySchedulingStrategy(facts.node_id, soft=False)
            agent = RayNodeActor.options(num_cpus=cpus, max_restarts=0, scheduling_strategy=affinity).remote(facts.name)
            spares = [new_actor(facts.node_id) for _ in range(cpus)]
            self._coming[facts.name] = Node(facts, agent, cpus, asked=agent.means.remote(), spares=spares)

    def _quota(self, facts: RayNodeFacts, free: float) -> int:
        """CPUs of a node that the run holds."""
        if facts.cpus < 1:
            return 0
        most = max(1, min(self._share(facts), int(free)))
        if self.wish.workers is None:
            return most
        left = self.wish.workers - sum(node.cpus for node in self._booked())
        return max(0, min(most, left))

    def _share(self, facts: RayNodeFacts) -> int:
        return int(facts.cpus * self.wish.share + 0.5)

    def _booked(self) -> list[Node]:
        return [*self._up(), *self._coming.values()]

    def _up(self) -> list[Node]:
        """Those that are up; a list, since two threads change what is up."""
        return list(self._nodes.values())

    def _welcome(self, wanted: int, timeout_s: float) -> list[Node]:
        """Nodes whose agents have answered by now; waits for so many."""
        asked = {node.asked: node for node in self._coming.values()}
        if not asked:
            return []
        ready, _ = ray.wait(list(asked), num_returns=max(1, min(wanted, len(asked))), timeout=max(0.0, timeout_s))
        found = []
        for ref in ready:
            node = asked[ref]
            name = node.facts.name
            try:
                node.means = ray.get(ref)
            except ray.exceptions.RayError as error:  # it was lost before it was up
                self._failures[name] += 1
                self._refusal = str(error).strip()
                node.drop_spares()
            else:
                self._nodes[name] = node
                found.append(node)
            del self._coming[name]
        return found

    @property
    def workers(self) -> int:
        """Shared workers of all nodes that are up."""
        return max(1, sum(node.cpus for node in self._up()))

    def memory(self) -> int:
        """Ceiling of each node."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return int(min(node.means.memory_bytes for node in self._up() if node.means) * DEFAULT_SHARE)

    def store_bytes(self) -> int:
        """The smallest object store."""
        return min(node.facts.store_bytes for node in self._up())

    def specs(self) -> tuple[NodeSpec, ...]:
        """The nodes, as the scheduler sees them."""
        return tuple(self._spec(node) for node in self._up())

    def _spec(self, node: Node) -> NodeSpec:
        return NodeSpec(
            node=node.facts.name,
            cpus=float(node.cpus),
            gpus=node.device_bytes(),
            memory_bytes=self.memory(),
            custom=node.facts.custom,
        )

    # -- during the run -----------------------------------------------------------------------------------------------

    def start(self, setup: Any, arrived: SimpleQueue[tuple[int, Any]], *, watches_time: bool) -> None:
        """Set all nodes up and watch the cluster; what happens to nodes is put into `arrived`."""
        self._setup, self._watches_time = setup, watches_time
        for node in self._up():
            self._prepare(node)
        self._watcher = threading.Thread(target=self._watch, args=(arrived,), name="nodes", daemon=True)
        self._watcher.start()

    def _prepare(self, node: Node) -> None:
        node.surroundings = node.agent.prepare.remote(self._setup, watches_time=self._watches_time)

    def node(self, name: str) -> Node | None:
        """A node that is up."""
        return self._nodes.get(name)

    def drop_spares(self) -> None:
        """All workers that were wanted at once have started."""
        for node in self._up():
            node.drop_spares()

    def asks(self, needs: Resources, name: str) -> dict[str, Any]:
        """What a worker asks Ray for."""
        asked: dict[str, Any] = {}
        node = self._nodes[name]
        if needs.gpus:
            asked["num_gpus"] = needs.gpus
        elif needs.gpu_memory_gb:
            asked["num_gpus"] = round(min(1.0, needs.gpu_memory_gb * 10**9 / min(node.device_bytes())), 4)
        custom = {resource: amount for resource, amount in needs.custom.items() if amount}
        if custom:
            asked["resources"] = custom
        return asked

    def reports(self) -> dict[str, NodeReport]:
        """The last measurement of each node."""
        return {node.facts.name: node.report for node in self._up() if node.report is not None}

    def autopsy(self, name: str, worker: int) -> Autopsy | None:
        """What the agent of a node knows about a dead worker; `None`: the agent is gone, or the run is over.

        A node that is busy answers late. Whether it is lost is not decided here, but by Ray.
        """
        node = self._nodes.get(name)
        if node is None:
            return None
        try:
            asked = node.agent.autopsy.remote(worker)
            while not self._ended.is_set() and self._nodes.get(name) is node:
                if ray.wait([asked], timeout=WATCH_S)[0]:
                    found: Autopsy = ray.get(asked)
                    return found
        except Exception:  # it is gone, or Ray was shut down
            return None
        return None

    def forget(self, name: str, worker: int) -> None:
        """A worker has ended as it was told."""
        node = self._nodes.get(name)
        if node is not None:
            node.agent.forget.remote(worker)

    def lose(self, name: str) -> None:
        """A node is gone. Should only its agent have died, the node gets another one."""
        node = self._nodes.pop(name, None)
        if node is not None:
            self._had[name] = node.cpus
            self._failures[name] += 1
            kill_actor(node.agent)
            node.drop_spares()

    def _watch(self, arrived: SimpleQueue[tuple[int, Any]]) -> None:
        while not self._ended.wait(WATCH_S) and ray.is_initialized():
            with contextlib.suppress(Exception):  # the head of the cluster does not answer; it may the next time
                self._look_at_nodes(arrived)

    def _look_at_nodes(self, arrived: SimpleQueue[tuple[int, Any]]) -> None:
        found = self.session.nodes()
        alive = {facts.name for facts in found}
        for node in self._up():
            name = node.facts.name
            if name not in alive:
                arrived.put((0, NodeGone(name, "Ray lost the node")))
            elif not self._measure(node):
                arrived.put((0, NodeGone(name, "the agent of the run on this node has died")))
        self._book_new(found)
        for node in self._welcome(len(self._coming), 0.0):
            self._prepare(node)
            arrived.put((0, NodeUp(self._spec(node))))

    def _measure(self, node: Node) -> bool:
        """Take a measurement that is there and ask for the next; whether the agent still lives."""
        if node.measuring is not None:
            ready, _ = ray.wait([node.measuring], timeout=0)
            if not ready:
                return True
            try:
                node.report = ray.get(node.measuring)
            except ray.exceptions.ActorUnavailableError:
                pass  # the network; Ray will say when it is for good
            except ray.exceptions.RayActorError:
                return False
        node.measuring = node.agent.report.remote()
        return True

    def close(self) -> None:
        """End the agents."""
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join(ANSWER_S)
        booked = self._booked()
        self._nodes.clear()
        self._coming.clear()
        with contextlib.suppress(Exception):  # they are gone already
            closing = [node.agent.close.remote() for node in booked if node.means is not None]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=ANSWER_S)
        for node in booked:
            kill_actor(node.agent)
            node.drop_spares()
