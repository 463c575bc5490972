# SPDX-License-Identifier: Apache-2.0
"""Deadlock prevention: if nothing runs although work is left, force the oldest task to run.

Dispatch considers a few workers and respects every limit, so it may start nothing although something could run.
When no task runs and no commit is in progress, no further event would come. `unblock` considers every worker of the
oldest task's pool; if each of them has a parked generator of the same op, the unit of the youngest one restarts.
"""

from __future__ import annotations

from heapq import heappop

from thresher.scheduler.nodes.locality import MAX_GENERATORS
from thresher.scheduler.state import DELAYED, HELD, PARKED, READY, UP, Op, State, Task, Worker
from thresher.scheduler.work.backpressure import reserve
from thresher.scheduler.work.dispatch import dispatch, resume, start
from thresher.scheduler.work.lineage import oldest_task
from thresher.scheduler.work.recovery import restart
from thresher.scheduler.work.unit_calls import queue_calls, take_call
from thresher.scheduler.workers.pools import cancel_draining, holds_nothing


def unblock(state: State) -> None:
    """Force the oldest task to run while nothing runs."""
    if state.spec.barrier:
        return  # without credits nothing parks, so dispatch has found every task that may run
    while not state.running and not state.commits and not state.stopping and not state.over:
        task = oldest_task(state)
        if task is None or task.state == DELAYED or not force_run(state, task):
            return


def force_run(state: State, task: Task) -> bool:
    """Make a task run, or make room for another attempt; return False if it has to wait for a worker to start."""
    op = task.op
    if task.state == PARKED:
        reserve(state, task, op.estimate, exempt=True)
        resume(state, task)
        return True
    if not op.pool.up:
        return False
    workers = [w for w in state.workers.values() if w.pool is op.pool and w.state == UP]
    if all(w.draining for w in workers) and any(not holds_nothing(w) for w in workers):
        for worker in workers:
            cancel_draining(state, worker)
        dispatch(state)
        return True
    workers = [w for w in workers if not w.draining]
    if not workers:
        return False
    if task.state == HELD and op.spec.by_unit:
        queue_calls(state, task.unit, flush=True)
        return True
    if task.state != READY or (not op.emits and not op.spec.by_unit):
        raise AssertionError(f"nothing runs and workers are free, but dispatch did not start {task.describe()}")
    enterable = [w for w in workers if op.index not in w.ops]
    if enterable:
        start_oldest(state, task, min(enterable, key=lambda w: (len(w.ops), w.id)))
    else:
        evict_youngest_parked(state, task, op, workers)
    return True


def start_oldest(state: State, task: Task, worker: Worker) -> None:
    """Start the oldest task beyond the budget, without a credit limit if it would park as a third generator."""
    op = task.op
    op.nready -= 1
    heappop(op.ready)
    if op.emits:
        reserve(state, task, op.estimate, exempt=True)
    tasks = take_call(task) if op.spec.by_unit else [task]
    start(state, worker, op, tasks, run_through=len(worker.ops) >= MAX_GENERATORS)


def evict_youngest_parked(state: State, task: Task, op: Op, workers: list[Worker]) -> None:
    """Restart the unit of the youngest parked generator of the op, without blame."""
    parked = [p for worker in workers for p in worker.parked.values() if p.op is op]
    youngest = max(parked, key=lambda p: p.key)
    if youngest.unit is task.unit:
        task.unit.serial = True  # otherwise the same happens again in the next epoch
    restart(state, youngest.unit)
    dispatch(state)
