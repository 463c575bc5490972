# SPDX-License-Identifier: Apache-2.0
"""Processes and shared memory on this machine: no daemon, no open port."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from thresher.backends.worker_places import WorkerPlaces
from thresher.core.plan import Op
from thresher.core.resources import Resources
from thresher.core.tally import Tally
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.runtime import messages as msg
from thresher.runtime.accelerators import Accelerator, visible_devices
from thresher.runtime.arena import create_arena
from thresher.runtime.cluster import MemoryReading
from thresher.runtime.coroner import Coroner
from thresher.runtime.executor import Limits
from thresher.runtime.memory import RECYCLE_SHARE, TreeMeter, worker_share
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payload import NOWHERE, Payload, decode_inline, encode
from thresher.runtime.payload_book import PayloadBook
from thresher.runtime.process_pool import Gone, ProcessPool
from thresher.runtime.setup_pickle import dump_setup
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev

ARENA_BYTES = 2**36
"""Address space of an arena; memory is taken page by page."""
LEAST_ARENA_BYTES = 2**28
WORKER_MEMORY_S = 1.0
"""How often the memory of each worker is looked at."""
SHORT_SHARE = 0.9
"""From this part of the run's memory on, the memory of all workers is told."""
KEEP_LEAST, KEEP_MOST = 8 * 2**20, 64 * 2**20
"""Freed shared memory that a worker keeps warm."""


