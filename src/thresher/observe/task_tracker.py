# SPDX-License-Identifier: Apache-2.0
"""Track waiting tasks and the tasks that workers hold, from events and actions alone.

`handlers` has one function for each kind of event and action that changes them. A function for an event of a task
returns the ref of the task as it was dispatched; `None` if the task is unknown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from thresher.observe.progress import TIME_BOUNDS_S, TimeHistogram, WorkerStates
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec

RECYCLED = frozenset({"age", "memory", "tasks", "failure"})
"""Reasons of a StopWorker after which the worker is replaced; the others mean that it is not needed."""


class Times:
    """A histogram that grows."""

    def __init__(self) -> None:
        self._counts = [0] * (len(TIME_BOUNDS_S) + 1)
        self._sum_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one time; a negative one, which rounding may cause, is none."""
        self._counts[bisect_left(TIME_BOUNDS_S, seconds)] += 1
        self._sum_s += max(0.0, seconds)

    @staticmethod
    def merged(parts: Iterable[Times]) -> TimeHistogram:
        """Return the sum of histograms."""
        parts = list(parts)
        if not parts:
            return TimeHistogram()
        counts = tuple(map(sum, zip(*(part._counts for part in parts), strict=True)))
        return TimeHistogram(counts, sum(part._sum_s for part in parts))


_Held = tuple[act.TaskRef, int, int, float]
"""The ref of a dispatched task, its op, its worker, and since when it was ready: emitted, or dispatched if it is a root
task. A plain tuple, because one is made for every task."""


