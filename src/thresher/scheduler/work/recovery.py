# SPDX-License-Identifier: Apache-2.0
"""Recovery from failures and losses: retry a task that emitted nothing, otherwise restart its unit."""

from __future__ import annotations

from thresher.scheduler.actions import Fail, Requeue
from thresher.scheduler.state import (
    DELAYED,
    ENDED,
    HELD,
    LOST,
    PARKED,
    READY,
    RUNNING,
    STARTING,
    UP,
    VOID,
    Op,
    State,
    Task,
    Unit,
    Worker,
    chain,
)
from thresher.scheduler.work.backoff import enqueue_after
from thresher.scheduler.work.backpressure import release, return_reserve
from thresher.scheduler.work.dispatch import enqueue
from thresher.scheduler.work.lineage import subtree
from thresher.scheduler.work.units import add_root, new_key, request_rerun, reset_commit, start_run
from thresher.scheduler.work.worker_queue import drop_op_task, remove_from_queue
from thresher.scheduler.workers.pools import remove_worker, replace_worker

IDLE_LOSSES = 10  # lost workers of a pool, beyond its size, without a finished task before the run fails


def fail(state: State, reason: str, unit: Unit | None = None, op: Op | None = None) -> None:
    """Fail the run."""
    if not state.over:
        state.over = True
        state.out.append(Fail(reason, unit.name if unit else "", op.index if op else None))


def setup_failed(state: State, worker: Worker, message: str) -> None:
    """Start another worker, or fail the run after too many attempts. Workers that started together count as one."""
    pool = worker.pool
    if worker.id >= pool.failed_before:
        pool.setup_failures += 1
        pool.failed_before = state.next_worker
    if pool.setup_failures >= state.spec.setup_attempts:
        op = None if pool.dedicated is None else state.ops[pool.dedicated]
        workers = "shared workers" if op is None else f"workers of op {op.spec.name!r}"
        remove_worker(state, worker)
        fail(state, f"{workers} could not be set up, {pool.setup_failures} times in a row: {message}", op=op)
    else:
        replace_worker(state, worker)


def worker_lost(state: State, worker: Worker, reason: str, *, with_node: bool = False, blamed: bool = True) -> None:
    """Recover everything a lost worker held. Blame only what it was working on, and nothing if its node was lost or
    the cause is known and will be isolated."""
    if worker.state == STARTING:
        if with_node:
            replace_worker(state, worker)
        else:
            setup_failed(state, worker, reason)
        return
    worker.state = LOST
    pool = worker.pool
    pool.losses += blamed and not with_node
    if pool.losses > IDLE_LOSSES + pool.size:
        fail(state, f"{pool.losses} workers were lost and none of them finished a task; the last one: {reason}")
    under_way = set() if with_node else items_under_way(worker)
    restarts: dict[Unit, Op | None] = {}
    for item in list(worker.queue):
        if isinstance(item, Unit):
            restarts.setdefault(item, None)
            if item in under_way and blamed:
                restarts[item] = chain(item.entry)[-1]
        else:
            task_lost(state, item, restarts, under_way=item in under_way, reason=reason if blamed else None)
    for task in worker.parked.values():
        restarts.setdefault(task.unit, None)
    for unit in worker.units.values():
        restarts.setdefault(unit, None)
    for unit, op in sorted(restarts.items(), key=lambda item: item[0].is_stream):  # streams last: one rerun serves all
        if op is not None:
            blame_unit(state, unit, op, reason)
        restart(state, unit, blamed=op is not None)
    replace_worker(state, worker)


def items_under_way(worker: Worker) -> set[Task | Unit]:
    """Return what a worker is working on: the first item of its queue and the other tasks of the same call."""
    items = list(worker.queue)
    if not items:
        return set()
    first = items[0]
    if isinstance(first, Unit):
        return {first}
    call = items[: first.op.spec.batch_size]
    return {item for item in call if isinstance(item, Task) and item.group is first.group}


def task_lost(
    state: State, task: Task, restarts: dict[Unit, Op | None], *, under_way: bool, reason: str | None
) -> None:
    """Retry a task whose worker was lost, or add its unit to `restarts`. Blame the task if it was under way and there
    is a reason."""
    worker = task.worker
    assert worker is not None, task.describe()
    detach(state, worker, task)
    blamed = under_way and reason is not None
    if task.state == VOID:
        remove_void_task(state, task)
    elif task.emitted or task.op.ordered or (task.op.sink and under_way):
        remove_running(state, task)
        restarts.setdefault(task.unit, None)
        if blamed:
            restarts[task.unit] = task.op
    else:
        retry_task(state, task, reason or "", blamed)


def detach(state: State, worker: Worker, task: Task) -> None:
    """Remove a task from its worker and return its reserve."""
    remove_from_queue(state, worker, task)
    drop_op_task(worker, task.op)
    return_reserve(state, task)


def remove_void_task(state: State, task: Task) -> None:
    """Remove a void task that no worker holds any more, and free its payload."""
    release(state, task)
    task.worker = None
    del state.tasks[task.id]


def remove_running(state: State, task: Task) -> None:
    """Remove a running task whose unit is about to restart."""
    task.unit.sinking.pop(task.id, None)
    task.state = HELD  # `restart` drops what is still in the tree; a sink's task is no longer there
    task.worker = None
    if task.op.ordered:
        task.op.live -= 1
        task.state = VOID
        remove_void_task(state, task)


def retry_task(state: State, task: Task, reason: str, blamed: bool) -> None:
    """Queue a task that emitted nothing again; fail the run if it was blamed too often."""
    task.worker = None
    task.busy_s = 0.0
    if blamed:
        task.attempts += 1
        if task.attempts >= task.op.spec.max_attempts:
            fail_unit(state, task.unit, task.op, task.attempts, reason)
    enqueue_after(state, task, task.attempts if blamed else 0)


def blame_unit(state: State, unit: Unit, op: Op, reason: str) -> None:
    """Count a failure of a unit; fail the run if it was blamed too often."""
    unit.attempts += 1
    if unit.attempts >= op.spec.max_attempts:
        fail_unit(state, unit, op, unit.attempts, reason)


def fail_unit(state: State, unit: Unit, op: Op, attempts: int, reason: str) -> None:
    """Fail the run because of a unit."""
    reason = f"unit {unit.name!r} failed {attempts} times in {op.spec.name}, the last time: {reason}"
    fail(state, reason, unit, op)


def restart(state: State, unit: Unit, *, blamed: bool = False) -> None:
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


def restart_stream(state: State, stream: Unit, failures: int) -> None:
    """Restart the source task of a stream and the units it has not closed; closed units are not affected."""
    for unit in stream.children.values():
        if not unit.closed:
            void(state, unit)
            unit.accept_run = stream.run + 1
    stream.epoch -= 1  # `void` and `start_run` both increment it
    start_run(state, stream, failures)


def void(state: State, unit: Unit) -> None:
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


def void_task(state: State, task: Task) -> None:
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


def close_parked(state: State, task: Task) -> None:
    """Close a parked generator."""
    worker = task.worker
    assert worker is not None, task.describe()
    del worker.parked[task.id]
    drop_op_task(worker, task.op)
    if worker.draining:
        state.fleet.draining.append(worker)
    if worker.state == UP:
        state.out.append(Requeue(worker.id, (task.id,)))


def requeue_behind_parked(state: State, worker: Worker, parked: Task) -> None:
    """Requeue the tasks that wait in the worker behind a parked generator of their op."""
    stuck = [item for item in worker.queue if isinstance(item, Task) and item.op is parked.op]
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
