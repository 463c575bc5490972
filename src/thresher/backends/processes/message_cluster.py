# SPDX-License-Identifier: Apache-2.0
"""Base class of clusters whose workers exchange the messages of `runtime.processes.messages` with the driver."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from thresher.backends.processes.worker_places import WorkerPlaces
from thresher.core.planning.plan import Op
from thresher.core.resources import Resources
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.runtime.crashes.diagnosis import Coroner
from thresher.runtime.executor import Limits
from thresher.runtime.memory.usage import RECYCLE_SHARE, worker_share
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payloads.payload import Payload, decode_result, encode
from thresher.runtime.processes import messages as msg
from thresher.runtime.worker.stage_call import ABORTED
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev

SHORT_SHARE = 0.9
"""From this share of the run's memory on, the memory of all workers is reported."""


class Book(Protocol):
    """Payloads of a run, by task id."""

    def add(self, payload: Payload) -> int:
        """Add a payload and return its task id."""

    def take(self, task: int) -> Payload:
        """Return the payload of a task inline, and release it."""

    def release(self, task: int) -> None:
        """Release the payload of a task. Unknown tasks are ignored."""


class MessageCluster(ABC):
    """Turns actions into messages and messages into events. A subclass starts workers and transports the messages."""

    def __init__(self, limits: Limits, book: Book) -> None:
        self._limits = limits
        self._units: dict[str, Unit] = {}
        self._initial: dict[str, Task] = {}
        self._done: dict[str, list[str]] = {}
        """Committed units of each file that is, or may be, a stream."""
        self._streams: set[str] = set()
        """Files that are streams."""
        self._tasks = book
        self._ops: tuple[Op, ...] = ()
        self._places = WorkerPlaces({})
        self._started_at: dict[int, float] = {}
        """Start time of workers that are not ready yet."""
        self._private_bytes_at_start: dict[int, int] = {}
        """Private memory of each worker when it became ready."""
        self._coroner = Coroner()
        self._items: dict[int, int] = {}
        self._quarantined: dict[int, list[bytes]] = {}
        self._events: list[ev.AnyEvent] = []
        self._performers: dict[type, Callable[[Any], None]] = {
            act.StartWorker: self._start_worker,
            act.StopWorker: self._stop_worker,
            act.Dispatch: self._dispatch,
            act.GrantCredit: lambda action: self._send(action.worker, msg.Credit(action.task, action.credit)),
            act.Resume: lambda action: self._send(action.worker, msg.GoOn(action.task, action.credit)),
            act.Release: self._release,
            act.Requeue: self._take_back,
        }
        self._handlers: dict[type, Callable[[int, Any], None]] = {
            msg.Done: self._on_done,
            msg.TaskProgress: self._on_progress,
            msg.Parked: self._on_parked,
            msg.Failed: self._on_failed,
            msg.Published: self._on_published,
            msg.NotPublished: self._on_not_published,
            msg.Started: self._on_started,
            msg.Grown: self._on_grown,
            msg.Cleared: lambda _, message: self._coroner.cleared(message.cleared),
            msg.CannotStart: lambda worker, m: self._events.append(ev.WorkerSetupFailed(worker, m.message)),
        }

    # -- for subclasses ------------------------------------------------------------------------------------------------

    @abstractmethod
    def _start(self, action: act.StartWorker) -> None:
        """Start a worker whose place is free."""

    @abstractmethod
    def _send(self, worker: int, message: Any) -> None:
        """Queue a message for the next poll. Messages to a worker that has ended are dropped; its end is reported."""

    @abstractmethod
    def _knows(self, worker: int) -> bool:
        """Return True if a worker is running or starting."""

    @abstractmethod
    def _answered(self, worker: int, tasks: int) -> None:
        """Record that a worker has answered for this many tasks."""

    @abstractmethod
    def _payload_for(self, worker: int, task: int) -> Payload:
        """Return the payload of a task for a worker to open."""

    def _workers_on_node(self, worker: int) -> int:
        """Return the number of shared workers on the node of a worker."""
        return self._limits.shared_workers

    # -- the `Cluster` interface ---------------------------------------------------------------------------------------

    def _read_plan(self, setup: WorkerSetup) -> None:
        """Read ops and fixed numbers of workers from the plan."""
        self._ops = setup.plan.ops
        fixed: dict[int | None, int] = {op.index: op.workers for op in self._ops if op.workers is not None}
        self._places = WorkerPlaces({**fixed, None: self._limits.shared_workers})

    def add_units(self, units: Sequence[Unit], tasks: dict[str, Task] | None = None) -> None:
        """Store units and their initial tasks."""
        self._units.update((unit.id, unit) for unit in units)
        self._streams.update(unit.id.rsplit("-", 1)[0] for unit in units if unit.stream)
        if tasks:
            self._initial.update(tasks)

    def mark_done(self, unit_ids: Sequence[str]) -> None:
        """Record units as committed and drop what was needed to run them."""
        for unit_id in unit_ids:
            file = unit_id.rsplit("-", 1)[0]
            if self._units.pop(unit_id, None) is None or file in self._streams:
                self._done.setdefault(file, []).append(unit_id)
            self._initial.pop(unit_id, None)

    def perform(self, action: act.AnyAction) -> None:
        """Queue the messages of an action; the next poll sends them."""
        self._performers[type(action)](action)

    def commit(self, action: act.Commit, tally: Tally) -> None:
        """Send the commit to the worker that holds the unit's output."""
        assert action.worker is not None, "the driver itself records units that no worker holds"
        self._send(action.worker, msg.Publish(self._units[action.unit], action.epoch, tally))

    def take_result(self, task: int) -> Any:
        """Return the encoded task and its number of records."""
        return self._tasks.take(task), self._items.pop(task, 0)

    def result_items(self, payload: Any) -> int:
        """Return the number of records that the worker counted."""
        items: int = payload[1]
        return items

    def take_quarantined(self, task: int) -> list[bytes]:
        """Return the quarantine lines from the reports of a task."""
        return self._quarantined.pop(task, [])

    def decode_result(self, payload: Any) -> Task:
        """Return the task of an encoded result."""
        return decode_result(payload[0])

    # -- memory --------------------------------------------------------------------------------------------------------

    def _report_memory(self, workers: dict[int, int], total: int) -> None:
        """Report workers above their memory share; when memory is short, report all workers."""
        memory = self._limits.memory_bytes
        short = bool(memory) and total >= SHORT_SHARE * memory
        for worker, nbytes in workers.items():
            share = self._share_of(worker)
            limit = share and share + self._private_bytes_at_start.get(worker, 0)
            if short or 0 < limit < nbytes:
                self._events.append(ev.WorkerMemory(worker, nbytes, limit))

    def _share_of(self, worker: int) -> int:
        """Return the private memory that a worker may use; 0: no limit, or the worker is ending."""
        action = self._places.action(worker)
        if action is None or not self._limits.memory_bytes:
            return 0
        needs = Resources() if action.op is None else self._ops[action.op].resources
        if needs.requires_gpu:
            # A worker also maps the memory of its device and of the device driver.
            return int(needs.memory_gb * 10**9)
        share = worker_share(self._limits.memory_bytes, self._workers_on_node(worker))
        return share + int(needs.memory_gb * 10**9)

    # -- actions -------------------------------------------------------------------------------------------------------

    def _start_worker(self, action: act.StartWorker) -> None:
        if self._places.add(action):
            self._start(action)

    def _stop_worker(self, action: act.StopWorker) -> None:
        if self._places.leave(action.worker):
            self._send(action.worker, msg.Stop())

    def _dispatch(self, action: act.Dispatch) -> None:
        worker = action.worker
        if not self._knows(worker):
            return  # its end is reported soon
        units: list[Unit] = []
        places: dict[str, int] = {}
        tasks = []
        for ref in action.tasks:
            place = places.get(ref.unit)
            if place is None:
                place = places[ref.unit] = len(units)
                units.append(self._units[ref.unit])
            payload = self._initial_payload(ref) if ref.task < 0 else self._payload_for(worker, ref.task)
            tasks.append(msg.TaskIn(ref.task, place, ref.epoch, ref.credit, payload))
        done = self._done.get(units[0].id.rsplit("-", 1)[0], []) if units[0].stream else []
        self._send(worker, msg.Run(action.op, units, tasks, done, self._coroner.news_for(worker)))

    def _initial_payload(self, ref: act.TaskRef) -> Payload | None:
        task = self._initial.get(ref.unit)
        return None if task is None else encode(task, from_main=True).inline()

    def _release(self, action: act.Release) -> None:
        for task in action.tasks:
            self._tasks.release(task)

    def _take_back(self, action: act.Requeue) -> None:
        self._send(action.worker, msg.GiveBack(list(action.tasks), action.unit, action.epoch))
        self._answered(action.worker, len(action.tasks))

    # -- messages ------------------------------------------------------------------------------------------------------

    def _handle(self, worker: int, message: Any) -> None:
        """Turn a message into events."""
        self._handlers[type(message)](worker, message)

    def _take_events(self) -> list[ev.AnyEvent]:
        events, self._events = self._events, []
        return events

    def _emitted(self, outputs: list[msg.Output]) -> tuple[ev.Emitted, ...]:
        return tuple([self._add_output(output) for output in outputs])

    def _add_output(self, output: msg.Output) -> ev.Emitted:
        """Register an output and give it a task id."""
        unit_id, order = "", (0, 0)
        if output.unit is not None:
            self._units.setdefault(output.unit.id, output.unit)
            unit_id, order = output.unit.id, output.unit.order
        if output.payload is None:
            return ev.Emitted(0, 0, unit_id, order, output.closes)
        task = self._tasks.add(output.payload)
        if output.items:
            self._items[task] = output.items
        return ev.Emitted(task, max(1, output.payload.nbytes), unit_id, order, output.closes)

    def _note_quarantined(self, told: msg.TaskUpdate) -> None:
        if told.quarantined:
            self._quarantined.setdefault(told.task, []).extend(told.quarantined)

    def _on_started(self, worker: int, message: msg.Started) -> None:
        setup_s = time.monotonic() - self._started_at.pop(worker)
        self._private_bytes_at_start[worker] = message.private_bytes
        self._events.append(ev.WorkerReady(worker, setup_s=setup_s))

    def _on_grown(self, worker: int, message: msg.Grown) -> None:
        limit = int(self._share_of(worker) * RECYCLE_SHARE)
        if limit:
            self._events.append(ev.WorkerMemory(worker, message.private_bytes, limit))

    def _on_done(self, worker: int, message: msg.Done) -> None:
        self._answered(worker, len(message.tasks))
        for told in message.tasks:
            self._note_quarantined(told)
            outputs = self._emitted(told.outputs) if told.outputs else ()
            self._events.append(ev.TaskDone(told.task, worker, outputs, told.busy_s, told.tally))

    def _on_progress(self, worker: int, message: msg.TaskProgress) -> None:
        told = message.update
        self._note_quarantined(told)
        outputs = self._emitted(told.outputs)
        self._events.append(ev.TaskEmitted(told.task, worker, outputs, told.tally, told.busy_s))

    def _on_parked(self, worker: int, message: msg.Parked) -> None:
        told = message.update
        self._note_quarantined(told)
        outputs = self._emitted(told.outputs)
        self._events.append(ev.TaskParked(told.task, worker, outputs, told.tally, told.busy_s))

    def _on_failed(self, worker: int, message: msg.Failed) -> None:
        self._answered(worker, len(message.tasks))
        for task in message.tasks:
            if message.error == ABORTED:
                self._events.append(ev.TaskEmitted(task, worker, ()))  # so that its unit restarts as a whole
            self._events.append(
                ev.TaskFailed(task, worker, message.error, message.message, message.fatal, message.blamed)
            )

    def _on_published(self, worker: int, message: msg.Published) -> None:
        self._events.append(ev.UnitCommitted(message.unit, message.epoch, message.record))

    def _on_not_published(self, worker: int, message: msg.NotPublished) -> None:
        self._events.append(ev.CommitFailed(message.unit, message.epoch, message.message, message.retryable))

    def _forget_worker(self, worker: int) -> None:
        """Forget a worker that has ended and start those that waited for its place."""
        self._started_at.pop(worker, None)
        self._private_bytes_at_start.pop(worker, None)
        for action in self._places.gone(worker):
            self._start(action)
