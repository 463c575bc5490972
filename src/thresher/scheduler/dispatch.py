# SPDX-License-Identifier: Apache-2.0
"""Assign tasks to workers: most downstream op first, oldest lineage first, idle workers before prefetch.

A task prefers the node that holds its payload, if that idles no worker and starves no task.
"""

from __future__ import annotations

from heapq import heappop, heappush

from thresher.scheduler.actions import Dispatch, Resume
from thresher.scheduler.load import (
    Group,
    add_to_queue,
    credit_of,
    first_leaf,
    may_run,
    note_starved_worker,
    oldest_task,
    set_groups,
    take_on,
)
from thresher.scheduler.state import HELD, PARKED, READY, UP, OpState, State, TaskState, UnitState, WorkerState
from thresher.scheduler.units import make_ready, queue_calls, take_call, unlink
from thresher.scheduler.workers.pools import Pool, drain_worker

MAX_GENERATORS = 2  # different emitting ops a worker may hold tasks of, so that at most two can be parked
LOOK_AHEAD = 8  # entries at the top of a queue that are searched for a local task
MAX_PASSED_OVER = 4  # consecutive times that the oldest task may be passed over
MAX_TRIES = 4  # workers considered for one task; `unblock` considers all of them when nothing runs


def dispatch(state: State) -> None:
    """Assign tasks to every worker that has room."""
    if state.touched_units:
        for unit in state.touched_units:
            advance(state, unit)
        state.touched_units.clear()
    if state.stopping:
        state.touched_workers.clear()
        return
    if state.fleet.parked_draining:
        for worker in state.fleet.parked_draining.values():
            resume_draining(state, worker)
    while True:
        for worker in state.touched_workers:
            serve_worker(state, worker)
        state.touched_workers.clear()
        for pool in state.pools:
            for level, free in enumerate(pool.free):
                if free:
                    fill(state, pool, level)
        if not state.touched_workers:
            return


def advance(state: State, unit: UnitState) -> None:
    """Queue the first leaf of the unit if it was held: no earlier task can come any more."""
    if unit.entry.gathers:
        queue_calls(state, unit)
    leaf = first_leaf(unit)
    if leaf is None or leaf.state != HELD:
        return
    op = leaf.op
    if op.spec.by_unit:
        if unit.serial:
            queue_calls(state, unit, flush=True)  # no later task runs before it
    elif not op.ordered:
        make_ready(leaf)
    elif not unit.eligible:
        unit.eligible = True
        worker = unit.sink_worker
        if worker is None:
            op.nready += 1
            heappush(op.ready, (unit.key, unit))
        else:
            heappush(worker.sinks, (unit.key, unit))
            state.touched_workers.append(worker)


def serve_worker(state: State, worker: WorkerState) -> None:
    """Assign what only this worker can run: sink tasks of the units it writes, and its parked generators."""
    if worker.state != UP:
        return
    sinks = worker.sinks
    while sinks and worker.groups < state.spec.depth:
        key, unit = heappop(sinks)
        if unit.eligible and unit.key is key and unit.sink_worker is worker:
            send_to_sink(state, unit, worker)
    if worker.parked and worker.groups < state.spec.depth:
        resume_source(state, worker)
        for task in worker.parked.values():
            if not task.waiting:
                task.waiting = True
                heappush(task.op.waiting, (task.key, task))


def resume_source(state: State, worker: WorkerState) -> None:
    """Prefer a parked source to downstream tasks while fewer than one of those is ready per worker.

    Only this worker can resume it, and behind a long task here the other workers might run out of tasks.
    """
    pool = worker.pool
    if worker.groups or not pool.sources or sum(op.nready for op in pool.inner) >= pool.size:
        return
    for task in worker.parked.values():
        if task.op.source and may_run(state, task):
            resume(state, task)
            return


def resume_draining(state: State, worker: WorkerState) -> None:
    """Resume the oldest parked generator of a draining worker, which `fill` does not consider."""
    if worker.parked and worker.groups < state.spec.depth and worker.state == UP:
        task = min(worker.parked.values(), key=lambda parked: parked.key)
        if may_run(state, task):
            resume(state, task)


def fill(state: State, pool: Pool, level: int) -> None:
    """Assign tasks to the workers of a pool that hold `level` groups."""
    free = pool.free[level]
    for op in pool.inner:
        while (op.nready or op.waiting) and free and assign(state, op, level):
            pass
    sources = pool.sources
    if len(sources) > 1:
        sources = sorted(sources, key=lambda op: op.ready[0][0] if op.ready else ())
    for op in sources:
        while (op.nready or op.waiting) and free and assign(state, op, level):
            pass


