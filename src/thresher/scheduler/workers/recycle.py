# SPDX-License-Identifier: Apache-2.0
"""Recycle workers: by age, by private memory, and when the memory of the run is short.

A worker is recycled only after it finished a task, so that a limit that is too low costs time but never stalls the run.
(`dispatch` applies `worker_max_tasks`.)
"""

from __future__ import annotations

from thresher.scheduler.events import MemorySample, WorkerMemory
from thresher.scheduler.state import UP, State, Worker
from thresher.scheduler.workers.pools import drain_worker, refill_wanting, stop_idle


def recycle_old(state: State) -> None:
    """Drain workers that have reached their maximum age, one at a time and not too often."""
    fleet, spec = state.fleet, state.spec
    if not spec.worker_max_lifetime_s:
        return
    while fleet.by_age:
        worker = fleet.by_age[0]
        if worker.draining or state.workers.get(worker.id) is not worker:
            fleet.by_age.popleft()
            continue
        due = worker.born_s + spec.worker_max_lifetime_s <= fleet.now_s
        if not due or fleet.now_s < fleet.next_restart_s or worker.pool.draining > worker.pool.size // 2:
            return
        fleet.by_age.popleft()
        if worker.done:
            fleet.next_restart_s = fleet.now_s + spec.worker_restart_interval_s
            drain_worker(state, worker)
        else:
            worker.born_s = fleet.now_s
            fleet.by_age.append(worker)


def on_worker_memory(state: State, event: WorkerMemory) -> None:
    """Store the memory of a worker, and drain it if it is above its limit."""
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    worker.private_bytes = event.private_bytes
    if event.limit_bytes and event.private_bytes > event.limit_bytes and worker.done:
        drain_worker(state, worker)


def on_memory_sample(state: State, event: MemorySample) -> None:
    """React to the memory of the run: first hold new input back, then stop idle workers, then recycle the largest."""
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
    """Drain the worker with the most private memory; the next one only after this one is gone."""
    fleet = state.fleet
    if (
        fleet.recycled is not None
        and state.workers.get(fleet.recycled.id) is fleet.recycled
        and fleet.recycled.draining
    ):
        return
    largest: Worker | None = None
    for worker in state.workers.values():
        fit = worker.state == UP and worker.done and worker.private_bytes and not worker.draining
        if fit and (largest is None or worker.private_bytes > largest.private_bytes):
            largest = worker
    if largest is not None:
        fleet.recycled = largest
        drain_worker(state, largest)
