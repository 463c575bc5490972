# SPDX-License-Identifier: Apache-2.0
"""The load of workers and of the memory budget: what running tasks take and return.

A running task has a place in the queue of its worker and a *reserve* of bytes for its outputs, under a budget that
cannot deadlock. Every payload counts as `used` from its emission until its Release. A task that emits runs on a
reserve, taken from the rest of the budget. When the budget is used up, only the oldest task in lineage order runs, on a
reserve of one batch beyond the budget. Its children are then the oldest and sinks need no reserve, so the oldest unit
always makes progress. Bytes emitted beyond the reserve are debt: they count as used, so nothing else starts until they
are released.

How much a task may take follows from measured rates: the time of a task, its fan-out and the size of an emitted batch.
"""

from __future__ import annotations

from heapq import heappop

from thresher.scheduler.actions import TaskRef
from thresher.scheduler.model import NO_LIMIT, RunSpec
from thresher.scheduler.state import RUNNING, UP, OpState, State, TaskState, UnitState, WorkerState, chain

LARGEST_WINDOW = 8  # factor by which the window may grow to bridge gaps in the input
STARVING_SIGHTINGS = 16  # observations of an idle worker with a full window before the window grows by one batch
TIME_WEIGHT = 0.2  # weight of the newest time in the average
FLOW_TASKS = 20  # number of tasks that the decayed sums cover, plus two for each worker
SHIFT = 2  # a task is an outlier if it takes this many times longer or shorter than recent ones
SHIFT_TASKS = 8  # consecutive outliers on one side after which their time becomes the recent time
SIZE_DECAY = 8  # a size above the estimate counts at once; below, 1/8 of the difference


# -- queues of workers -------------------------------------------------------------------------------------------------


class Group:
    """Number of tasks of one Dispatch that the worker has not finished."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left


def take_on(
    state: State, worker: WorkerState, op: OpState, tasks: list[TaskState], *, run_through: bool = False
) -> tuple[TaskRef, ...]:
    """Add tasks that have their reserves to a worker's queue as one group, and return them with their credits;
    `run_through`: without a credit limit."""
    group = Group(len(tasks))
    refs = []
    for task in tasks:
        add_to_queue(state, worker, task, group)
        refs.append(TaskRef(task.id, task.unit.name, task.epoch, NO_LIMIT if run_through else credit_of(state, task)))
    if op.tracked:
        held = worker.ops.get(op.index, 0)
        worker.ops[op.index] = held + len(tasks)
        if not held:
            op.seats += 1
    set_groups(worker, worker.groups + 1)
    return tuple(refs)


def add_to_queue(state: State, worker: WorkerState, task: TaskState, group: Group) -> None:
    """Add a task to a worker's queue."""
    task.state = RUNNING
    task.worker = worker
    task.group = group
    worker.queue[task] = None
    state.running += 1
    if task.op.source and task.op.emits:
        state.running_sources += 1


def remove_from_queue(state: State, worker: WorkerState, task: TaskState) -> None:
    """Remove a task from its worker's queue."""
    del worker.queue[task]
    state.running -= 1
    if worker.draining:
        state.fleet.draining.append(worker)
    if task.op.source and task.op.emits:
        state.running_sources -= 1
    group = task.group
    assert group is not None, task.describe()
    task.group = None
    group.left -= 1
    if not group.left:
        set_groups(worker, worker.groups - 1)
        if worker.sinks or worker.parked:
            state.touched_workers.append(worker)


def drop_op_task(worker: WorkerState, op: OpState) -> None:
    """Decrement the number of tasks of an op that a worker holds, parked ones included."""
    if not op.tracked:
        return
    held = worker.ops[op.index] - 1
    if held:
        worker.ops[op.index] = held
    else:
        del worker.ops[op.index]
        op.seats -= 1


def set_groups(worker: WorkerState, groups: int) -> None:
    """Set the number of groups a worker holds and list it among the workers with that much room."""
    free = worker.pool.free
    if worker.groups < len(free):
        free[worker.groups].pop(worker.id, None)
    worker.groups = groups
    if groups < len(free) and worker.state == UP and not worker.draining:
        free[groups][worker.id] = worker


def detach(state: State, worker: WorkerState, task: TaskState) -> None:
    """Remove a task from its worker and return its reserve."""
    remove_from_queue(state, worker, task)
    drop_op_task(worker, task.op)
    return_reserve(state, task)


