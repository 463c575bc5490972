# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time for tests: performs actions, reports events, and raises on every illegal action."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from typing import Any

from thresher.scheduler import actions, events
from thresher.scheduler.actions import AnyAction, StartWorker
from thresher.scheduler.events import AnyEvent
from thresher.scheduler.lineage import MAX_DELAY_S
from thresher.scheduler.model import LOCAL_NODE, RunSpec, UnitSpec
from thresher.simulate.behaviour import Behaviour, Path, RuleBroken
from thresher.simulate.worker import SimulatedWorker

QUIET_S = 2 * MAX_DELAY_S  # time with nothing but Ticks after which no further event will come
ROUNDING = 1e-4  # relative tolerance for sums of shares
Key = tuple[str, object]  # node, and a device's index, "memory" or the name of a resource


class NodeResources:
    """Devices, host memory and named resources in use, counted independently of the scheduler."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.nodes = {node.node: node for node in spec.nodes}
        self.used: dict[Key, float] = {}
        self.down: set[str] = set()  # nodes that are lost

    def allocate(self, action: StartWorker) -> None:
        """Take the resources of a worker that starts. Raise RuleBroken if a node has not enough of them."""
        if action.node not in self.nodes and (self.nodes or action.node != LOCAL_NODE):
            raise RuleBroken(f"worker {action.worker} is started on {action.node!r}, which is not a node")
        for key, (amount, total) in self._takes(action.op, action.node, action.devices).items():
            self.used[key] = self.used.get(key, 0.0) + amount
            if self.used[key] > total * (1 + ROUNDING):
                worker = f"worker {action.worker} of op {action.op}"
                raise RuleBroken(f"{key} has {total}, {worker} would make it {self.used[key]}")

    def free(self, op: int | None, node: str, devices: tuple[int, ...]) -> None:
        """Free the resources of a worker that is gone."""
        for key, (amount, _) in self._takes(op, node, devices).items():
            self.used[key] -= amount

    def _takes(self, op: int | None, node: str, devices: tuple[int, ...]) -> dict[Key, tuple[float, float]]:
        """Return (node, resource) -> (amount that a worker takes, amount of the node)."""
        if op is None:
            if devices:
                raise RuleBroken(f"a shared worker has devices {devices}")
            return {}
        spec = self.spec.ops[op]
        wanted = max(1, int(spec.gpus)) if spec.gpus or spec.gpu_memory_bytes else 0
        if len(set(devices)) != wanted:
            raise RuleBroken(f"a worker of op {op} has devices {devices}; it needs {wanted}")
        takes: dict[Key, tuple[float, float]] = {}
        for device in devices:
            if spec.gpu_memory_bytes:
                share = spec.gpu_memory_bytes / self.nodes[node].gpus[device]
            else:
                share = min(spec.gpus, 1.0)
            takes[node, device] = (share, 1.0)
        if node in self.nodes and self.nodes[node].memory_bytes:
            takes[node, "memory"] = (spec.memory_bytes, self.nodes[node].memory_bytes)
        for name, amount in spec.custom.items():
            takes[node, name] = (amount, self.nodes[node].custom.get(name, 0.0))
        return takes


class Payload:
    """The payload of a task, as the cluster knows it."""

    __slots__ = ("nbytes", "path", "unit")

    def __init__(self, unit: str, path: Path, nbytes: int) -> None:
        self.unit = unit
        self.path = path
        self.nbytes = nbytes


class SimulatedCluster:
    """A cluster with `perform(action)` and `poll() -> events`; `now` is virtual time."""

    def __init__(self, spec: RunSpec, units: list[UnitSpec], behaviour: Behaviour) -> None:
        self.spec = spec
        self.behaviour = behaviour
        self.resources = NodeResources(spec)
        self.specs = {unit.unit: unit for unit in units}
        self.now = 0.0
        self.workers: dict[int, SimulatedWorker] = {}
        self.payloads: dict[int, Payload] = {}
        self.next_task = 1
        self.started = 0
        self.failed_tasks: dict[tuple[int, str, Path], int] = {}
        self.failed_commits: dict[str, int] = {}
        self.committed: dict[str, list[Path]] = {}  # unit -> tasks that its sink received, in order
        self.commit_count: dict[str, int] = {}
        self.ended: str | None = None
        self.commit_times: list[float] = []
        self.numbers: list[tuple[float, int | None, int]] = []  # (time, op, +1 or -1): workers started and stopped
        self._quiet_since = 0.0
        self._stopped_with_work: SimulatedWorker | None = None
        self.max_bytes = 0
        self.live_bytes = 0
        self._pending: list[tuple[float, int, Callable[[], None]]] = []
        self._sequence = 0
        self._events: deque[AnyEvent] = deque()
        for when, which in behaviour.crashes:
            self.after(when, partial(self._kill, which))
        for when, which in behaviour.payload_losses:
            self.after(when, partial(self._lose_payload, which))
        for when, share in behaviour.memory:
            self.after(when, partial(self.report, events.MemorySample(int(share * 1000), 1000)))
        for when, node, back_s in behaviour.node_losses:
            self.after(when, partial(self._lose_node, node, back_s))
        if behaviour.tick_s:
            self.after(behaviour.tick_s, self._tick)
        if behaviour.stop_s is not None:
            self.after(behaviour.stop_s, partial(self.report, events.StopRequested("requested")))

    def after(self, delay_s: float, what: Callable[[], None]) -> None:
        """Call `what` after a delay in virtual time."""
        self._sequence += 1
        heappush(self._pending, (self.now + delay_s, self._sequence, what))

    def report(self, event: AnyEvent) -> None:
        """Queue an event for the next poll."""
        self._events.append(event)

    def poll(self) -> list[AnyEvent]:
        """Advance time to the next event. An empty list means that no further event will come."""
        if self._stopped_with_work is not None and self.ended is None:
            raise RuleBroken(f"worker {self._stopped_with_work.id} was stopped while it held tasks")
        while not self._events and self._pending:
            self.now, _, what = heappop(self._pending)
            what()
        found = list(self._events)
        self._events.clear()
        return found

    def perform(self, action: AnyAction) -> None:
        """Perform an action of the scheduler."""
        self._quiet_since = self.now
        _PERFORM[type(action)](self, action)

    def live_worker(self, worker_id: int) -> SimulatedWorker | None:
        """Return the worker; None if it has crashed, which the scheduler may not know yet."""
        worker = self.workers.get(worker_id)
        if worker is None:
            raise RuleBroken(f"worker {worker_id} was never started")
        return worker if worker.alive else None

    def new_payload(self, unit: str, path: Path, nbytes: int) -> int:
        """Store the payload of an emitted task and return the task's id."""
        task = self.next_task
        self.next_task += 1
        self.payloads[task] = Payload(unit, path, nbytes)
        self.live_bytes += nbytes
        self.max_bytes = max(self.max_bytes, self.live_bytes)
        return task

    def _start_worker(self, action: actions.StartWorker) -> None:
        if action.worker in self.workers:
            raise RuleBroken(f"worker {action.worker} is started twice")
        worker = SimulatedWorker(self, action)
        self.workers[action.worker] = worker
        self.resources.allocate(action)
        self.started += 1
        self.numbers.append((self.now, action.op, 1))
        if action.node in self.resources.down:
            worker.end()  # the NodeLost is on its way
        elif self.started <= self.behaviour.setup_failures:
            self.after(self.behaviour.setup_s(action.op), worker.setup_failed)
        else:
            self.after(self.behaviour.setup_s(action.op), worker.ready)

    def _stop_worker(self, action: actions.StopWorker) -> None:
        worker = self.live_worker(action.worker)
        if worker is not None:
            self.numbers.append((self.now, worker.op, -1))
            worker.free_resources()
            self._send(worker, partial(self._end_worker, worker))

    def _end_worker(self, worker: SimulatedWorker) -> None:
        if self.ended is None and (worker.busy or worker.queue or worker.parked):
            self._stopped_with_work = worker  # legal only as part of the end of the run
        worker.end()

    def _lose_node(self, node: str, back_s: float) -> None:
        if node in self.resources.down or self.ended is not None:
            return
        self.resources.down.add(node)
        for worker in self.workers.values():
            if worker.alive and worker.node == node:
                worker.end()
        self.after(self.behaviour.latency_s, partial(self.report, events.NodeLost(node)))
        self.after(self.behaviour.latency_s + back_s, partial(self._node_is_back, node))

    def _node_is_back(self, node: str) -> None:
        self.resources.down.discard(node)
        self.report(events.NodeJoined(node))

    def _tick(self) -> None:
        if self._pending:
            self._quiet_since = self.now
        if self.ended is None and self.now - self._quiet_since < QUIET_S:
            self.report(events.Tick(self.now))
            self.after(self.behaviour.tick_s, self._tick)

    def _kill(self, which: int) -> None:
        live = [worker for worker in self.workers.values() if worker.alive]
        if live and self.ended is None:
            live[which % len(live)].crash()

    def _lose_payload(self, which: int) -> None:
        if self.payloads and self.ended is None:
            self.report(events.PayloadLost(list(self.payloads)[which % len(self.payloads)]))

    def _send(self, worker: SimulatedWorker, what: Callable[[], None]) -> None:
        def arrive() -> None:
            if worker.alive:
                what()

        if self.behaviour.latency_s:
            self.after(self.behaviour.latency_s, arrive)
        else:
            arrive()

    def _dispatch(self, action: actions.Dispatch) -> None:
        worker = self.live_worker(action.worker)
        for ref in action.tasks:
            if ref.task > 0 and ref.task not in self.payloads:
                raise RuleBroken(f"task {ref.task} is dispatched after its payload was released")
        if worker is not None:
            self._send(worker, partial(worker.take, action))

    def _resume(self, action: actions.Resume) -> None:
        worker = self.live_worker(action.worker)
        if worker is not None:
            self._send(worker, partial(worker.resume, action.task, action.credit))

    def _requeue(self, action: actions.Requeue) -> None:
        worker = self.live_worker(action.worker)
        if worker is not None:
            self._send(worker, partial(worker.drop_tasks, action))

    def _release(self, action: actions.Release) -> None:
        for task in action.tasks:
            payload = self.payloads.pop(task, None)
            if payload is None:
                raise RuleBroken(f"the payload of task {task} is released twice, or never was")
            self.live_bytes -= payload.nbytes

    def _commit(self, action: actions.Commit) -> None:
        if action.worker is None:
            self.after(self.behaviour.commit_s, lambda: self.report(self.commit(action, [])))
            return
        worker = self.live_worker(action.worker)
        if worker is not None:
            self._send(worker, partial(worker.commit, action))

    def commit(self, action: actions.Commit, seen: list[Path]) -> AnyEvent:
        """Commit a unit or fail to, and return the event."""
        failures = self.failed_commits.get(action.unit, 0)
        if failures < self.behaviour.commit_failures:
            self.failed_commits[action.unit] = failures + 1
            return events.CommitFailed(action.unit, action.epoch, "disk full")
        self.commit_count[action.unit] = self.commit_count.get(action.unit, 0) + 1
        self.committed.setdefault(action.unit, seen)
        self.commit_times.append(self.now)
        return events.UnitCommitted(action.unit, action.epoch)

    def _end(self, action: actions.Finish | actions.Fail) -> None:
        self.ended = action.status if isinstance(action, actions.Finish) else f"failed: {action.reason}"


_PERFORM: dict[type, Callable[[SimulatedCluster, Any], None]] = {
    actions.StartWorker: SimulatedCluster._start_worker,
    actions.StopWorker: SimulatedCluster._stop_worker,
    actions.Dispatch: SimulatedCluster._dispatch,
    actions.Resume: SimulatedCluster._resume,
    actions.Release: SimulatedCluster._release,
    actions.Requeue: SimulatedCluster._requeue,
    actions.Commit: SimulatedCluster._commit,
    actions.Finish: SimulatedCluster._end,
    actions.Fail: SimulatedCluster._end,
}
