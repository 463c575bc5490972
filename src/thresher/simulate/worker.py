# SPDX-License-Identifier: Apache-2.0
"""The model of a worker: runs its queue in order, emits batch by batch, and parks when its credit is used up."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.runtime.worker.call_queue import CallQueue, QueuedCall
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.simulate.resources import Machine
from thresher.simulate.workload import Path, RuleBroken, RunningTask

if TYPE_CHECKING:
    from thresher.simulate.cluster import VirtualCluster


class SimulatedCall(QueuedCall, eq=False, kw_only=True):
    """A call of a simulated worker."""

    sent_s: float
    """Time at which it was sent, or sent again after it was parked."""
    running: Sequence[RunningTask] = ()
    """Its tasks, once it has begun."""
    steps_s: tuple[float, ...] = ()
    """Time before each output of a gradual call, and after the last."""
    at: int = 0
    """Number of outputs that a gradual call has reached."""
    inside: float = 1.0
    """Share of its time inside stages, as workers report it."""
    unreported_s: float = 0.0
    """Time inside stages that no event has reported yet."""
    total_s: float = 0.0
    """Time that it takes."""

    def take_unreported_s(self) -> float:
        """Return the time inside stages since the last report."""
        unreported_s, self.unreported_s = self.unreported_s, 0.0
        return unreported_s


class VirtualWorker:
    """A worker that runs one item at a time: commits first, then calls in the order in which they were sent."""

    def __init__(self, cluster: VirtualCluster, action: act.StartWorker, machine: Machine) -> None:
        self.id = action.worker
        self.op = action.op
        self.machine = machine
        self.alive = True
        self.up = False
        self._cluster = cluster
        # Events arrive after all earlier ones, even if the worker has crashed in the meantime.
        self.report = cluster.report_late if cluster.workload.latency_s else cluster.report
        self._devices = action.devices
        self._placed = True
        self._busy = False
        self._began_s = 0.0
        self._cpus_held = 0.0
        self._commits: deque[tuple[float, act.Commit]] = deque()  # (time it was sent, action)
        self._calls: CallQueue[SimulatedCall] = CallQueue()
        self._warm: set[int] = set()  # ops that it has run before
        self._sinks: dict[str, tuple[int, list[Path]]] = {}  # unit -> (epoch, tasks that its sink received)
        self._private_bytes = 0

    @property
    def holds_work(self) -> bool:
        """True if it runs, queues or parks anything."""
        return bool(self._busy or self._calls.waiting or self._commits or self._calls.parked)

    # -- start and end ------------------------------------------------------------------------------------------------

    def ready(self, setup_s: float) -> None:
        """Finish the setup."""
        if self.alive:
            self.machine.starting -= 1
            self.up = True
            self._cluster.usage.count_up(1)
            self.report(ev.WorkerReady(self.id, self.machine.name, setup_s))

    def setup_failed(self, _: float) -> None:
        """Fail the setup."""
        if self.alive:
            self.end()
            self.report(ev.WorkerSetupFailed(self.id, "no such model"))

    def crash(self) -> None:
        """Crash, with everything it held."""
        self.end()
        self.report(ev.WorkerLost(self.id, "killed"))

    def stop(self, action: act.StopWorker, sent_s: float) -> None:
        """End because the scheduler said so, which is legal only without work or as part of the end of the run."""
        if self.holds_work:
            self._cluster.stopped_with_work = self.id
        self.end()

    def end(self) -> None:
        """Remove the worker with everything it held."""
        if not self.alive:
            return
        self.alive = False
        self._cluster.usage.count_own(self.op, -1)
        if self.up:
            self._cluster.usage.count_up(-1)
        else:
            self.machine.starting -= 1
        if self._busy:
            self.machine.busy_cpus -= self._cpus_held
        self.free_resources()

    def free_resources(self) -> None:
        """Free its resources on the machine, once."""
        if self._placed:
            self._placed = False
            self.machine.free(self._cluster.op_spec(self.op), self._devices)

    # -- actions ------------------------------------------------------------------------------------------------------

    def take(self, action: act.Dispatch, sent_s: float) -> None:
        """Queue tasks in calls of `tasks_per_call`."""
        wanted = action.op if self._cluster.spec.ops[action.op].has_own_workers else None
        if not self.up or wanted != self.op:
            raise RuleBroken(f"worker {self.id} (op {self.op}, up {self.up}) gets tasks of op {action.op}")
        refs, size = action.tasks, self._cluster.workload.tasks_per_call(action.op)
        for start in range(0, len(refs), size):
            tasks = refs[start : start + size]
            self._calls.waiting.append(SimulatedCall(action.op, tasks, tasks[0].credit, sent_s=sent_s))
        self._proceed()

    def resume(self, action: act.Resume, sent_s: float) -> None:
        """Queue a parked task."""
        if action.task not in self._calls.parked:
            raise RuleBroken(f"task {action.task} is resumed on worker {self.id}, but is not parked there")
        self._calls.parked[action.task].sent_s = sent_s
        self._calls.resume(action.task, action.credit)
        self._proceed()

    def commit(self, action: act.Commit, sent_s: float) -> None:
        """Queue a commit."""
        self._commits.append((sent_s, action))
        self._proceed()

    def drop_tasks(self, action: act.Requeue, sent_s: float) -> None:
        """Drop parked or queued tasks, and the sink state of old epochs."""
        gone = set(action.tasks)
        held = (*self._calls.waiting, *self._calls.parked.values())
        unknown = gone.difference(ref.task for call in held for ref in call.tasks)
        if unknown:
            raise RuleBroken(f"tasks {sorted(unknown)} are taken back from worker {self.id}, which does not have them")
        for call in self._calls.take_back(action.tasks)[0] if gone else ():
            if call.is_begun:
                self._calls.suspended.discard(call.op)
        if action.unit and self._sinks.get(action.unit, (action.epoch,))[0] < action.epoch:
            del self._sinks[action.unit]
        self._proceed()

    # -- running ------------------------------------------------------------------------------------------------------

    def _proceed(self) -> None:
        """Start the next item, if none is running."""
        if self._busy or not self.alive:
            return
        if self._commits:
            sent_s, action = self._commits.popleft()
            self._occupy(sent_s, 1.0)
            commit_s = self._cluster.workload.commit_s(self._cluster.in_bytes(action.unit)) * self.machine.slowdown
            self._cluster.at(self._began_s + commit_s, self._committed, action)
            return
        call = self._calls.next()
        if call is not None:
            spec = self._cluster.spec.ops[call.op]
            # A call on an accelerator does not load its core.
            self._occupy(call.sent_s, 0.0 if spec.gpus or spec.gpu_memory_bytes else spec.cpus)
            self._begin(call)

    def _occupy(self, sent_s: float, cpus: float) -> None:
        self._busy = True
        self._began_s = max(self._cluster.now, sent_s) + self.machine.take_driver_delay()
        self._cpus_held = cpus
        self.machine.busy_cpus += cpus

    def _begin(self, call: SimulatedCall) -> None:
        """Start a call, or continue one that was parked."""
        if call.is_begun:
            self._schedule_next(call)
            return
        call.is_begun = True
        cluster, workload = self._cluster, self._cluster.workload
        gradual = len(call.tasks) == 1 and workload.is_gradual(call.op)
        call.running = [cluster.begin_task(call.op, ref, gradual=gradual) for ref in call.tasks]
        slowdown, cold_s = self.machine.slowdown, self._cold_s(call.op)
        busy_s = sum(task.work.busy_s for task in call.running) * slowdown + cold_s
        call.total_s = sum(task.work.held_s for task in call.running) * slowdown + cold_s
        call.inside = busy_s / call.total_s if call.total_s else 1.0
        if gradual:
            work = call.running[0].work
            parts = len(work.outputs) or 1
            steps_s = tuple(step_s * slowdown for step_s in work.steps_s)
            call.steps_s = steps_s or (call.total_s / parts,) * parts
            self._schedule_next(call)
        else:
            call.unreported_s = busy_s
            cluster.at(self._began_s + call.total_s, self._all_done, call)

    def _cold_s(self, op: int) -> float:
        if op in self._warm:
            return 0.0
        self._warm.add(op)
        return self._cluster.workload.cold_s(op)

    def _schedule_next(self, call: SimulatedCall) -> None:
        """Schedule the next output of a gradual call, or its end."""
        step_s = call.steps_s[call.at] if call.at < len(call.steps_s) else 0.0
        is_over = call.at == len(call.running[0].work.outputs)
        self._cluster.at(self._began_s + step_s, self._ended if is_over else self._yielded, call)

    def _account_time(self, series: int) -> float:
        """Account the time since `_began_s` and return it."""
        now = self._cluster.now
        spent_s = self._cluster.usage.occupy(series, self._began_s, now)
        self._began_s = now
        return spent_s

    def _yielded(self, call: SimulatedCall) -> None:
        """Emit one output of a gradual call; then end it, park it or let it continue."""
        if not self.alive:
            return
        cluster, task = self._cluster, call.running[0]
        call.unreported_s += self._account_time(call.op) * call.inside
        if cluster.workload.task_fails(call.op, task):
            self._end_with([self._failure(task)])
            return
        out = task.work.outputs[call.at]
        call.at += 1
        emitted = cluster.emit(call.op, task, out, self.machine)
        if emitted is not None and out.nbytes > 0:
            call.spend(out.nbytes)
        outputs = () if emitted is None else (emitted,)
        if call.at == len(call.steps_s) and (call.credit != 0 or cluster.workload.ends_at_once(call.op)):
            self._finish(call, outputs)
        elif call.credit == 0:
            self._calls.park(call)
            self._end_with([ev.TaskParked(task.ref.task, self.id, outputs, busy_s=call.take_unreported_s())])
        else:
            if outputs:
                self.report(ev.TaskEmitted(task.ref.task, self.id, outputs, busy_s=call.take_unreported_s()))
            if self.alive:
                self._schedule_next(call)

    def _ended(self, call: SimulatedCall) -> None:
        """End a gradual call after its last output."""
        if not self.alive:
            return
        call.unreported_s += self._account_time(call.op) * call.inside
        if self._cluster.workload.task_fails(call.op, call.running[0]):
            self._end_with([self._failure(call.running[0])])
        else:
            self._finish(call, ())

    def _finish(self, call: SimulatedCall, outputs: tuple[ev.Emitted, ...]) -> None:
        self._cluster.usage.finish(call.op, 1, call.total_s)
        self._end_with(self._done(call.op, call.running[0], outputs, call.unreported_s))

    def _all_done(self, call: SimulatedCall) -> None:
        """End a call that emits everything at its end."""
        if not self.alive:
            return
        cluster = self._cluster
        self._account_time(call.op)
        busy_s = call.unreported_s / len(call.running)
        cluster.usage.finish(call.op, len(call.running), call.total_s / len(call.running))
        reports: list[ev.AnyEvent] = []
        for task in call.running:
            if cluster.workload.task_fails(call.op, task):
                reports.append(self._failure(task))
                continue
            emitted = (cluster.emit(call.op, task, out, self.machine) for out in task.work.outputs)
            reports += self._done(call.op, task, tuple(found for found in emitted if found), busy_s)
        self._end_with(reports)

    def _failure(self, task: RunningTask) -> ev.TaskFailed:
        return ev.TaskFailed(task.ref.task, self.id, "ValueError", "bad luck")

    def _done(self, op: int, task: RunningTask, outputs: tuple[ev.Emitted, ...], busy_s: float) -> list[ev.AnyEvent]:
        """Add a finished task to its sink, and return the events about its end."""
        ref, workload = task.ref, self._cluster.workload
        if self._cluster.spec.ops[op].sink:
            sink = self._sinks.get(ref.unit)
            if sink is None or sink[0] != ref.epoch:
                sink = self._sinks[ref.unit] = (ref.epoch, [])
            sink[1].append(task.path)
        done = ev.TaskDone(ref.task, self.id, outputs, busy_s)
        if workload.worker_limit_bytes:
            self._private_bytes += workload.leak_bytes(op)
            if self._private_bytes > workload.worker_limit_bytes:
                return [done, ev.WorkerMemory(self.id, self._private_bytes, workload.worker_limit_bytes)]
        return [done]

    def _committed(self, action: act.Commit) -> None:
        if not self.alive:
            return
        self._account_time(len(self._cluster.spec.ops))
        epoch, seen = self._sinks.pop(action.unit, (action.epoch, []))
        if epoch != action.epoch:
            raise RuleBroken(f"unit {action.unit} is committed at epoch {action.epoch}, its sink has epoch {epoch}")
        self._end_with([self._cluster.commit(action, seen)])

    def _end_with(self, reports: Sequence[ev.AnyEvent]) -> None:
        """Report events and start the next item. A worker with more items keeps its core during the report."""
        goes_on = bool(self._calls.waiting or self._commits)
        if not goes_on:
            self._free()
        for event in reports:
            self.report(event)
        if not self.alive:
            return
        if goes_on:
            self._free()
        self._proceed()

    def _free(self) -> None:
        self._busy = False
        self.machine.busy_cpus -= self._cpus_held
