# SPDX-License-Identifier: Apache-2.0
"""Which tasks wait, and which workers hold the others, followed from the outside."""

from __future__ import annotations

from collections.abc import Sequence

from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import OpSpec


class HeldTasks:
    """Queues of ops and hands of workers, as far as events and actions tell.

    A root task (of a whole unit) is known by its unit while it waits, because the scheduler gives it its id when it is
    dispatched. What is not known is ignored: this is a picture for people, the scheduler keeps the truth.
    """

    def __init__(self, ops: Sequence[OpSpec]) -> None:
        self._next = [op.next for op in ops]
        self._dedicated = [op.has_own_workers for op in ops]
        self.queue_tasks = [0] * len(ops)
        """Tasks that wait, by op."""
        self.queue_bytes = [0] * len(ops)
        """Their payload bytes, by op."""
        self.payload_bytes = 0
        """Bytes of all payloads that are not released."""
        self._waiting_units: dict[str, int] = {}  # unit -> entry op
        self._entry: dict[str, int] = {}  # unit -> entry op, of every unit that is not done
        self._waiting: dict[int, int] = {}  # task -> op
        self._sizes: dict[int, int] = {}  # task -> bytes of its payload
        self._held: dict[int, tuple[act.TaskRef, int, int]] = {}  # task -> its ref, op, worker
        self._hands: dict[int, dict[int, int]] = {}  # ready worker -> tasks it can run, in its order -> op
        self._starting: set[int] = set()
        self._op_of_worker: dict[int, int | None] = {}

    # -- what the snapshot asks ---------------------------------------------------------------------------------------

    def ref(self, task: int) -> act.TaskRef | None:
        """How a task that a worker holds was dispatched."""
        held = self._held.get(task)
        return held[0] if held is not None else None

    def ready_workers(self) -> int:
        """Workers that are set up."""
        return len(self._hands)

    def starting_workers(self) -> int:
        """Workers that are being set up."""
        return len(self._starting)

    def busy_workers(self) -> int:
        """Workers that hold a task which is not parked."""
        return sum(1 for tasks in self._hands.values() if tasks)

    def busy_in(self, op: int) -> int:
        """Workers whose current task belongs to `op`."""
        return sum(1 for tasks in self._hands.values() if tasks and next(iter(tasks.values())) == op)

    def workers_for(self, ops: Sequence[int]) -> int:
        """Workers that are set up and can run one of `ops`."""
        shared = any(not self._dedicated[op] for op in ops)
        own = [op for op in ops if self._dedicated[op]]
        kinds = [self._op_of_worker.get(worker) for worker in self._hands]
        return sum(1 for kind in kinds if (shared if kind is None else kind in own))

    # -- units --------------------------------------------------------------------------------------------------------

    def unit_waits(self, unit: str, entry: int) -> None:
        """A unit was listed."""
        self._entry[unit] = entry
        if unit not in self._waiting_units:
            self._waiting_units[unit] = entry
            self.queue_tasks[entry] += 1

    def unit_restarts(self, unit: str) -> None:
        """A unit begins again from its input, if it has one of its own."""
        if unit in self._entry:
            self.unit_waits(unit, self._entry[unit])

    def unit_done(self, unit: str) -> None:
        """A unit is committed."""
        self._entry.pop(unit, None)
        self._unit_leaves(unit)

    def _unit_leaves(self, unit: str) -> None:
        entry = self._waiting_units.pop(unit, None)
        if entry is not None:
            self.queue_tasks[entry] -= 1

    # -- tasks --------------------------------------------------------------------------------------------------------

    def emitted(self, parent: int, outputs: tuple[ev.Emitted, ...]) -> None:
        """A task gave new tasks to the next op."""
        held = self._held.get(parent)
        op = self._next[held[1]] if held is not None else None
        if op is None:
            return
        for output in outputs:
            if output.task:
                self._sizes[output.task] = output.nbytes
                self.payload_bytes += output.nbytes
                self._wait(output.task, op)

    def dispatched(self, action: act.Dispatch) -> None:
        """Tasks went from a queue to a worker."""
        hand = self._hands.get(action.worker)
        for ref in action.tasks:
            if ref.task < 0:
                self._unit_leaves(ref.unit)
            else:
                self._leave(ref.task)
            self._held[ref.task] = (ref, action.op, action.worker)
            if hand is not None:
                hand[ref.task] = action.op

    def parked(self, task: int) -> None:
        """A task waits for credit inside its worker, which is free for others."""
        held = self._held.get(task)
        if held is not None:
            self._hands.get(held[2], {}).pop(task, None)

    def resumed(self, action: act.Resume | act.GrantCredit) -> None:
        """A parked task goes on."""
        held = self._held.get(action.task)
        hand = self._hands.get(action.worker)
        if held is not None and hand is not None:
            hand.setdefault(action.task, held[1])

    def ended(self, task: int) -> act.TaskRef | None:
        """A task is done; how it was dispatched."""
        held = self._held.pop(task, None)
        if held is None:
            return None
        self._hands.get(held[2], {}).pop(task, None)
        return held[0]

    def failed(self, task: int) -> None:
        """A task failed: until it is dispatched again, or released, it waits."""
        held = self._held.get(task)
        if held is not None:
            self.ended(task)
            self._give_back(held)

    def requeued(self, action: act.Requeue) -> None:
        """A worker gives tasks back."""
        for task in action.tasks:
            self.failed(task)

    def released(self, action: act.Release) -> None:
        """Payloads are free: these tasks are over."""
        for task in action.tasks:
            self._leave(task)
            self.payload_bytes -= self._sizes.pop(task, 0)

    def _give_back(self, held: tuple[act.TaskRef, int, int]) -> None:
        ref, op, _ = held
        if ref.task < 0:
            self.unit_restarts(ref.unit)
        elif ref.task in self._sizes:
            self._wait(ref.task, op)

    def _wait(self, task: int, op: int) -> None:
        if task not in self._waiting:
            self._waiting[task] = op
            self.queue_tasks[op] += 1
            self.queue_bytes[op] += self._sizes.get(task, 0)

    def _leave(self, task: int) -> None:
        op = self._waiting.pop(task, None)
        if op is not None:
            self.queue_tasks[op] -= 1
            self.queue_bytes[op] -= self._sizes.get(task, 0)

    # -- workers ------------------------------------------------------------------------------------------------------

    def worker_starts(self, action: act.StartWorker) -> None:
        """A worker is being set up."""
        self._starting.add(action.worker)
        self._op_of_worker[action.worker] = action.op

    def worker_ready(self, event: ev.WorkerReady) -> None:
        """A worker takes tasks."""
        self._starting.discard(event.worker)
        self._hands.setdefault(event.worker, {})

    def worker_gone(self, item: ev.WorkerLost | ev.WorkerSetupFailed | act.StopWorker) -> None:
        """A worker has ended; what it held waits again."""
        self._starting.discard(item.worker)
        self._op_of_worker.pop(item.worker, None)
        if self._hands.pop(item.worker, None) is not None:
            # Rare, so a scan over what all workers hold is cheaper than an index that every task would pay for.
            for task in [task for task, held in self._held.items() if held[2] == item.worker]:
                self._give_back(self._held.pop(task))
