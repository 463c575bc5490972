# SPDX-License-Identifier: Apache-2.0
"""Recovery: retry a task that emitted nothing, otherwise restart its unit; force a task to run if nothing else can.

Dispatch considers a few workers and respects every limit, so it may start nothing although something could run.
When no task runs and no commit is in progress, no further event would come. `unblock` considers every worker of the
oldest task's pool; if each of them has a parked generator of the same op, the unit of the youngest one restarts.
"""

from __future__ import annotations

from heapq import heappop

from thresher.scheduler.actions import Fail, Requeue
from thresher.scheduler.dispatch import MAX_GENERATORS, dispatch, resume, start
from thresher.scheduler.load import detach, drop_op_task, oldest_task, release, reserve
from thresher.scheduler.state import (
    DELAYED,
    ENDED,
    HELD,
    PARKED,
    READY,
    RUNNING,
    UP,
    VOID,
    OpState,
    State,
    TaskState,
    UnitState,
    WorkerState,
    chain,
)
from thresher.scheduler.units import (
    add_root,
    enqueue,
    enqueue_after,
    new_key,
    queue_calls,
    request_rerun,
    reset_commit,
    start_run,
    subtree,
    take_call,
)
from thresher.scheduler.workers.pools import cancel_draining, holds_nothing


def fail(state: State, reason: str, unit: UnitState | None = None, op: OpState | None = None) -> None:
    """Fail the run."""
    if not state.over:
        state.over = True
        state.out.append(Fail(reason, unit.name if unit else "", op.index if op else None))


def remove_void_task(state: State, task: TaskState) -> None:
    """Remove a void task that no worker holds any more, and free its payload."""
    release(state, task)
    task.worker = None
    del state.tasks[task.id]


def remove_running(state: State, task: TaskState) -> None:
    """Remove a running task whose unit is about to restart."""
    task.unit.sinking.pop(task.id, None)
    task.state = HELD  # `restart` drops what is still in the tree; a sink's task is no longer there
    task.worker = None
    if task.op.ordered:
        task.op.live -= 1
        task.state = VOID
        remove_void_task(state, task)


def retry_task(state: State, task: TaskState, reason: str, blamed: bool) -> None:
    """Queue a task that emitted nothing again; fail the run if it was blamed too often."""
    task.worker = None
    task.busy_s = 0.0
    if blamed:
        task.attempts += 1
        if task.attempts >= task.op.spec.max_attempts:
            fail_unit(state, task.unit, task.op, task.attempts, reason)
    enqueue_after(state, task, task.attempts if blamed else 0)


def blame_unit(state: State, unit: UnitState, op: OpState, reason: str) -> None:
    """Count a failure of a unit; fail the run if it was blamed too often."""
    unit.attempts += 1
    if unit.attempts >= op.spec.max_attempts:
        fail_unit(state, unit, op, unit.attempts, reason)


def fail_unit(state: State, unit: UnitState, op: OpState, attempts: int, reason: str) -> None:
    """Fail the run because of a unit."""
    reason = f"unit {unit.name!r} failed {attempts} times in {op.spec.name}, the last time: {reason}"
    fail(state, reason, unit, op)


def restart(state: State, unit: UnitState, *, blamed: bool = False) -> None:
    """Restart a unit under a new epoch; everything of the old one is void. A blamed unit waits for its backoff."""
    if unit.state == ENDED:
        return
    void(state, unit)
    failures = unit.attempts if blamed else 0
    if unit.is_stream:
        restart_stream(state, unit, failures)
    elif unit.stream is not None:
        unit.closed = False
        unit.accept_run = unit.stream.run + 1
        request_rerun(state, unit.stream)
    else:
        add_root(state, unit, failures)


def restart_stream(state: State, stream: UnitState, failures: int) -> None:
    """Restart the source task of a stream and the units it has not closed; closed units are not affected."""
    for unit in stream.children.values():
        if not unit.closed:
            void(state, unit)
            unit.accept_run = stream.run + 1
    stream.epoch -= 1  # `void` and `start_run` both increment it
    start_run(state, stream, failures)


