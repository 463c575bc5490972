# SPDX-License-Identifier: Apache-2.0
"""Cluster of worker processes with shared memory on this machine: no daemon, no open port."""

from __future__ import annotations

import contextlib
import mmap
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Sequence
from typing import Any

from thresher.backends.processes.message_cluster import MessageCluster
from thresher.core.arguments.sizes import show_size
from thresher.errors import UsageError
from thresher.runtime.cluster import MemoryReading
from thresher.runtime.crashes.watchdog import NoteWatch, shortest_limit_s
from thresher.runtime.executor import Limits
from thresher.runtime.memory.usage import TreeMeter
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.payloads.arena import create_arena
from thresher.runtime.payloads.payload import NOWHERE, Payload
from thresher.runtime.payloads.registry import PayloadRegistry
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.accelerators import Accelerator, DeviceMeter, visible_devices
from thresher.runtime.processes.pool import Gone, ProcessPool
from thresher.runtime.processes.setup_pickle import dump_setup
from thresher.scheduler import actions as act
from thresher.scheduler import events as ev
from thresher.scheduler.model import LOCAL_NODE

ARENA_BYTES = 2**36
"""Address space of an arena; memory is allocated page by page."""
LEAST_ARENA_BYTES = 2**28
WORKER_MEMORY_S = 1.0
"""Interval between two measurements of each worker's memory."""
KEEP_SHARE = 8
"""All workers together keep at most one part in `KEEP_SHARE` of the memory as freed shared memory for reuse."""
KEEP_LEAST, KEEP_UNLIMITED = 8 * 2**20, 256 * 2**20
"""Bytes that a worker may always keep, and its allowance without a memory limit."""


