# SPDX-License-Identifier: Apache-2.0
"""Track waiting tasks and the tasks that workers hold, from events and actions alone.

`handlers` has one function for each kind of event and action that changes them. A function for an event of a task
returns the ref of the task as it was dispatched; `None` if the task is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec


class TaskTracker:
    """Queues of ops and tasks of workers, as far as events and actions show them.

    A waiting root task is identified by its unit, because its id becomes known when it is dispatched. Unknown ids are
    ignored: these figures are for display only, the scheduler has the authoritative state.
    """

    def __init__(self, ops: Sequence[OpSpec]) -> None:
        self._next = [op.next for op in ops]
        self._dedicated = [op.has_own_workers for op in ops]
        self.queue_tasks = [0] * len(ops)
        """Waiting tasks, by op."""
        self.queue_bytes = [0] * len(ops)
        """Payload bytes of waiting tasks, by op."""
        self.payload_bytes = 0
        """Bytes of all unreleased payloads."""
        self._waiting_units: dict[str, int] = {}  # unit -> entry op
        self._entry: dict[str, int] = {}  # unit -> entry op, of every uncommitted unit
        self._waiting: dict[int, int] = {}  # task -> op
        self._sizes: dict[int, int] = {}  # task -> bytes of its payload
        self._held: dict[int, tuple[act.TaskRef, int, int]] = {}  # task -> its ref, op, worker
        self._tasks_of_worker: dict[int, dict[int, int]] = {}  # ready worker -> unparked task, in order -> op
        self._starting: set[int] = set()
        self._op_of_worker: dict[int, int | None] = {}
        self.handlers: dict[type, Callable[[Any], act.TaskRef | None]] = {
            ev.UnitsListed: self._units_listed,
            ev.WorkerReady: self._worker_ready,
            ev.WorkerSetupFailed: self._worker_gone,
            ev.WorkerLost: self._worker_gone,
            ev.TaskEmitted: self._emitted,
            ev.TaskParked: self._parked,
            ev.TaskDone: self._done,
            ev.TaskFailed: self._failed,
            ev.UnitCommitted: self._unit_committed,
            act.StartWorker: self._worker_started,
            act.StopWorker: self._worker_gone,
            act.Dispatch: self._dispatched,
            act.GrantCredit: self._resumed,
            act.Resume: self._resumed,
            act.Release: self._released,
            act.Requeue: self._requeued,
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
            else:
                self._dequeue(ref.task)
            self._held[ref.task] = (ref, action.op, action.worker)
            if tasks is not None:
                tasks[ref.task] = action.op

    def _parked(self, event: ev.TaskParked) -> act.TaskRef | None:
        """Park a task: it waits for credit in its worker, which can run others."""
        held = self._held.get(event.task)
        if held is not None:
            self._tasks_of_worker.get(held[2], {}).pop(event.task, None)
        return self._emitted(event)

    def _resumed(self, action: act.Resume | act.GrantCredit) -> None:
        """Resume a parked task."""
        held = self._held.get(action.task)
        tasks = self._tasks_of_worker.get(action.worker)
        if held is not None and tasks is not None:
            tasks.setdefault(action.task, held[1])

    def _done(self, event: ev.TaskDone) -> act.TaskRef | None:
        """Remove a finished task."""
        ref = self._emitted(event)
        self._leave_worker(event.task)
        return ref

    def _failed(self, event: ev.TaskFailed) -> act.TaskRef | None:
        """Queue a failed task until it is dispatched again or released."""
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

    def _leave_worker(self, task: int) -> tuple[act.TaskRef, int, int] | None:
        held = self._held.pop(task, None)
        if held is not None:
            self._tasks_of_worker.get(held[2], {}).pop(task, None)
        return held

    def _take_back(self, task: int) -> act.TaskRef | None:
        held = self._leave_worker(task)
        if held is None:
            return None
        self._requeue(held)
        return held[0]

    def _requeue(self, held: tuple[act.TaskRef, int, int]) -> None:
        ref, op, _ = held
        if ref.task < 0:
            self.unit_restarted(ref.unit)
        elif ref.task in self._sizes:
            self._enqueue(ref.task, op)

    def _enqueue(self, task: int, op: int) -> None:
        if task not in self._waiting:
            self._waiting[task] = op
            self.queue_tasks[op] += 1
            self.queue_bytes[op] += self._sizes.get(task, 0)

    def _dequeue(self, task: int) -> None:
        op = self._waiting.pop(task, None)
        if op is not None:
            self.queue_tasks[op] -= 1
            self.queue_bytes[op] -= self._sizes.get(task, 0)

    # -- workers ------------------------------------------------------------------------------------------------------

    def _worker_started(self, action: act.StartWorker) -> None:
        """Add a worker that is being set up."""
        self._starting.add(action.worker)
        self._op_of_worker[action.worker] = action.op

    def _worker_ready(self, event: ev.WorkerReady) -> None:
        """Mark a worker as set up."""
        self._starting.discard(event.worker)
        self._tasks_of_worker.setdefault(event.worker, {})

    def _worker_gone(self, item: ev.WorkerLost | ev.WorkerSetupFailed | act.StopWorker) -> None:
        """Remove a worker and queue its tasks again."""
        self._starting.discard(item.worker)
        self._op_of_worker.pop(item.worker, None)
        if self._tasks_of_worker.pop(item.worker, None) is not None:
            # Rare, so a scan over the tasks of all workers is cheaper than an index to update for every task.
            for task in [task for task, held in self._held.items() if held[2] == item.worker]:
                self._requeue(self._held.pop(task))
