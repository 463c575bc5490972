# SPDX-License-Identifier: Apache-2.0
"""A cluster in virtual time: one scheduler, its driver, and thousands of workers, without processes.

The driver processes one event after another. Each may take some time, and its actions reach workers after that time.
Machines have cores: if a workload limits them, calls take longer when more of them run than there are cores, and on
the first machine the driver needs a core too. An action that no cluster could perform raises RuleBroken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.actions import AnyAction, TaskRef
from thresher.scheduler.events import AnyEvent, Emitted
from thresher.scheduler.model import NodeSpec, OpSpec, RunSpec, UnitSpec
from thresher.scheduler.step import Scheduler
from thresher.scheduler.units import MAX_DELAY_S
from thresher.simulate.resources import Machine, Usage
from thresher.simulate.worker import VirtualWorker
from thresher.simulate.workload import Path, RuleBroken, RunningTask, SimulatedOutput, Workload

QUIET_S = 2 * MAX_DELAY_S  # time with nothing but Ticks after which no further event will come
Watch = Callable[[AnyEvent | None, Sequence[AnyAction]], None]
"""Called with each event (None: the start) and the actions that follow from it, before they are performed."""


class Deadlock(AssertionError):
    """No further event will come, or too many came, but the run has not ended."""


class SimulatedPayload(NamedTuple):
    """The payload of a task, as the cluster knows it."""

    nbytes: int
    node: str  # machine that holds it
    path: Path


class VirtualCluster:
    """Runs one scheduler to its end. `now` is virtual time."""

    def __init__(self, spec: RunSpec, units: list[UnitSpec], workload: Workload) -> None:
        self.spec = spec
        self.workload = workload
        self.scheduler = Scheduler(spec)
        self.now = 0.0
        self.driver_free_s = 0.0
        self.driver_busy_s = 0.0
        self.events = 0
        self.watch: Watch | None = None
        nodes, limits_cores = spec.nodes or (NodeSpec(),), workload.limits_cores and bool(spec.nodes)
        self.machines = {node.node: Machine(node, limits_cores=limits_cores) for node in nodes}
        self.workers: dict[int, VirtualWorker] = {}
        self.payloads: dict[int, SimulatedPayload] = {}
        self.committed: dict[str, list[Path]] = {}  # unit -> tasks that its sink received, in order
        self.usage = Usage(len(spec.ops))
        self.ended: str | None = None
        self.stopped_with_work = 0
        """Worker that was stopped although it held tasks; 0: none."""
        self._units = {unit.unit: unit for unit in units}
        self._driver_machine = self.machines[nodes[0].node]
        self._next_task = 1
        self._quiet_since_s = 0.0
        self._heap: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._sequence = 0

    # -- the loop -----------------------------------------------------------------------------------------------------

    def at(self, when_s: float, what: Callable[[Any], None], about: Any) -> None:
        """Call `what(about)` at a time."""
        self._sequence += 1
        heappush(self._heap, (when_s, self._sequence, what, about))

    def run(self, most_events: int) -> None:
        """Run to the end. Raise Deadlock if nothing happens any more, or after `most_events`."""
        self._perform_all(None, self.scheduler.start())
        while self.ended is None:
            if self.stopped_with_work:
                raise RuleBroken(f"worker {self.stopped_with_work} was stopped while it held tasks")
            if self.events > most_events:
                raise Deadlock(f"no end after {most_events:,} events")
            self.advance()

    def advance(self) -> None:
        """Advance time to the next thing that happens. Raise Deadlock if there is none."""
        if not self._heap:
            raise Deadlock("nothing happens any more")
        self.now, _, what, about = heappop(self._heap)
        what(about)

    def report(self, event: AnyEvent) -> None:
        """Let the driver process an event after all earlier ones, and perform its actions."""
        cost_s = self.workload.driver_event_s
        self.driver_free_s = max(self.now, self.driver_free_s) + cost_s
        self.driver_busy_s += cost_s
        if self.workload.driver_adds_load:
            self._driver_machine.run_driver(cost_s)
        self.events += 1
        self._perform_all(event, self.scheduler.step(event))

    def report_late(self, event: AnyEvent) -> None:
        """Report an event after the latency of a message."""
        if self.workload.latency_s:
            self.at(self.now + self.workload.latency_s, self.report, event)
        else:
            self.report(event)

    def tick(self, interval_s: float) -> None:
        """Report a Tick, and again after each interval while something may still happen."""
        if self._heap:
            self._quiet_since_s = self.now
        if self.now - self._quiet_since_s < QUIET_S:
            self.report(ev.Tick(self.now))
            self.at(self.now + interval_s, self.tick, interval_s)

    def _perform_all(self, event: AnyEvent | None, actions: list[AnyAction]) -> None:
        if self.watch is not None:
            self.watch(event, actions)
        if actions:
            self._quiet_since_s = self.now
        for action in actions:
            _PERFORM[type(action)](self, action)

    # -- actions ------------------------------------------------------------------------------------------------------

    def _start_worker(self, action: act.StartWorker) -> None:
        if action.worker in self.workers:
            raise RuleBroken(f"worker {action.worker} is started twice")
        machine = self.machines.get(action.node)
        if machine is None:
            raise RuleBroken(f"worker {action.worker} is started on {action.node!r}, which is not a node")
        worker = VirtualWorker(self, action, machine)
        self.workers[action.worker] = worker
        machine.allocate(action, self.op_spec(action.op))
        self.usage.count_own(action.op, 1)
        setup_s = self.workload.start_s(action.op) + machine.starting * self.workload.start_gap_s
        machine.starting += 1
        if not machine.alive:
            worker.end()  # the NodeLost is on its way
            return
        set_up = worker.setup_failed if self.workload.setup_fails() else worker.ready
        self.at(max(self.now, self.driver_free_s) + setup_s, set_up, setup_s)

    def _stop_worker(self, action: act.StopWorker) -> None:
        worker = self._live_worker(action.worker)
        if worker is not None:
            worker.free_resources()
            self._send(worker, VirtualWorker.stop, action)

    def _dispatch(self, action: act.Dispatch) -> None:
        for ref in action.tasks:
            if ref.task > 0 and ref.task not in self.payloads:
                raise RuleBroken(f"task {ref.task} is dispatched after its payload was released")
        self._send(self._live_worker(action.worker), VirtualWorker.take, action)

    def _resume(self, action: act.Resume) -> None:
        self._send(self._live_worker(action.worker), VirtualWorker.resume, action)

    def _requeue(self, action: act.Requeue) -> None:
        self._send(self._live_worker(action.worker), VirtualWorker.drop_tasks, action)

    def _commit(self, action: act.Commit) -> None:
        if action.worker is None:
            self.at(self.driver_free_s + self.workload.record_s, lambda _: self.report(self.commit(action, [])), None)
        else:
            self._send(self._live_worker(action.worker), VirtualWorker.commit, action)

    def _release(self, action: act.Release) -> None:
        for task in action.tasks:
            payload = self.payloads.pop(task, None)
            if payload is None:
                raise RuleBroken(f"the payload of task {task} is released twice, or never was")
            self.usage.live_bytes -= payload.nbytes

    def _end(self, action: act.Finish | act.Fail) -> None:
        self.now = max(self.now, self.driver_free_s)
        self.ended = action.status if isinstance(action, act.Finish) else f"failed: {action.reason}"

    def _live_worker(self, worker_id: int) -> VirtualWorker | None:
        """Return the worker; None if it has crashed, which the scheduler may not know yet."""
        worker = self.workers.get(worker_id)
        if worker is None:
            raise RuleBroken(f"worker {worker_id} was never started")
        return worker if worker.alive else None

    def _send(
        self, worker: VirtualWorker | None, handle: Callable[[VirtualWorker, Any, float], None], action: AnyAction
    ) -> None:
        """Let a worker handle an action after the latency of a message, unless it has crashed until then."""
        if worker is None:
            return
        sent_s = self.driver_free_s
        if not self.workload.latency_s:
            handle(worker, action, sent_s)
            return

        def arrive(_: None) -> None:
            if worker.alive:
                handle(worker, action, sent_s)

        self.at(self.now + self.workload.latency_s, arrive, None)

    # -- calls by workers ---------------------------------------------------------------------------------------------

    def op_spec(self, op: int | None) -> OpSpec | None:
        """Return the spec of an op; None: of no op."""
        return None if op is None else self.spec.ops[op]

    def in_bytes(self, unit: str) -> int:
        """Return the input size of a unit; 0: unknown, because it was cut from a stream."""
        found = self._units.get(unit)
        return found.nbytes if found is not None else 0

    def begin_task(self, op: int, ref: TaskRef, *, gradual: bool) -> RunningTask:
        """Open the input of a task and draw its work."""
        payload = self.payloads.get(ref.task)
        if payload is None and ref.task > 0:
            raise RuleBroken(f"task {ref.task} begins after its payload was released")
        root = self._units.get(ref.unit) if payload is None else None
        task = RunningTask(ref, payload.path if payload else (), root if root is not None and root.stream else None)
        in_bytes = payload.nbytes if payload else self.in_bytes(ref.unit)
        task.work = self.workload.draw(op, task, in_bytes, gradual=gradual)
        return task

    def emit(self, op: int, task: RunningTask, out: SimulatedOutput, machine: Machine) -> Emitted | None:
        """Store the payload of an output; return None if its unit is committed."""
        unit, order = "", (0, 0)
        if task.stream is not None:
            unit, order = f"{task.stream.unit}-{out.unit:06d}", (task.stream.order[0], out.unit)
            if unit in self.committed:
                return None
        task.emitted += 1
        if out.nbytes < 0:
            return Emitted(0, 0, unit, order, out.closes)
        task_id = self._next_task
        self._next_task += 1
        if self.spec.ops[op].next is not None:  # otherwise it is a result for the driver
            self.payloads[task_id] = SimulatedPayload(out.nbytes, machine.name, task.next_path(out.unit))
            self.usage.add_bytes(self.now, out.nbytes)
        return Emitted(task_id, out.nbytes, unit, order, out.closes)

    def commit(self, action: act.Commit, seen: list[Path]) -> AnyEvent:
        """Commit a unit or fail to, and return the event."""
        if self.workload.commit_fails(action.unit):
            return ev.CommitFailed(action.unit, action.epoch, "disk full")
        self.committed.setdefault(action.unit, seen)
        self.usage.tasks[-1] += 1
        self._units.pop(action.unit, None)
        return ev.UnitCommitted(action.unit, action.epoch)

    # -- machines -----------------------------------------------------------------------------------------------------

    def lose_node(self, name: str) -> None:
        """Remove a machine with its workers and payloads."""
        self.machines[name].alive = False
        for worker in self.workers.values():
            if worker.machine.name == name:
                worker.end()
        self.report_late(ev.NodeLost(name, "a failure of the simulation"))
        for task in [task for task, payload in self.payloads.items() if payload.node == name]:
            self.report_late(ev.PayloadLost(task))

    def join_node(self, name: str) -> None:
        """Bring a machine back."""
        self.machines[name].alive = True
        self.report(ev.NodeJoined(name))


_PERFORM: dict[type, Callable[[VirtualCluster, Any], None]] = {
    act.StartWorker: VirtualCluster._start_worker,
    act.StopWorker: VirtualCluster._stop_worker,
    act.Rescale: lambda cluster, action: None,
    act.Dispatch: VirtualCluster._dispatch,
    act.Resume: VirtualCluster._resume,
    act.Requeue: VirtualCluster._requeue,
    act.Release: VirtualCluster._release,
    act.Commit: VirtualCluster._commit,
    act.Finish: VirtualCluster._end,
    act.Fail: VirtualCluster._end,
}