def void(state: State, unit: UnitState) -> None:
    """Drop every task and all sink state of a unit's epoch, and begin the next epoch."""
    reset_commit(state, unit)
    unit.epoch += 1
    for task in subtree(unit):
        void_task(state, task)
    for task in unit.sinking.values():
        task.state = VOID
        task.op.live -= 1
    unit.sinking.clear()
    unit.first = unit.last = None
    unit.ordinal = 0
    if unit.eligible:
        unit.eligible = False
        if unit.sink_worker is None:
            chain(unit.entry)[-1].nready -= 1
    worker = unit.sink_worker
    if worker is not None:
        unit.sink_worker = None
        worker.units.pop(unit.name, None)
        if worker.draining:
            state.fleet.draining.append(worker)
        if worker.state == UP:
            state.out.append(Requeue(worker.id, (), unit.name, unit.epoch))
    unit.key = new_key(state, unit.key[0], unit.key[1])
    unit.listed = False


def void_task(state: State, task: TaskState) -> None:
    """Drop one task of an old epoch. If a worker still runs it, its results will be dropped."""
    where = task.state
    task.parent = task.first = task.last = task.prev = task.next = None
    if where == RUNNING:
        task.state = VOID
        task.op.live -= 1
        return
    if where == READY:
        task.op.nready -= 1
    elif where == PARKED:
        close_parked(state, task)
    elif where not in (HELD, DELAYED):
        return
    task.state = VOID
    task.op.live -= 1
    remove_void_task(state, task)


def close_parked(state: State, task: TaskState) -> None:
    """Close a parked generator."""
    worker = task.worker
    assert worker is not None, task.describe()
    del worker.parked[task.id]
    drop_op_task(worker, task.op)
    if worker.draining:
        state.fleet.draining.append(worker)
    if worker.state == UP:
        state.out.append(Requeue(worker.id, (task.id,)))


def requeue_behind_parked(state: State, worker: WorkerState, parked: TaskState) -> None:
    """Requeue the tasks that wait in the worker behind a parked generator of their op."""
    stuck = [item for item in worker.queue if isinstance(item, TaskState) and item.op is parked.op]
    if not stuck:
        return
    for task in stuck:
        detach(state, worker, task)
        if task.state == VOID:
            remove_void_task(state, task)
        else:
            task.worker = None
            enqueue(state, task)
    state.out.append(Requeue(worker.id, tuple(task.id for task in stuck)))


# -- when nothing runs -------------------------------------------------------------------------------------------------


def unblock(state: State) -> None:
    """Force the oldest task to run while nothing runs."""
    if state.spec.barrier:
        return  # without credits nothing parks, so dispatch has found every task that may run
    while not state.running and not state.commits and not state.stopping and not state.over:
        task = oldest_task(state)
        if task is None or task.state == DELAYED or not force_run(state, task):
            return


def force_run(state: State, task: TaskState) -> bool:
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


def start_oldest(state: State, task: TaskState, worker: WorkerState) -> None:
    """Start the oldest task beyond the budget, without a credit limit if it would park as a third generator."""
    op = task.op
    op.nready -= 1
    heappop(op.ready)
    if op.emits:
        reserve(state, task, op.estimate, exempt=True)
    tasks = take_call(task) if op.spec.by_unit else [task]
    start(state, worker, op, tasks, run_through=len(worker.ops) >= MAX_GENERATORS)


def evict_youngest_parked(state: State, task: TaskState, op: OpState, workers: list[WorkerState]) -> None:
    """Restart the unit of the youngest parked generator of the op, without blame."""
    parked = [p for worker in workers for p in worker.parked.values() if p.op is op]
    youngest = max(parked, key=lambda p: p.key)
    if youngest.unit is task.unit:
        task.unit.serial = True  # otherwise the same happens again in the next epoch
    restart(state, youngest.unit)
    dispatch(state)
