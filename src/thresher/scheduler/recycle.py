# SPDX-License-Identifier: Apache-2.0
"""When a worker makes room for a fresh one: by age, by memory of its own, and when memory of the run is short.

A worker is recycled only after it finished a task, so that a limit that is too low costs time and never stops the run.
(`worker_max_tasks` is counted where tasks are given out, in `dispatch`.)
"""

from __future__ import annotations

from thresher.scheduler.events import MemorySample, WorkerMemory
from thresher.scheduler.pools import refill_wanting, send_off, stop_idle
from thresher.scheduler.state import UP, State, Worker


def recycle_old(state: State) -> None:
    """Send off workers that have lived long enough, one at a time and not too often."""
    fleet, spec = state.fleet, state.spec
    if not spec.worker_max_lifetime_s:
        return
    while fleet.by_age:
        worker = fleet.by_age[0]
        if worker.leaving or state.workers.get(worker.id) is not worker:
            fleet.by_age.popleft()
            continue
        due = worker.born_s + spec.worker_max_lifetime_s <= fleet.now_s
        if not due or fleet.now_s < fleet.next_restart_s or worker.pool.leaving > worker.pool.size // 2:
            return
        fleet.by_age.popleft()
        if worker.done:
            fleet.next_restart_s = fleet.now_s + spec.worker_restart_interval_s
            send_off(state, worker)
        else:
            worker.born_s = fleet.now_s
            fleet.by_age.append(worker)


def on_worker_memory(state: State, event: WorkerMemory) -> None:
    """Remember the memory of a worker, and send it off if it has too much."""
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    worker.private_bytes = event.private_bytes
    if event.limit_bytes and event.private_bytes > event.limit_bytes and worker.done:
        send_off(state, worker)


def on_memory_sample(state: State, event: MemorySample) -> None:
    """Memory of the run: first new input waits, then idle workers go, then the largest worker is recycled."""
    spec, fleet = state.spec, state.fleet
    share = event.used_bytes / event.limit_bytes if event.limit_bytes else 0.0
    if share >= spec.memory_high:
        state.pressure = True
    elif share < spec.memory_low:
        state.pressure = False
        if fleet.critical:
            fleet.critical = False
            refill_wanting(state)
    if share >= spec.memory_critical:
        fleet.critical = True
        if not stop_idle(state):
            recycle_largest(state)


def recycle_largest(state: State) -> None:
    """Send off the worker with most memory of its own; the next one when this one has gone."""
    fleet = state.fleet
    if fleet.recycled is not None and state.workers.get(fleet.recycled.id) is fleet.recycled and fleet.recycled.leaving:
        return
    largest: Worker | None = None
    for worker in state.workers.values():
        fit = worker.state == UP and worker.done and worker.private_bytes and not worker.leaving
        if fit and (largest is None or worker.private_bytes > largest.private_bytes):
            largest = worker
    if largest is not None:
        fleet.recycled = largest
        send_off(state, largest)