class TaskTracker:
    """Queues of ops and tasks of workers, as far as events and actions show them.

    A waiting root task is identified by its unit, because its id becomes known when it is dispatched. Unknown ids are
    ignored: these figures are for display only, the scheduler has the authoritative state.
    """

    def __init__(self, ops: Sequence[OpSpec]) -> None:
        self._next = [op.next for op in ops]
        self._dedicated = [op.has_own_workers for op in ops]
        self.now_s = 0.0
        """Time of the current event or action; set before it is passed to its handler."""
        self.queue_tasks = [0] * len(ops)
        """Waiting tasks, by op."""
        self.queue_bytes = [0] * len(ops)
        """Payload bytes of waiting tasks, by op."""
        self.payload_bytes = 0
        """Bytes of all unreleased payloads."""
        self.service = [Times() for _ in ops]
        """Times that finished tasks ran, by op."""
        self.queue = [Times() for _ in ops]
        """Times that finished tasks waited, by op."""
        self.backpressure_s = [0.0] * len(ops)
        """Time in which tasks waited for credit, or although a worker was free, by op; measured at ticks."""
        self.recycled: Counter[int | None] = Counter()
        """Recycled workers, by op; `None`: shared ones."""
        self.lost: Counter[int | None] = Counter()
        """Workers that crashed, hung or could not be set up, by op; `None`: shared ones."""
        self.errors: Counter[tuple[int | None, str]] = Counter()
        """Failures of tasks, workers and commits, by op (`None`: of none) and reason."""
        self.parked: dict[int, int] = {}
        """Parked tasks, with their ops."""
        self._waiting_units: dict[str, int] = {}  # unit -> entry op
        self._entry: dict[str, int] = {}  # unit -> entry op, of every uncommitted unit
        self._waiting: dict[int, tuple[int, float]] = {}  # task -> op, time since when
        self._sizes: dict[int, int] = {}  # task -> bytes of its payload
        self._held: dict[int, _Held] = {}  # by task
        self._busy_s: dict[int, float] = {}  # task -> time that it ran so far, of tasks that have reported
        self._tick_s = 0.0  # time of the last tick
        self._tasks_of_worker: dict[int, dict[int, int]] = {}  # ready worker -> unparked task, in order -> op
        self._starting: set[int] = set()
        self._op_of_worker: dict[int, int | None] = {}
        self._devices: dict[int, tuple[str, tuple[int, ...]]] = {}  # worker -> node and devices, if it has any
        self.handlers: dict[type, Callable[[Any], act.TaskRef | None]] = {
            ev.UnitsListed: self._units_listed,
            ev.WorkerReady: self._worker_ready,
            ev.WorkerSetupFailed: self._worker_lost,
            ev.WorkerLost: self._worker_lost,
            ev.TaskEmitted: self._ran,
            ev.TaskParked: self._parked,
            ev.TaskDone: self._done,
            ev.TaskFailed: self._failed,
            ev.UnitCommitted: self._unit_committed,
            ev.CommitFailed: self._commit_failed,
            act.StartWorker: self._worker_started,
            act.StopWorker: self._worker_stopped,
            act.Dispatch: self._dispatched,
            act.GrantCredit: self._resumed,
            act.Resume: self._resumed,
            act.Release: self._released,
            act.Requeue: self._requeued,
            ev.Tick: self._ticked,
        }

    # -- figures for the snapshot -------------------------------------------------------------------------------------

    def ready_workers(self) -> int:
        """Return the number of workers that are set up."""
        return len(self._tasks_of_worker)

    def starting_workers(self) -> int:
        """Return the number of workers that are being set up."""
        return len(self._starting)

    def busy_workers(self) -> int:
        """Return the number of workers that hold a task which is not parked."""
        return sum(1 for tasks in self._tasks_of_worker.values() if tasks)

    def busy_in(self, op: int) -> int:
        """Return the number of workers whose current task belongs to `op`."""
        return sum(1 for tasks in self._tasks_of_worker.values() if tasks and next(iter(tasks.values())) == op)

    def workers_for(self, ops: Sequence[int]) -> int:
        """Return the number of workers that are set up and can run one of `ops`."""
        shared = any(not self._dedicated[op] for op in ops)
        own = [op for op in ops if self._dedicated[op]]
        kinds = [self._op_of_worker.get(worker) for worker in self._tasks_of_worker]
        return sum(1 for kind in kinds if (shared if kind is None else kind in own))

    def states_of(self, op: int | None) -> WorkerStates:
        """Return the states of the dedicated workers of an op; `None`: of the shared workers."""
        ready = [tasks for worker, tasks in self._tasks_of_worker.items() if self._op_of_worker.get(worker) == op]
        return WorkerStates(
            starting=sum(1 for worker in self._starting if self._op_of_worker.get(worker) == op),
            ready=len(ready),
            busy=sum(1 for tasks in ready if tasks),
            recycled=self.recycled[op],
            lost=self.lost[op],
        )

    def has_workers(self, op: int) -> bool:
        """Return True if an op has dedicated workers."""
        return self._dedicated[op]

    def devices_of(self, ops: Sequence[int]) -> int:
        """Return the number of accelerators that the dedicated workers of `ops` hold."""
        held = [of for worker, of in self._devices.items() if self._op_of_worker.get(worker) in ops]
        return len({(node, device) for node, devices in held for device in devices})

    def _current_op(self, worker: int) -> int | None:
        """Return the op that a worker works on, else the one that it is dedicated to."""
        tasks = self._tasks_of_worker.get(worker)
        return next(iter(tasks.values())) if tasks else self._op_of_worker.get(worker)

    def _ticked(self, event: ev.Tick) -> None:
        """Count the time since the last tick for each op whose tasks wait for something other than a worker."""
        elapsed_s, self._tick_s = event.t - self._tick_s, event.t
        held_back = set(self.parked.values())
        free = {self._op_of_worker.get(worker) for worker, tasks in self._tasks_of_worker.items() if not tasks}
        for op, waiting in enumerate(self.queue_tasks):
            if op in held_back or (waiting and (op if self._dedicated[op] else None) in free):
                self.backpressure_s[op] += elapsed_s

    # -- units --------------------------------------------------------------------------------------------------------

    def _units_listed(self, event: ev.UnitsListed) -> None:
        for spec in event.units:
            self._entry[spec.unit] = spec.entry
            self._enqueue_unit(spec.unit, spec.entry)

    def unit_restarted(self, unit: str) -> None:
        """Queue the root task of a unit again, if it has one."""
        if unit in self._entry:
            self._enqueue_unit(unit, self._entry[unit])

    def _unit_committed(self, event: ev.UnitCommitted) -> None:
        self._entry.pop(event.unit, None)
        self._dequeue_unit(event.unit)

    def _commit_failed(self, event: ev.CommitFailed) -> None:
        """Count the error at the last op of the unit, which writes."""
        op = self._entry.get(event.unit)
        while op is not None and self._next[op] is not None:
            op = self._next[op]
        self.errors[op, "commit-failed"] += 1

    def _enqueue_unit(self, unit: str, entry: int) -> None:
        if unit not in self._waiting_units:
            self._waiting_units[unit] = entry
            self.queue_tasks[entry] += 1

    def _dequeue_unit(self, unit: str) -> None:
        entry = self._waiting_units.pop(unit, None)
        if entry is not None:
            self.queue_tasks[entry] -= 1

    # -- tasks --------------------------------------------------------------------------------------------------------

    def _emitted(self, event: ev.TaskEmitted | ev.TaskParked | ev.TaskDone) -> act.TaskRef | None:
        """Queue the tasks that a task emitted for the next op."""
        held = self._held.get(event.task)
        if held is None:
            return None
        op = self._next[held[1]]
        if op is not None:
            for output in event.outputs:
                if output.task:
                    self._sizes[output.task] = output.nbytes
                    self.payload_bytes += output.nbytes
                    self._enqueue(output.task, op)
        return held[0]

    def _dispatched(self, action: act.Dispatch) -> None:
        """Move tasks from a queue to a worker."""
        tasks = self._tasks_of_worker.get(action.worker)
        for ref in action.tasks:
            if ref.task < 0:
                self._dequeue_unit(ref.unit)
                since_s = self.now_s
            else:
                since_s = self._dequeue(ref.task)
            self._held[ref.task] = (ref, action.op, action.worker, since_s)
            if tasks is not None:
                tasks[ref.task] = action.op

    def _parked(self, event: ev.TaskParked) -> act.TaskRef | None:
        """Park a task: it waits for credit in its worker, which can run others."""
        held = self._held.get(event.task)
        if held is not None:
            self._tasks_of_worker.get(held[2], {}).pop(event.task, None)
            self.parked[event.task] = held[1]
        return self._ran(event)

    def _ran(self, event: ev.TaskEmitted | ev.TaskParked) -> act.TaskRef | None:
        """Add the time that a task ran, which has not ended."""
        if event.busy_s and event.task in self._held:
            self._busy_s[event.task] = self._busy_s.get(event.task, 0.0) + event.busy_s
        return self._emitted(event)

    def _resumed(self, action: act.Resume | act.GrantCredit) -> None:
        """Resume a parked task."""
        held = self._held.get(action.task)
        tasks = self._tasks_of_worker.get(action.worker)
        self.parked.pop(action.task, None)
        if held is not None and tasks is not None:
            tasks.setdefault(action.task, held[1])

    def _done(self, event: ev.TaskDone) -> act.TaskRef | None:
        """Remove a finished task."""
        ref = self._emitted(event)
        busy_s = event.busy_s
        if self._busy_s:
            busy_s += self._busy_s.get(event.task, 0.0)
        held = self._leave_worker(event.task)
        if held is not None:
            op = held[1]
            self.service[op].add(busy_s)
            self.queue[op].add(self.now_s - held[3] - busy_s)
        return ref

    def _failed(self, event: ev.TaskFailed) -> act.TaskRef | None:
        """Queue a failed task until it is dispatched again or released."""
        held = self._held.get(event.task)
        self.errors[None if held is None else held[1], event.error or "task-failed"] += 1
        return self._take_back(event.task)

    def _requeued(self, action: act.Requeue) -> None:
        """Queue tasks that were taken back from a worker."""
        for task in action.tasks:
            self._take_back(task)

    def _released(self, action: act.Release) -> None:
        """Remove the tasks whose payloads are released."""
        for task in action.tasks:
            self._dequeue(task)
            self.payload_bytes -= self._sizes.pop(task, 0)

    def _leave_worker(self, task: int) -> _Held | None:
        held = self._held.pop(task, None)
        if held is not None:
            self._tasks_of_worker.get(held[2], {}).pop(task, None)
            self._forget_times(task)
        return held

    def _forget_times(self, task: int) -> None:
        if self._busy_s:
            self._busy_s.pop(task, None)
        if self.parked:
            self.parked.pop(task, None)

    def _take_back(self, task: int) -> act.TaskRef | None:
        held = self._leave_worker(task)
        if held is None:
            return None
        self._requeue(held)
        return held[0]

    def _requeue(self, held: _Held) -> None:
        ref = held[0]
        if ref.task < 0:
            self.unit_restarted(ref.unit)
        elif ref.task in self._sizes:
            self._enqueue(ref.task, held[1])

    def _enqueue(self, task: int, op: int) -> None:
        if task not in self._waiting:
            self._waiting[task] = (op, self.now_s)
            self.queue_tasks[op] += 1
            self.queue_bytes[op] += self._sizes.get(task, 0)

    def _dequeue(self, task: int) -> float:
        """Remove a task from its queue; return since when it was there."""
        found = self._waiting.pop(task, None)
        if found is None:
            return self.now_s
        op, since_s = found
        self.queue_tasks[op] -= 1
        self.queue_bytes[op] -= self._sizes.get(task, 0)
        return since_s

    # -- workers ------------------------------------------------------------------------------------------------------

    def _worker_started(self, action: act.StartWorker) -> None:
        """Add a worker that is being set up."""
        self._starting.add(action.worker)
        self._op_of_worker[action.worker] = action.op
        if action.devices:
            self._devices[action.worker] = (action.node, action.devices)

    def _worker_ready(self, event: ev.WorkerReady) -> None:
        """Mark a worker as set up."""
        self._starting.discard(event.worker)
        self._tasks_of_worker.setdefault(event.worker, {})

    def _worker_lost(self, event: ev.WorkerLost | ev.WorkerSetupFailed) -> None:
        """Count and remove a worker that failed."""
        reason = "worker-lost" if isinstance(event, ev.WorkerLost) else "worker-setup-failed"
        self.errors[self._current_op(event.worker), reason] += 1
        if event.worker in self._op_of_worker:
            self.lost[self._op_of_worker[event.worker]] += 1
        self._worker_gone(event)

    def _worker_stopped(self, action: act.StopWorker) -> None:
        """Remove a worker that was stopped, and count it if it is replaced."""
        if action.reason in RECYCLED and action.worker in self._op_of_worker:
            self.recycled[self._op_of_worker[action.worker]] += 1
        self._worker_gone(action)

    def _worker_gone(self, item: ev.WorkerLost | ev.WorkerSetupFailed | act.StopWorker) -> None:
        """Remove a worker and queue its tasks again."""
        self._starting.discard(item.worker)
        self._op_of_worker.pop(item.worker, None)
        self._devices.pop(item.worker, None)
        if self._tasks_of_worker.pop(item.worker, None) is not None:
            # Rare, so a scan over the tasks of all workers is cheaper than an index to update for every task.
            for task in [task for task, held in self._held.items() if held[2] == item.worker]:
                self._forget_times(task)
                self._requeue(self._held.pop(task))
