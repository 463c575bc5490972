# SPDX-License-Identifier: Apache-2.0
"""The nodes of a Ray cluster that a run uses: an agent on each, nodes that join later, nodes that are lost."""

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

from thresher.backends.ray_nodes.node_agent import CrashReport, NodeReport, NodeResources, RayNodeActor
from thresher.backends.ray_nodes.session import RayNodeFacts, RaySession, kill_actor
from thresher.backends.ray_nodes.worker import RayWorkerActor
from thresher.core.resources import Resources
from thresher.errors import RunFailedError
from thresher.runtime.memory.usage import DEFAULT_SHARE
from thresher.runtime.processes.accelerators import DEFAULT_MEMORY_BYTES
from thresher.scheduler.model import NodeSpec

WATCH_S = 0.5
"""Interval between two checks of the nodes."""
ANSWER_S = 5.0
"""Time limit for agents to answer after the first one, and to end."""
UP_S = 300.0
"""Time limit for the first agent to start; another job may hold all CPUs."""
FREE_S = 2.0
"""Longest time that opening waits for CPUs that a previous run may still be releasing."""
TRIES = 3
"""Number of failed agents after which a node is no longer used."""


@dataclass(frozen=True)
class Allocation:
    """The share of each node that a run may use."""

    workers: int | None = None
    """Shared workers of the whole run; `None`: as many as `share` allows."""
    share: float = 0.95
    """Share of a node's CPUs."""
    ignore_head: bool = False
    """Do not use the head node."""


@dataclass(eq=False)
class Node:
    """A node and its agent."""

    facts: RayNodeFacts
    """Resources reported by Ray."""
    agent: Any
    """Handle of the agent."""
    cpus: int
    """CPUs that the agent holds."""
    resources: NodeResources | None = None
    """Resources found by the agent; `None`: it has not answered yet."""
    asked: Any = None
    """Reference to that answer."""
    node_context: Any = None
    """Reference to the `NodeContext` of its workers; ready when the node is set up."""
    report: NodeReport | None = None
    """The last memory report."""
    measuring: Any = None
    """Reference to the next one."""
    spares: list[Any] = field(default_factory=list)
    """Actors whose processes start while the run is still being planned."""

    def take_spare(self) -> Any:
        """Return an actor without special resources; its process may have started already."""
        return self.spares.pop() if self.spares else new_actor(self.node_id)

    def drop_spares(self) -> None:
        """End the actors that no worker has used."""
        while self.spares:
            kill_actor(self.spares.pop())

    @property
    def node_id(self) -> str:
        """Ray's id."""
        return self.facts.node_id

    def device_bytes(self) -> tuple[int, ...]:
        """Return the memory of each accelerator that Ray counts, as found by NVML or else assumed."""
        count = int(self.facts.gpus)
        found = self.resources.gpus if self.resources is not None else ()
        return found if len(found) == count else (DEFAULT_MEMORY_BYTES,) * count


def new_actor(node_id: str, **asks: Any) -> Any:
    """Start an actor for a worker on a node."""
    affinity = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return RayWorkerActor.options(
        num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=affinity, **asks
    ).remote()


@dataclass(frozen=True)
class NodeUp:
    """A node may be used from now on."""

    spec: NodeSpec
    """Its resources."""


@dataclass(frozen=True)
class NodeGone:
    """A node was lost."""

    node: str
    """Its name."""
    reason: str
    """The reason, for display."""