class LocalCluster(MessageCluster):
    """Performs actions on worker processes and turns their messages into events."""

    def __init__(self, pool: ProcessPool, limits: Limits, accelerators: Sequence[Accelerator] = ()) -> None:
        """With `limits.barrier` (batch mode), payloads are written to files instead of shared memory."""
        self._pool = pool
        self._book = PayloadRegistry()
        super().__init__(limits, self._book)
        self._accelerators = accelerators
        self._meter = TreeMeter()
        self._devices = DeviceMeter(LOCAL_NODE, accelerators)
        self._spill_to = ""
        self._opened: dict[int, set[int]] = {}
        """Arenas that each worker has open."""
        self._memory_reported_at = 0.0
        self._watch = NoteWatch()
        self._handlers[msg.Returned] = lambda worker, message: self._book.returned(worker, message.leases)
        self._handlers[Gone] = self._on_gone

    # -- the `Cluster` interface ---------------------------------------------------------------------------------------

    def start(self, setup: WorkerSetup, output: int | None = None) -> None:
        """Send the plan to the zygote."""
        if self._limits.barrier:
            folder = setup.place.tmp if setup.place else tempfile.gettempdir()
            os.makedirs(folder, exist_ok=True)
            self._spill_to = tempfile.mkdtemp(prefix="payloads-", dir=folder)
        self._read_plan(setup)
        self._watch.measure_calls(shortest_limit_s(setup.plan.stages))
        self._pool.load(dump_setup(setup), output)

    def poll(self, timeout_s: float) -> list[ev.AnyEvent]:
        """Return events from the messages of workers."""
        self._send_freed()
        for worker in self._watch.overdue(time.monotonic_ns()):
            self._pool.kill_hanging(worker)
        if not self._events:
            for worker, message in self._pool.poll(min(timeout_s, self._watch.interval_s or timeout_s)):
                self._handlers[type(message)](worker, message)
        return self._take_events()

    def memory(self) -> MemoryReading:
        """Return the memory of all processes, counting shared memory once."""
        now = time.monotonic()
        self._pool.kill_overdue(now)
        arenas = self._book.arena_bytes()
        workers = self._pool.worker_pids()
        used = self._meter.measure_each([os.getpid(), *self._pool.zygote_pids(), *workers.values()], now)
        total = sum(used.values()) + arenas
        if now - self._memory_reported_at >= WORKER_MEMORY_S:
            self._memory_reported_at = now
            self._report_memory({worker: used[pid] for worker, pid in workers.items()}, total)
        return MemoryReading(total, arenas, self._devices.measure(now))

    def close(self, *, kill: bool = False) -> None:
        """End the processes and free the memory."""
        self._pool.close(kill=kill)
        self._book.close()
        if self._spill_to:
            shutil.rmtree(self._spill_to, ignore_errors=True)
            with contextlib.suppress(OSError):  # not empty: others keep their files there too
                os.rmdir(os.path.dirname(self._spill_to))

    # -- actions -------------------------------------------------------------------------------------------------------

    def _start(self, action: act.StartWorker) -> None:
        worker, op = action.worker, action.op
        needs_gpu = op is not None and self._ops[op].resources.requires_gpu
        share = self._share_of(worker)
        workers = self._limits.shared_workers + sum(other.workers or 1 for other in self._ops if other.dedicated)
        request = msg.Fork(
            worker,
            op,
            keep_bytes(self._limits.memory_bytes, workers),
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
        self._watch.watch(worker, arena)
        self._opened[worker] = {worker}
        self._started_at[worker] = time.monotonic()
        self._pool.start(request, arena)

    def _send(self, worker: int, message: Any) -> None:
        self._pool.send(worker, message)

    def _knows(self, worker: int) -> bool:
        return self._pool.knows(worker)

    def _answered(self, worker: int, tasks: int) -> None:
        self._pool.answered(worker, tasks)

    def _payload_for(self, worker: int, task: int) -> Payload:
        payload = self._book.lend(task, worker)
        if payload.arena != NOWHERE and payload.arena not in self._opened[worker]:
            self._opened[worker].add(payload.arena)
            self._pool.send(worker, msg.OpenArena(payload.arena), (self._book.duplicate(payload.arena),))
        return payload

    def _send_freed(self) -> None:
        freed, self._book.to_free = self._book.to_free, {}
        for worker, offsets in freed.items():
            self._pool.send(worker, msg.Free(offsets))
        gone, self._book.closed_arenas = self._book.closed_arenas, []
        for arena in gone:
            for worker, opened in self._opened.items():
                if arena in opened:
                    opened.discard(arena)
                    self._pool.send(worker, msg.DropArena(arena))

    # -- messages ------------------------------------------------------------------------------------------------------

    def _on_gone(self, worker: int, message: Gone) -> None:
        self._opened.pop(worker, None)
        note = self._watch.note_of_dead(worker, expected=message.expected)
        found = self._coroner.examine(worker, message, note)
        self._book.worker_gone(worker)
        self._forget_worker(worker)
        if not message.expected:
            self._events.append(ev.WorkerLost(worker, found.reason, found.blamed, found.condemned))


def keep_bytes(memory_bytes: int, workers: int) -> int:
    """Return the freed shared memory that each worker may keep for reuse; `memory_bytes`: the limit, 0 for none."""
    return max(KEEP_LEAST, memory_bytes // (KEEP_SHARE * workers)) if memory_bytes else KEEP_UNLIMITED


def _arena_size() -> int:
    """Return the size of an arena.

    Address space costs nothing unless it is limited (`ulimit -v`), since each worker maps the arenas of all. Shared
    memory counts as a file (`ulimit -f`).
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    size = ARENA_BYTES if limit == resource.RLIM_INFINITY else min(ARENA_BYTES, max(LEAST_ARENA_BYTES, limit // 16))
    largest, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if largest == resource.RLIM_INFINITY or size <= largest:
        return size
    if largest < LEAST_ARENA_BYTES:
        raise UsageError(
            f"files may have {show_size(largest)} here (ulimit -f), and the shared memory of a worker needs "
            f"{show_size(LEAST_ARENA_BYTES)}. Raise the limit (ulimit -f unlimited), or use --executor serial"
        )
    return largest // mmap.PAGESIZE * mmap.PAGESIZE