def finish_task(state: State, worker: WorkerState, task: TaskState) -> None:
    """Remove a finished task from its worker, return its reserve and free its payload."""
    detach(state, worker, task)
    release(state, task)
    if not worker.groups and worker.pool.dedicated is not None:
        note_drained_worker(state, task.op)


# -- budget and window -------------------------------------------------------------------------------------------------


def may_run(state: State, task: TaskState) -> bool:
    """Return True if there is room for the outputs of the task, and set its reserve aside."""
    op = task.op
    if state.spec.barrier:
        return not (op.source and state.pressure and state.running)  # the oldest task may be behind the barrier
    if not op.emits:
        return not (op.source and state.pressure) or oldest_task(state) is task
    if state.used + state.reserved + op.credit <= op.limit and (not op.source or source_may_run(state, op)):
        reserve(state, task, op.credit, exempt=False)
        return True
    if oldest_task(state) is task:
        reserve(state, task, op.estimate, exempt=True)
        return True
    return False


def source_may_run(state: State, op: OpState) -> bool:
    """Return True if one more batch may enter: memory is not under pressure and the window is not full."""
    if state.pressure:
        return False
    if state.payloads + state.running_sources < op.window:
        return True
    state.held_back = op
    return False


def reserve(state: State, task: TaskState, nbytes: int, *, exempt: bool) -> None:
    """Reserve bytes for the outputs of the task."""
    task.reserve = nbytes
    task.exempt = exempt
    state.reserved += nbytes
    if exempt:
        state.excess += nbytes


def credit_of(state: State, task: TaskState) -> int:
    """Return the credit to send with a task that has its reserve."""
    return task.reserve if task.op.emits and not state.spec.barrier else NO_LIMIT


def return_reserve(state: State, task: TaskState) -> None:
    """Return the unused part of a task's reserve to the budget."""
    left = task.reserve
    if left:
        task.reserve = 0
        state.reserved -= left
        if task.exempt:
            state.excess -= left


def account(state: State, emitter: TaskState, child: TaskState) -> None:
    """Account a new payload against its emitter's reserve; the rest is debt."""
    nbytes = child.nbytes
    covered = emitter.reserve
    if covered > nbytes:
        covered = nbytes
    emitter.reserve -= covered
    state.reserved -= covered
    state.used += nbytes
    state.payloads += 1
    state.excess += nbytes - covered
    child.excess = nbytes if emitter.exempt else nbytes - covered
    record_batch_size(emitter.op, nbytes)


def discard(state: State, emitter: TaskState, nbytes: int) -> None:
    """Account a payload that is released on arrival: it only uses up reserve."""
    covered = min(emitter.reserve, nbytes)
    emitter.reserve -= covered
    state.reserved -= covered
    if emitter.exempt:
        state.excess -= covered


def release(state: State, task: TaskState) -> None:
    """Free the payload of a task, once."""
    if task.id > 0 and task.nbytes >= 0:
        state.used -= task.nbytes
        state.excess -= task.excess
        state.payloads -= 1
        state.released.append(task.id)
        task.nbytes = -1
        task.excess = 0