@dataclass
class RayFleet:
    """All nodes that a run uses or will use."""

    session: RaySession
    """The connection to the cluster."""
    allocation: Allocation
    """Resources that may be used."""
    memory_bytes: int | None = None
    """Memory limit of each node; `None`: a share of the smallest."""
    _nodes: dict[str, Node] = field(default_factory=dict)
    """Nodes that are up, by name."""
    _coming: dict[str, Node] = field(default_factory=dict)
    """Nodes whose agent has not answered yet, by name."""
    _had: dict[str, int] = field(default_factory=dict)
    """CPUs of lost nodes, by name; Ray may still have such a node if only its agent crashed."""
    _failures: Counter[str] = field(default_factory=Counter)
    """Number of failed agents, by node name."""
    _last_error: str = ""
    """Error of the last failed agent."""
    _ended: threading.Event = field(default_factory=threading.Event)
    _watcher: threading.Thread | None = None
    _setup: Any = None
    _shortest_limit_s: float = 0.0

    # -- before the run ------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start an agent on each node and wait for those that answer soon."""
        self._wait_for_cpus()
        self._start_agents(self.session.nodes())
        if not self._coming:
            raise RunFailedError("the Ray cluster has no node that may be used (ignore_head_node leaves the head out)")
        ends_at = time.monotonic() + UP_S
        while self._coming and not self._nodes and time.monotonic() < ends_at:
            self._register_ready(1, ends_at - time.monotonic())
        self._register_ready(len(self._coming), ANSWER_S)
        if not self._nodes:
            raise RunFailedError(
                f"the agents of this run could not start on any node of the Ray cluster: {self._last_error}"
                if self._last_error
                else f"no node of the Ray cluster gave this run a CPU within {UP_S:.0f} s; another job may hold them "
                "all. See `ray status`"
            )

    def _usable(self, found: list[RayNodeFacts]) -> list[RayNodeFacts]:
        return [facts for facts in found if not (self.allocation.ignore_head and facts.is_head)]

    def _wait_for_cpus(self) -> None:
        """Wait until the CPUs of a run that has just ended are free again, within a time limit."""
        ends_at = time.monotonic() + FREE_S
        while time.monotonic() < ends_at:
            free = self.session.free_cpus()
            usable = self._usable(self.session.nodes())
            offered = sum(int(min(free.get(node.node_id, 0.0), self._share(node))) for node in usable)
            if offered >= (self.allocation.workers or sum(map(self._share, usable))):
                return
            time.sleep(0.1)

    def _start_agents(self, found: list[RayNodeFacts]) -> None:
        """Start agents on nodes without one."""
        known = {node.node_id for node in self._all_nodes()}
        new = [node for node in self._usable(found) if node.node_id not in known and self._failures[node.name] < TRIES]
        if not new:
            return
        free = self.session.free_cpus()
        for facts in new:
            cpus = self._had.get(facts.name) or self._quota(facts, free.get(facts.node_id, facts.cpus))
            affinity = NodeAffinitySchedulingStrategy(facts.node_id, soft=False)
            agent = RayNodeActor.options(num_cpus=cpus, max_restarts=0, scheduling_strategy=affinity).remote(facts.name)
            spares = [new_actor(facts.node_id) for _ in range(cpus)]
            self._coming[facts.name] = Node(facts, agent, cpus, asked=agent.resources.remote(), spares=spares)

    def _quota(self, facts: RayNodeFacts, free: float) -> int:
        """Return how many CPUs of a node the run holds."""
        if facts.cpus < 1:
            return 0
        most = max(1, min(self._share(facts), int(free)))
        if self.allocation.workers is None:
            return most
        left = self.allocation.workers - sum(node.cpus for node in self._all_nodes())
        return max(0, min(most, left))

    def _share(self, facts: RayNodeFacts) -> int:
        return int(facts.cpus * self.allocation.share + 0.5)

    def _all_nodes(self) -> list[Node]:
        return [*self._up(), *self._coming.values()]

    def _up(self) -> list[Node]:
        """Return the nodes that are up, as a list, since two threads change the dict."""
        return list(self._nodes.values())

    def _register_ready(self, wanted: int, timeout_s: float) -> list[Node]:
        """Register the nodes whose agents have answered and return them; wait for up to `wanted` of them."""
        asked = {node.asked: node for node in self._coming.values()}
        if not asked:
            return []
        ready, _ = ray.wait(list(asked), num_returns=max(1, min(wanted, len(asked))), timeout=max(0.0, timeout_s))
        found = []
        for ref in ready:
            node = asked[ref]
            name = node.facts.name
            try:
                node.resources = ray.get(ref)
            except ray.exceptions.RayError as error:  # the agent crashed before it answered
                self._failures[name] += 1
                self._last_error = str(error).strip()
                node.drop_spares()
            else:
                self._nodes[name] = node
                found.append(node)
            del self._coming[name]
        return found

    @property
    def workers(self) -> int:
        """Number of shared workers on all nodes that are up."""
        return max(1, sum(node.cpus for node in self._up()))

    def memory(self) -> int:
        """Return the memory limit of each node."""
        if self.memory_bytes is not None:
            return self.memory_bytes
        return int(min(node.resources.memory_bytes for node in self._up() if node.resources) * DEFAULT_SHARE)

    def store_bytes(self) -> int:
        """Return the size of the smallest object store."""
        return min(node.facts.store_bytes for node in self._up())

    def specs(self) -> tuple[NodeSpec, ...]:
        """Return the nodes as input of the scheduler."""
        return tuple(self._spec(node) for node in self._up())

    def _spec(self, node: Node) -> NodeSpec:
        return NodeSpec(
            node=node.facts.name,
            cpus=float(node.cpus),
            gpus=node.device_bytes(),
            memory_bytes=self.memory(),
            custom=node.facts.custom,
        )

    # -- during the run ------------------------------------------------------------------------------------------------

    def start(self, setup: Any, arrived: SimpleQueue[tuple[int, Any]], shortest_limit_s: float) -> None:
        """Set up all nodes and watch the cluster; changes of nodes are put into `arrived`."""
        self._setup, self._shortest_limit_s = setup, shortest_limit_s
        for node in self._up():
            self._prepare(node)
        self._watcher = threading.Thread(target=self._watch, args=(arrived,), name="nodes", daemon=True)
        self._watcher.start()

    def _prepare(self, node: Node) -> None:
        node.node_context = node.agent.prepare.remote(self._setup, self._shortest_limit_s)

    def node(self, name: str) -> Node | None:
        """Return a node that is up, or `None`."""
        return self._nodes.get(name)

    def drop_spares(self) -> None:
        """End the spare actors once the first workers have started."""
        for node in self._up():
            node.drop_spares()

    def asks(self, needs: Resources, name: str) -> dict[str, Any]:
        """Return the resources that a worker requests from Ray."""
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
        """Return the last memory report of each node."""
        return {node.facts.name: node.report for node in self._up() if node.report is not None}

    def crash_report(self, name: str, worker: int) -> CrashReport | None:
        """Return the crash report of a worker from its node's agent; `None`: the agent is gone, or the run is over.

        A busy node answers late; only Ray decides whether a node is lost.
        """
        node = self._nodes.get(name)
        if node is None:
            return None
        try:
            asked = node.agent.crash_report.remote(worker)
            while not self._ended.is_set() and self._nodes.get(name) is node:
                if ray.wait([asked], timeout=WATCH_S)[0]:
                    found: CrashReport = ray.get(asked)
                    return found
        except Exception:  # the agent is gone, or Ray was shut down
            return None
        return None

    def forget(self, name: str, worker: int) -> None:
        """Drop the crash data of a worker that ended normally."""
        node = self._nodes.get(name)
        if node is not None:
            node.agent.forget.remote(worker)

    def lose(self, name: str) -> None:
        """Remove a lost node. If only its agent crashed, the node gets a new one."""
        node = self._nodes.pop(name, None)
        if node is not None:
            self._had[name] = node.cpus
            self._failures[name] += 1
            kill_actor(node.agent)
            node.drop_spares()

    def _watch(self, arrived: SimpleQueue[tuple[int, Any]]) -> None:
        while not self._ended.wait(WATCH_S) and ray.is_initialized():
            with contextlib.suppress(Exception):  # the head node does not answer; try again next time
                self._check_nodes(arrived)

    def _check_nodes(self, arrived: SimpleQueue[tuple[int, Any]]) -> None:
        found = self.session.nodes()
        alive = {facts.name for facts in found}
        for node in self._up():
            name = node.facts.name
            if name not in alive:
                arrived.put((0, NodeGone(name, "Ray lost the node")))
            elif not self._measure(node):
                arrived.put((0, NodeGone(name, "the agent of the run on this node has crashed")))
        self._start_agents(found)
        for node in self._register_ready(len(self._coming), 0.0):
            self._prepare(node)
            arrived.put((0, NodeUp(self._spec(node))))

    def _measure(self, node: Node) -> bool:
        """Collect a finished memory report and request the next. Return False if the agent has crashed."""
        if node.measuring is not None:
            ready, _ = ray.wait([node.measuring], timeout=0)
            if not ready:
                return True
            try:
                node.report = ray.get(node.measuring)
            except ray.exceptions.ActorUnavailableError:
                pass  # a network problem; Ray reports it if it is permanent
            except ray.exceptions.RayActorError:
                return False
        node.measuring = node.agent.report.remote()
        return True

    def close(self) -> None:
        """End the agents."""
        self._ended.set()
        if self._watcher is not None:
            self._watcher.join(ANSWER_S)
        booked = self._all_nodes()
        self._nodes.clear()
        self._coming.clear()
        with contextlib.suppress(Exception):  # they are gone already
            closing = [node.agent.close.remote() for node in booked if node.resources is not None]
            if closing:
                ray.wait(closing, num_returns=len(closing), timeout=ANSWER_S)
        for node in booked:
            kill_actor(node.agent)
            node.drop_spares()