class LocalCluster:
    """Performs actions on worker processes and turns their messages into events."""

    def __init__(self, pool: ProcessPool, limits: Limits, accelerators: Sequence[Accelerator] = ()) -> None:
        """With `limits.barrier` payloads go to files in place of shared memory (batch mode)."""
        self._pool = pool
        self._limits = limits
        self._accelerators = accelerators
        self._book = PayloadBook()
        self._meter = TreeMeter()
        self._spill_to = ""
        memory_bytes, workers = limits.memory_bytes, limits.shared_workers
        share = memory_bytes // (32 * workers) if memory_bytes else KEEP_MOST
        self._keep_bytes = max(KEEP_LEAST, min(KEEP_MOST, share))
        self._units: dict[str, Unit] = {}
        self._initial: dict[str, Task] = {}
        self._done: dict[str, list[str]] = {}
        """File to its committed units, where it is a stream or may be one."""
        self._streams: set[str] = set()
        """Files that are streams."""
        self._opened: dict[int, set[int]] = {}
        """Worker to the arenas that it was given."""
        self._ops: tuple[Op, ...] = ()
        self._places = WorkerPlaces({})
        self._forked_at: dict[int, float] = {}
        """When a worker that is not ready yet was started."""
        self._began_with: dict[int, int] = {}
        """Memory of a worker for itself when it was ready."""
        self._told_memory_at = 0.0
        self._coroner = Coroner()
        self._items: dict[int, int] = {}
        self._quarantined: dict[int, list[bytes]] = {}
        self._events: list[ev.AnyEvent] = []
        self._performers: dict[type, Callable[[Any], None]] = {
            act.StartWorker: self._start_worker,
            act.StopWorker: self._stop_worker,
            act.Dispatch: self._dispatch,
            act.GrantCredit: lambda action: self._pool.send(action.worker, msg.Credit(action.task, action.credit)),
            act.Resume: lambda action: self._pool.send(action.worker, msg.GoOn(action.task, action.credit)),
            act.Release: self._release,
            act.Requeue: self._take_back,
        }
        self._hearers: dict[type, Callable[[int, Any], None]] = {
            msg.Done: self._hear_done,
            msg.Progress: self._hear_progress,
            msg.Parked: self._hear_parked,
            msg.Failed: self._hear_failed,
            msg.Returned: lambda worker, message: self._book.returned(worker, message.leases),
            msg.Published: self._hear_published,
            msg.NotPublished: self._hear_not_published,
            msg.Started: self._hear_started,
            msg.Grown: self._hear_grown,
            msg.Cleared: lambda _, message: self._coroner.cleared(message.cleared),
            msg.CannotStart: lambda worker, m: self._events.append(ev.WorkerSetupFailed(worker, m.message)),
            Gone: self._hear_gone,
        }

    # -- what the driver asks -----------------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Send the plan to the zygote."""
        if self._limits.barrier:
            folder = setup.place.tmp if setup.place else tempfile.gettempdir()
            os.makedirs(folder, exist_ok=True)
            self._spill_to = tempfile.mkdtemp(prefix="payloads-", dir=folder)
        self._ops = setup.plan.ops
        fixed: dict[int | None, int] = {op.index: op.workers for op in self._ops if op.workers is not None}
        self._coroner.watches_time = any(stage.timeout_s for stage in setup.plan.stages)
        self._places = WorkerPlaces({**fixed, None: self._limits.shared_workers})
        self._pool.load(dump_setup(setup), output)

    def add_units(self, units: Sequence[Unit], tasks: dict[str, Task] | None = None) -> None:
        """Remember units and their initial tasks."""
        self._units.update((unit.id, unit) for unit in units)
        self._streams.update(unit.id.rsplit("-", 1)[0] for unit in units if unit.stream)
        if tasks:
            self._initial.update(tasks)

    def mark_done(self, unit_ids: Sequence[str]) -> None:
        """Remember what is committed, and forget what was needed for it."""
        for unit_id in unit_ids:
            file = unit_id.rsplit("-", 1)[0]
            if self._units.pop(unit_id, None) is None or file in self._streams:
                self._done.setdefault(file, []).append(unit_id)
            self._initial.pop(unit_id, None)

    def perform(self, action: act.AnyAction) -> None:
        """Queue messages; they are sent by the next poll."""
        self._performers[type(action)](action)

    def commit(self, action: act.Commit, tally: Tally) -> None:
        """Ask the worker that holds the unit's output."""
        assert action.worker is not None, "the driver itself records units that no worker holds"
        self._pool.send(action.worker, msg.Publish(self._units[action.unit], action.epoch, tally))

    def poll(self, timeout_s: float) -> list[ev.AnyEvent]:
        """What workers said."""
        self._send_freed()
        for worker in self._coroner.overdue(time.monotonic_ns()):
            self._pool.kill_hanging(worker)
        if not self._events:
            for worker, message in self._pool.poll(timeout_s):
                self._hearers[type(message)](worker, message)
        events, self._events = self._events, []
        return events

    def take_result(self, task: int) -> Any:
        """The encoded task and how many records it holds."""
        return self._book.take(task), self._items.pop(task, 0)

    def result_items(self, payload: Any) -> int:
        """As the worker counted."""
        items: int = payload[1]
        return items

    def take_quarantined(self, task: int) -> list[bytes]:
        """What the reports of a task held."""
        return self._quarantined.pop(task, [])

    def decode_result(self, payload: Any) -> Task:
        """The task itself."""
        return decode_inline(payload[0])

    def memory(self) -> MemoryReading:
        """Processes, and shared memory once."""
        now = time.monotonic()
        self._pool.kill_overdue(now)
        arenas = self._book.arena_bytes()
        workers = self._pool.worker_pids()
        used = self._meter.measure_each([os.getpid(), *self._pool.zygote_pids(), *workers.values()], now)
        total = sum(used.values()) + arenas
        if now - self._told_memory_at >= WORKER_MEMORY_S:
            self._told_memory_at = now
            self._tell_memory({worker: used[pid] for worker, pid in workers.items()}, total)
        return MemoryReading(total, arenas)

    def _tell_memory(self, workers: dict[int, int], total: int) -> None:
        """Which workers take too much for themselves; where memory is short, what each of them takes."""
        memory = self._limits.memory_bytes
        short = bool(memory) and total >= SHORT_SHARE * memory
        for worker, nbytes in workers.items():
            share = self._share_of(worker)
            limit = share and share + self._began_with.get(worker, 0)
            if short or 0 < limit < nbytes:
                self._events.append(ev.WorkerMemory(worker, nbytes, limit))

    def _share_of(self, worker: int) -> int:
        """What a worker may take for itself; 0: no limit, or a worker that ends."""
        action = self._places.action(worker)
        if action is None or not self._limits.memory_bytes:
            return 0
        needs = Resources() if action.op is None else self._ops[action.op].resources
        if needs.requires_gpu:
            # The memory of a device, and what its driver keeps for it, is mapped by the worker too.
            return int(needs.memory_gb * 10**9)
        share = worker_share(self._limits.memory_bytes, self._limits.shared_workers)
        return share + int(needs.memory_gb * 10**9)

    def close(self, *, kill: bool = False) -> None:
        """End the processes, free the memory."""
        self._pool.close(kill=kill)
        self._book.close()
        if self._spill_to:
            shutil.rmtree(self._spill_to, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: others keep their files there too
                os.rmdir(os.path.dirname(self._spill_to))

    # -- actions ------------------------------------------------------------------------------------------------------

    def _start_worker(self, action: act.StartWorker) -> None:
        if self._places.add(action):
            self._fork(action)

    def _fork(self, action: act.StartWorker) -> None:
        worker, op = action.worker, action.op
        needs_gpu = op is not None and self._ops[op].resources.requires_gpu
        share = self._share_of(worker)
        request = msg.Fork(
            worker,
            op,
            self._keep_bytes,
            self._places.rank(worker),
            self._places.count(op),
            self._spill_to,
            action.node,
            action.devices,
            visible_devices(self._accelerators, action.devices),
            share,
            bool(share) and not needs_gpu,
            not needs_gpu and any(other.resources.requires_gpu for other in self._ops),
        )
        arena = create_arena(_arena_size())
        self._book.add_arena(worker, arena)
        self._coroner.watch(worker, arena)
        self._opened[worker] = {worker}
        self._forked_at[worker] = time.monotonic()
        self._pool.start(request, arena)

    def _stop_worker(self, action: act.StopWorker) -> None:
        if self._places.leave(action.worker):
            self._pool.send(action.worker, msg.Stop())

    def _dispatch(self, action: act.Dispatch) -> None:
        worker = action.worker
        if not self._pool.knows(worker):
            return  # its end is about to be told
        units: list[Unit] = []
        places: dict[str, int] = {}
        tasks = []
        for ref in action.tasks:
            place = places.get(ref.unit)
            if place is None:
                place = places[ref.unit] = len(units)
                units.append(self._units[ref.unit])
            tasks.append(msg.TaskIn(ref.task, place, ref.epoch, ref.credit, self._payload_for(worker, ref)))
        done = self._done.get(units[0].id.rsplit("-", 1)[0], []) if units[0].stream else []
        self._pool.send(worker, msg.Run(action.op, units, tasks, done, self._coroner.news_for(worker)))

    def _payload_for(self, worker: int, ref: act.TaskRef) -> Payload | None:
        if ref.task < 0:
            task = self._initial.get(ref.unit)
            return None if task is None else encode(task, from_main=True).inline()
        payload = self._book.lend(ref.task, worker)
        if payload.arena != NOWHERE and payload.arena not in self._opened[worker]:
            self._opened[worker].add(payload.arena)
            self._pool.send(worker, msg.OpenArena(payload.arena), (self._book.duplicate(payload.arena),))
        return payload

    def _release(self, action: act.Release) -> None:
        for task in action.tasks:
            self._book.release(task)

    def _take_back(self, action: act.Requeue) -> None:
        self._pool.send(action.worker, msg.GiveBack(list(action.tasks), action.unit, action.epoch))
        self._pool.answered(action.worker, len(action.tasks))

    def _send_freed(self) -> None:
        freed, self._book.to_free = self._book.to_free, {}
        for worker, offsets in freed.items():
            self._pool.send(worker, msg.Free(offsets))
        gone, self._book.gone_arenas = self._book.gone_arenas, []
        for arena in gone:
            for worker, opened in self._opened.items():
                if arena in opened:
                    opened.discard(arena)
                    self._pool.send(worker, msg.DropArena(arena))

    # -- messages -----------------------------------------------------------------------------------------------------

    def _emitted(self, outputs: list[msg.Output]) -> tuple[ev.Emitted, ...]:
        return tuple([self._number(output) for output in outputs])

    def _number(self, output: msg.Output) -> ev.Emitted:
        """Give an emission its task id."""
        unit_id, order = "", (0, 0)
        if output.unit is not None:
            self._units.setdefault(output.unit.id, output.unit)
            unit_id, order = output.unit.id, output.unit.order
        if output.payload is None:
            return ev.Emitted(0, 0, unit_id, order, output.closes)
        task = self._book.add(output.payload)
        if output.items:
            self._items[task] = output.items
        return ev.Emitted(task, max(1, output.payload.nbytes), unit_id, order, output.closes)

    def _note_quarantined(self, told: msg.Told) -> None:
        if told.quarantined:
            self._quarantined.setdefault(told.task, []).extend(told.quarantined)

    def _hear_started(self, worker: int, message: msg.Started) -> None:
        setup_s = time.monotonic() - self._forked_at.pop(worker)
        self._began_with[worker] = message.private_bytes
        self._events.append(ev.WorkerReady(worker, setup_s=setup_s))

    def _hear_grown(self, worker: int, message: msg.Grown) -> None:
        limit = int(self._share_of(worker) * RECYCLE_SHARE)
        if limit:
            self._events.append(ev.WorkerMemory(worker, message.private_bytes, limit))

    def _hear_done(self, worker: int, message: msg.Done) -> None:
        self._pool.answered(worker, len(message.tasks))
        for told in message.tasks:
            self._note_quarantined(told)
            outputs = self._emitted(told.outputs) if told.outputs else ()
            self._events.append(ev.TaskDone(told.task, worker, outputs, told.busy_s, told.tally))

    def _hear_progress(self, worker: int, message: msg.Progress) -> None:
        told = message.told
        self._note_quarantined(told)
        outputs = self._emitted(told.outputs)
        self._events.append(ev.TaskEmitted(told.task, worker, outputs, told.tally, told.busy_s))

    def _hear_parked(self, worker: int, message: msg.Parked) -> None:
        told = message.told
        self._note_quarantined(told)
        outputs = self._emitted(told.outputs)
        self._events.append(ev.TaskParked(told.task, worker, outputs, told.tally, told.busy_s))

    def _hear_failed(self, worker: int, message: msg.Failed) -> None:
        self._pool.answered(worker, len(message.tasks))
        for task in message.tasks:
            self._events.append(
                ev.TaskFailed(task, worker, message.error, message.message, message.fatal, message.blamed)
            )

    def _hear_published(self, worker: int, message: msg.Published) -> None:
        self._events.append(ev.UnitCommitted(message.unit, message.epoch, message.record))

    def _hear_not_published(self, worker: int, message: msg.NotPublished) -> None:
        self._events.append(ev.CommitFailed(message.unit, message.epoch, message.message, message.retryable))

    def _hear_gone(self, worker: int, message: Gone) -> None:
        self._opened.pop(worker, None)
        self._forked_at.pop(worker, None)
        self._began_with.pop(worker, None)
        found = self._coroner.examine(worker, message)
        self._book.worker_gone(worker)
        for action in self._places.gone(worker):
            self._fork(action)
        if not message.expected:
            self._events.append(ev.WorkerLost(worker, found.reason, found.blamed, found.condemned))


def _arena_size() -> int:
    """Address space costs nothing, unless it is limited (`ulimit -v`): each worker maps the arenas of all."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return ARENA_BYTES if limit == resource.RLIM_INFINITY else min(ARENA_BYTES, max(LEAST_ARENA_BYTES, limit // 16))