def note_drained_worker(state: State, op: OpState) -> None:
    """Widen the window when a dedicated worker ran out of tasks although a source was held back before.

    A larger window bridges input that comes in bursts; a source that was never held back has nothing more to emit. If
    many batches are still in flight, they wait for other ops, and more of them would only wait there.
    """
    source = state.held_back
    if source is None or op.nready or state.pressure or 2 * state.payloads >= source.window:
        return
    state.held_back = None
    if state.window_growth < (LARGEST_WINDOW - 1) * (source.window - state.window_growth):
        state.window_growth += max(1, source.window // 4)
        set_window(state)


def note_starved_worker(state: State, op: OpState) -> None:
    """Widen the window, slowly and not far, when a shared worker is idle because the window holds this source back.

    If tasks wait for dedicated workers, those are the bottleneck, and more batches would only wait there.
    """
    if state.pressure or state.used + state.reserved + op.credit > op.limit:
        return
    if any(pool.dedicated is not None and pool.inner and pool.inner[0].nready for pool in state.pools):
        return
    state.starving += 1
    if state.starving >= STARVING_SIGHTINGS and state.window_growth < op.window:
        state.starving = 0
        state.window_growth += 1
        set_window(state)


# -- measured rates ----------------------------------------------------------------------------------------------------


def record_task_time(state: State, task: TaskState, busy_s: float) -> None:
    """Update the average with the time of a finished task, and derive how many such tasks form a group.

    Ignore a task that reported outputs before its end, but no time: its last part alone may be tiny.
    """
    if task.emitted and not task.busy_s:
        return
    busy_s += task.busy_s
    op = task.op
    before = op.average_s
    average = busy_s if before < 0 else before + TIME_WEIGHT * (busy_s - before)
    op.average_s = average
    if state.measuring:
        follow_time_shift(op, busy_s)
    spec = state.spec
    group = spec.group_tasks if average * spec.group_tasks <= spec.group_s else max(1, int(spec.group_s / average))
    if group != op.group:
        op.group = group
        set_window(state)


def follow_time_shift(op: OpState, busy_s: float) -> None:
    """Follow a lasting change of the task time quickly: the decayed sums would take many tasks."""
    count, total_s, usual_s = op.odd
    if not count:
        if not op.seen_tasks:
            return
        total_s, usual_s = 0.0, op.seen_busy_s / op.seen_tasks
    side = (busy_s > SHIFT * usual_s) - (SHIFT * busy_s < usual_s)
    if not side or side * count < 0:
        op.odd = (0, 0.0, 0.0)
        return
    count, total_s = count + side, total_s + busy_s
    op.odd = (count, total_s, usual_s)
    if abs(count) >= SHIFT_TASKS:
        op.odd = (0, 0.0, 0.0)
        op.seen_busy_s = op.seen_tasks * total_s / abs(count)


def record_batch_size(op: OpState, nbytes: int) -> None:
    """Update the estimate with the size of an emitted batch: up at once, so that credits fit, slowly down."""
    estimate = op.estimate
    if nbytes > estimate:
        op.estimate = nbytes
    elif nbytes < estimate:
        op.estimate = estimate - (estimate - nbytes + SIZE_DECAY - 1) // SIZE_DECAY or 1
    else:
        return
    set_credit(op)


def set_credit(op: OpState) -> None:
    """Set the credit: two batches if the limit has room for several such tasks, so that most generators never park."""
    op.credit = 2 * op.estimate if 8 * op.estimate <= op.limit else op.estimate


def set_window(state: State) -> None:
    """Set the number of batches in flight at which each source waits: some per worker, whole groups of tiny tasks."""
    spec = state.spec
    batches = spec.window_batches * spec.shared_workers
    for pool in state.pools:
        if pool.dedicated is not None:
            batches += spec.depth * pool.target * spec.ops[pool.dedicated].batch_size
    for source in state.ops:
        if source.source:
            group = min(tiny_group(spec, op) for op in chain(source))
            source.window = batches * max(group, max(op.spec.batch_size for op in chain(source))) + state.window_growth


def tiny_group(spec: RunSpec, op: OpState) -> int:
    """Return how many tasks of this op form a group that is small in time and output bytes."""
    return min(op.group, max(1, spec.group_bytes // op.estimate)) if op.emits else op.group


def record_flow(op: OpState, busy_s: float, outputs: int, ended: int) -> None:
    """Add a report to the decayed sums, from which task times and fan-outs are derived."""
    loss = 1 / (FLOW_TASKS + 2 * op.pool.target)
    op.seen_busy_s += busy_s - loss * op.seen_busy_s
    op.seen_outputs += outputs - loss * op.seen_outputs
    op.seen_tasks += ended - loss * op.seen_tasks


def limit_bytes(spec: RunSpec, op: OpState) -> int:
    """Return the bytes in flight up to which an op may start: half the budget for sources, all of it for the last
    op that emits.

    If a source could fill the budget alone, downstream ops would have no room to emit and run one task at a time.
    """
    before = max((len(chain(o)) - len(chain(op)) for o in op.upstream), default=0)
    behind = sum(1 for o in chain(op)[1:] if o.emits)
    if behind == 0:
        return spec.budget_bytes
    return spec.budget_bytes // 2 + spec.budget_bytes // 2 * before // (before + behind)


# -- the task that may always run --------------------------------------------------------------------------------------


def first_leaf(node: TaskState | UnitState) -> TaskState | None:
    """Return the first task below a unit in lineage order, or None if the unit has none now."""
    leaf = node.first
    if leaf is None:
        return None
    while leaf.first is not None:
        leaf = leaf.first
    return leaf


def oldest_task(state: State) -> TaskState | None:
    """Return the first task of all units in lineage order: it may always run, so that nothing deadlocks.

    Tasks in the sink are older than the rest of their unit.
    """
    heap = state.oldest_units
    while heap:
        key, unit = heap[0]
        if unit.key is key:
            if unit.sinking:
                return next(iter(unit.sinking.values()))
            if unit.first is not None:
                return first_leaf(unit)
            unit.listed = False
        heappop(heap)
    return None
