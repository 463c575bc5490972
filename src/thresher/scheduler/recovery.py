# SPDX-License-Identifier: Apache-2.0
"""What happens after a loss: a task that emitted nothing is tried again alone, otherwise its unit starts again."""

from __future__ import annotations

from thresher.scheduler.actions import Fail, Requeue
from thresher.scheduler.backoff import enqueue_after
from thresher.scheduler.backpressure import release, return_reserve
from thresher.scheduler.dispatch import enqueue
from thresher.scheduler.holding import leave_op, let_go
from thresher.scheduler.lineage import subtree
from thresher.scheduler.pools import remove_worker, replace_worker
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
from thresher.scheduler.units import add_root, ask_for_rerun, forget_commit, new_key, start_run

IDLE_LOSSES = 10  # workers of a pool that may be lost, besides one for each worker, before one of its tasks ends


def fail(state: State, reason: str, unit: Unit | None = None, op: Op | None = None) -> None:
    """End the run."""
    if not state.over:
        state.over = True
        state.out.append(Fail(reason, unit.name if unit else "", op.index if op else None))


def setup_failed(state: State, worker: Worker, message: str) -> None:
    """Start another worker, unless its pool has failed too often. Those that started side by side fail as one."""
    pool = worker.pool
    if worker.id >= pool.failed_before:
        pool.setup_failures += 1
        pool.failed_before = state.next_worker
    if pool.setup_failures >= state.spec.setup_attempts:
        op = None if pool.dedicated is None else state.ops[pool.dedicated]
        who = "shared workers" if op is None else f"workers of op {op.spec.name!r}"
        remove_worker(state, worker)
        fail(state, f"{who} could not be set up, {pool.setup_failures} times in a row: {message}", op=op)
    else:
        replace_worker(state, worker)


def worker_lost(state: State, worker: Worker, reason: str, *, with_node: bool = False, blamed: bool = True) -> None:
    """Deal with everything a lost worker held. Blame only what it was working on, and nothing if its node was lost or
    what killed it is known and will be isolated."""
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
    for unit, op in sorted(restarts.items(), key=lambda item: item[0].is_stream):  # one new run then serves them all
        if op is not None:
            blame_unit(state, unit, op, reason)
        restart(state, unit, blamed=op is not None)
    replace_worker(state, worker)


def items_under_way(worker: Worker) -> set[Task | Unit]:
    """What a worker is working on: the first thing in its queue, with the other tasks of the same call."""
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
    """A task went down with its worker: try it again alone, or note that its unit must start again. What was under way
    is blamed where there is a reason to."""
    worker = task.worker
    assert worker is not None, task.story()
    detach(state, worker, task)
    blamed = under_way and reason is not None
    if task.state == VOID:
        forget(state, task)
    elif task.emitted or task.op.ordered or (task.op.sink and under_way):
        forget_running(state, task)
        restarts.setdefault(task.unit, None)
        if blamed:
            restarts[task.unit] = task.op
    else:
        try_again(state, task, reason or "", blamed)


def detach(state: State, worker: Worker, task: Task) -> None:
    """Take a task from the worker that ran it."""
    let_go(state, worker, task)
    leave_op(worker, task.op)
    return_reserve(state, task)


def forget(state: State, task: Task) -> None:
    """A task of an old epoch has left its worker: free its payload."""
    release(state, task)
    task.worker = None
    del state.tasks[task.id]


def forget_running(state: State, task: Task) -> None:
    """A task whose unit is about to start again has left its worker."""
    task.unit.sinking.pop(task.id, None)
    task.state = HELD  # `restart` drops what is still in the tree; a sink's task is no longer there
    task.worker = None
    if task.op.ordered:
        task.op.live -= 1
        task.state = VOID
        forget(state, task)


def try_again(state: State, task: Task, reason: str, blamed: bool) -> None:
    """Queue a task that emitted nothing once more."""
    task.worker = None
    task.busy_s = 0.0
    if blamed:
        task.attempts += 1
        if task.attempts >= task.op.spec.max_attempts:
            blame(state, task.unit, task.op, task.attempts, reason)
    enqueue_after(state, task, task.attempts if blamed else 0)


def blame_unit(state: State, unit: Unit, op: Op, reason: str) -> None:
    """A unit must start again because of itself: that has a limit."""
    unit.attempts += 1
    if unit.attempts >= op.spec.max_attempts:
        blame(state, unit, op, unit.attempts, reason)


def blame(state: State, unit: Unit, op: Op, attempts: int, reason: str) -> None:
    """Fail the run because of one unit."""
    reason = f"unit {unit.name!r} failed {attempts} times in op {op.index} {op.spec.name!r}, the last time: {reason}"
    fail(state, reason, unit, op)


def restart(state: State, unit: Unit, *, blamed: bool = False) -> None:
    """Start a unit again under a new epoch: everything of the old one is void. One that was blamed waits a little."""
    if unit.state == ENDED:
        return
    void(state, unit)
    failures = unit.attempts if blamed else 0
    if unit.is_stream:
        restart_stream(state, unit, failures)
    elif unit.stream is not None:
        unit.closed = False
        unit.accept_run = unit.stream.run + 1
        ask_for_rerun(state, unit.stream)
    else:
        add_root(state, unit, failures)


def restart_stream(state: State, stream: Unit, failures: int) -> None:
    """The source of a stream is lost: the unit it was in starts again, those it has closed go on undisturbed."""
    for unit in stream.children.values():
        if not unit.closed:
            void(state, unit)
            unit.accept_run = stream.run + 1
    stream.epoch -= 1  # `void` and `start_run` both count it
    start_run(state, stream, failures)


def void(state: State, unit: Unit) -> None:
    """Drop every task and all sink state of a unit's epoch, and begin the next one."""
    forget_commit(state, unit)
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
        if worker.leaving:
            state.fleet.leaving.append(worker)
        if worker.state == UP:
            state.out.append(Requeue(worker.id, (), unit.name, unit.epoch))
    unit.key = new_key(state, unit.key[0], unit.key[1])
    unit.listed = False


def void_task(state: State, task: Task) -> None:
    """Drop one task of an old epoch. A worker that runs it finishes in vain."""
    where = task.state
    task.parent = task.first = task.last = task.prev = task.next = None
    if where == RUNNING:
        task.state = VOID
        task.op.live -= 1
        return
    if where == READY:
        task.op.nready -= 1
    elif where == PARKED:
        take_back(state, task)
    elif where not in (HELD, DELAYED):
        return
    task.state = VOID
    task.op.live -= 1
    forget(state, task)


def take_back(state: State, task: Task) -> None:
    """Close a parked generator."""
    worker = task.worker
    assert worker is not None, task.story()
    del worker.parked[task.id]
    leave_op(worker, task.op)
    if worker.leaving:
        state.fleet.leaving.append(worker)
    if worker.state == UP:
        state.out.append(Requeue(worker.id, (task.id,)))


def give_way(state: State, worker: Worker, parked: Task) -> None:
    """A generator parked: tasks of its op that wait behind it in the worker go back to the queue."""
    stuck = [item for item in worker.queue if isinstance(item, Task) and item.op is parked.op]
    if not stuck:
        return
    for task in stuck:
        detach(state, worker, task)
        if task.state == VOID:
            forget(state, task)
        else:
            task.worker = None
            enqueue(state, task)
    state.out.append(Requeue(worker.id, tuple(task.id for task in stuck)))