def assign(state: State, op: OpState, level: int) -> bool:
    """Start or resume the oldest task of an op on a worker with `level` groups; return False if that is impossible."""
    if level and not may_prefetch(state, op):
        return False
    if level and op.group > op.spec.batch_size and op.nready < op.group // 2 and not op.waiting:
        return False  # a busy worker can wait for a larger group of tiny tasks
    if state.spec.barrier and not barrier_open(state, op):
        return False
    if op.ordered:
        return assign_sink(state, op, level)
    parked, ready = head_parked(op), head_ready(op)
    if parked is not None and (ready is None or parked.key < ready.key):
        return assign_parked(state, op, parked)
    if ready is None:
        return False
    full = op.seats >= seat_limit(state, op)
    seated = full and oldest_task(state) is not ready
    worker = find_worker(op, level, seated)
    if worker is None:
        return False
    if state.fleet.is_wide:
        worker, ready = prefer_local(state, worker, ready, seated=seated, full=full)
    if not may_run(state, ready):
        if op.source and level == 0:
            note_starved_worker(state, op)
        return False
    size = group_size(op, op.nready // len(op.pool.free[level]))
    if state.spec.worker_max_tasks:
        size = min(size, max(1, state.spec.worker_max_tasks - worker.taken))
    start(state, worker, op, take_group(state, op, ready, size))
    return True


def barrier_open(state: State, op: OpState) -> bool:
    """Return True if all input is listed and every upstream op has ended (sources need not wait)."""
    return op.source or (not state.listing_input and not any(before.live for before in op.upstream))


def may_prefetch(state: State, op: OpState) -> bool:
    """Return True if a busy worker may take a task of the op: always if dedicated, only short tasks if shared."""
    return op.pool.dedicated is not None or 0 <= op.average_s < state.spec.prefetch_s


def seat_limit(state: State, op: OpState) -> int:
    """Return how many workers may hold tasks of this op, unless the task is the oldest.

    An op that parks leaves one worker free: if a younger generator were parked in every worker, the oldest task could
    not start. Sources need not, because their units come in lineage order.
    """
    if op.parks and not op.source:
        return min(op.max_seats, op.pool.size - 1)
    return op.max_seats


def find_worker(op: OpState, level: int, seated: bool) -> WorkerState | None:
    """Return a worker with `level` groups that accepts a task of this op; `seated`: only one that already has one."""
    free = op.pool.free[level]
    if not op.tracked:
        return next(iter(free.values()), None)
    refused = []
    found = None
    for worker in free.values():
        if accepts(worker, op, seated):
            found = worker
            break
        refused.append(worker.id)
        if len(refused) == MAX_TRIES:
            break
    if found is None or len(refused) > 1:
        for worker_id in refused:
            free.move_to_end(worker_id)
    return found


def accepts(worker: WorkerState, op: OpState, seated: bool) -> bool:
    """Return True if a worker may take a task of the op: one task of an op that parks, tasks of few emitting ops."""
    if op.index in worker.ops:
        return not op.parks
    return not seated and (not op.emits or len(worker.ops) < MAX_GENERATORS)


def prefer_local(
    state: State, worker: WorkerState, oldest: TaskState, *, seated: bool, full: bool
) -> tuple[WorkerState, TaskState]:
    """Return a worker and a task on one node if possible; `worker` has room and `oldest` is its op's first task.

    Prefer a free worker on the task's node, then another task on the worker's node, then the given pair. `seated`: only
    a worker that already holds tasks of this op may take one; `full`: only the oldest task may go to another worker.
    """
    op = oldest.op
    if not oldest.home or oldest.home == worker.node:
        op.passed_over = 0
        return worker, oldest
    near = local_worker(state, worker, oldest, seated=seated)
    if near is not None:
        op.passed_over = 0
        return near, oldest
    if op.passed_over < MAX_PASSED_OVER and not full:
        task = local_task(op, worker)
        if task is not None:
            op.passed_over += 1
            return worker, task
    op.passed_over = 0
    return worker, oldest


def local_worker(state: State, worker: WorkerState, task: TaskState, *, seated: bool) -> WorkerState | None:
    """Return another worker with as much room as this one, on the node that holds the task's payload."""
    op = task.op
    free = op.pool.free[worker.groups]
    for other in state.fleet.on_node.get(task.home, {}).values():
        if other.id in free and other.pool is op.pool and (not op.tracked or accepts(other, op, seated)):
            return other
    return None


def local_task(op: OpState, worker: WorkerState) -> TaskState | None:
    """Return the oldest of the first tasks of an op whose payload is on the worker's node."""
    near = [task for _, task in op.ready[:LOOK_AHEAD] if task.state == READY and task.home == worker.node]
    return min(near, key=lambda task: task.key, default=None)


def head_ready(op: OpState) -> TaskState | None:
    """Return the oldest ready task of an op."""
    heap = op.ready
    while heap:
        task: TaskState = heap[0][1]
        if task.state == READY:
            return task
        heappop(heap)
    return None


def head_parked(op: OpState) -> TaskState | None:
    """Return the oldest parked task of an op whose worker may have room."""
    heap = op.waiting
    while heap:
        task = heap[0][1]
        if task.state == PARKED:
            return task
        heappop(heap)
        task.waiting = False
    return None


def assign_parked(state: State, op: OpState, task: TaskState) -> bool:
    """Resume a parked task if its worker has room; otherwise drop its entry until the worker has."""
    worker = task.worker
    assert worker is not None, task.describe()
    if worker.groups >= state.spec.depth or (worker.groups and not may_prefetch(state, op)):
        heappop(op.waiting)
        task.waiting = False
        return True
    if not may_run(state, task):
        return False
    heappop(op.waiting)
    task.waiting = False
    resume(state, task)
    return True


def resume(state: State, task: TaskState) -> None:
    """Resume a parked task that has its reserve."""
    worker = task.worker
    assert worker is not None, task.describe()
    del worker.parked[task.id]
    add_to_queue(state, worker, task, Group(1))
    set_groups(worker, worker.groups + 1)
    state.out.append(Resume(worker.id, task.id, credit_of(state, task)))


def take_group(state: State, op: OpState, first: TaskState, size: int) -> list[TaskState]:
    """Return the first ready task of an op, which has its reserve, and the tasks that join it in one Dispatch."""
    heap = op.ready
    if heap[0][1] is first:
        heappop(heap)
    else:
        first.state = HELD  # makes its heap entry stale
    op.nready -= 1
    if op.spec.by_unit:
        call = take_call(first)
        for other in call[1:]:
            may_run(state, other)  # a call is never split: without room, its outputs become debt
        return call
    tasks = [first]
    while len(tasks) < size and not first.exempt:
        task = head_ready(op)
        if task is None or not may_run(state, task):
            break
        heappop(heap)
        op.nready -= 1
        tasks.append(task)
        if task.exempt:
            break
    return tasks


def group_size(op: OpState, share: int) -> int:
    """Return the tasks of one Dispatch: one call, or several calls of tiny tasks up to this worker's share."""
    batch = op.spec.batch_size
    if op.group <= batch or op.parks:
        return batch
    return max(batch, min(op.group, share) // batch * batch)


def assign_sink(state: State, op: OpState, level: int) -> bool:
    """Choose the worker that writes a unit whose first batch is ready to be written."""
    heap = op.ready
    while heap:
        key, unit = heap[0]
        if unit.eligible and unit.key is key and unit.sink_worker is None:
            worker = find_worker(op, level, False)
            if worker is None:
                return False
            leaf = first_leaf(unit)
            if leaf is not None and leaf.home:
                worker = local_worker(state, worker, leaf, seated=False) or worker
            heappop(heap)
            op.nready -= 1
            unit.sink_worker = worker
            worker.units[unit.name] = unit
            send_to_sink(state, unit, worker)
            return True
        heappop(heap)
    return False


def send_to_sink(state: State, unit: UnitState, worker: WorkerState) -> None:
    """Send a worker the next tasks of a unit that it writes, as far as their order is certain."""
    leaf = first_leaf(unit)
    assert leaf is not None, f"unit {unit.name!r} is queued for its sink and has no task"
    op = leaf.op
    size = max(op.group, op.spec.batch_size)
    tasks: list[TaskState] = []
    while leaf is not None and leaf.op is op and leaf.state == HELD and len(tasks) < size:
        unlink(leaf)
        unit.sinking[leaf.id] = leaf
        tasks.append(leaf)
        leaf = first_leaf(unit)
    unit.eligible = False
    start(state, worker, op, tasks)
    advance(state, unit)


def start(state: State, worker: WorkerState, op: OpState, tasks: list[TaskState], *, run_through: bool = False) -> None:
    """Dispatch tasks that have their reserves; `run_through`: without a credit limit, so that they never park."""
    refs = take_on(state, worker, op, tasks, run_through=run_through)
    if state.spec.worker_max_tasks:
        worker.taken += len(tasks)
        if worker.taken >= state.spec.worker_max_tasks:
            drain_worker(state, worker, "tasks")
    state.out.append(Dispatch(worker.id, op.index, refs))
