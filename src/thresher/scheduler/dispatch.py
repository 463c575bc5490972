# SPDX-License-Identifier: Apache-2.0
"""Which worker gets which task: most downstream op first, oldest lineage first, idle workers before prefetch."""

from __future__ import annotations

from heapq import heappop, heappush

from thresher.scheduler.actions import Dispatch, Resume, TaskRef
from thresher.scheduler.backpressure import credit_of, may_run, saw_starving
from thresher.scheduler.holding import hold, set_groups
from thresher.scheduler.lineage import first_leaf, oldest_task, unlink
from thresher.scheduler.locality import accepts, bring_together, worker_near
from thresher.scheduler.model import NO_LIMIT
from thresher.scheduler.pool import Pool
from thresher.scheduler.pools import send_off
from thresher.scheduler.state import HELD, PARKED, READY, UP, Group, Op, State, Task, Unit, Worker

TRIES = 4  # workers looked at for one task; `unblock` looks at all of them when nothing runs


def dispatch(state: State) -> None:
    """Give work to every worker that has room for it."""
    if state.touched_units:
        for unit in state.touched_units:
            advance(state, unit)
        state.touched_units.clear()
    if state.stopping:
        state.touched_workers.clear()
        return
    if state.fleet.parked_leaving:
        for worker in state.fleet.parked_leaving.values():
            resume_leaving(state, worker)
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


def advance(state: State, unit: Unit) -> None:
    """If the first leaf of the unit was held back, nothing earlier can come any more: queue it."""
    leaf = first_leaf(unit)
    if leaf is None or leaf.state != HELD:
        return
    op = leaf.op
    if not op.ordered:
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


def make_ready(task: Task) -> None:
    """Put a task into its op's queue."""
    op = task.op
    task.state = READY
    op.nready += 1
    heappush(op.ready, (task.key, task))


def enqueue(state: State, task: Task) -> None:
    """Queue a new task, or hold it back until it is the first of its unit where order matters."""
    if task.op.ordered or (task.unit.serial and task.op.emits):
        task.state = HELD
        state.touched_units.append(task.unit)
    else:
        make_ready(task)


def serve_worker(state: State, worker: Worker) -> None:
    """What only this worker can do: sink tasks of the units it writes, and its parked generators."""
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


def resume_source(state: State, worker: Worker) -> None:
    """Prefer a parked source to tasks further down while less than one of those waits for each worker.

    Only this worker can go on with it, and if a long task came first here, the other workers might run dry.
    """
    pool = worker.pool
    if worker.groups or not pool.sources or sum(op.nready for op in pool.inner) >= pool.size:
        return
    for task in worker.parked.values():
        if task.op.source and may_run(state, task):
            resume(state, task)
            return


def resume_leaving(state: State, worker: Worker) -> None:
    """Let a worker that leaves go on with its oldest parked generator; it is not among those that `fill` looks at."""
    if worker.parked and worker.groups < state.spec.depth and worker.state == UP:
        task = min(worker.parked.values(), key=lambda parked: parked.key)
        if may_run(state, task):
            resume(state, task)


def fill(state: State, pool: Pool, level: int) -> None:
    """Give work to workers of a pool that hold `level` groups."""
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


def assign(state: State, op: Op, level: int) -> bool:
    """Start or resume the oldest task of an op on a worker that holds `level` groups; False if that is impossible."""
    if level and not may_prefetch(state, op):
        return False
    if level and op.group > op.spec.batch_size and op.nready < op.group // 2 and not op.waiting:
        return False  # a busy worker can wait until tiny tasks make a group
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
        worker, ready = bring_together(state, worker, ready, seated=seated, full=full)
    if not may_run(state, ready):
        if op.source and level == 0:
            saw_starving(state, op)
        return False
    size = group_size(op, op.nready // len(op.pool.free[level]))
    if state.spec.worker_max_tasks:
        size = min(size, max(1, state.spec.worker_max_tasks - worker.taken))
    start(state, worker, op, take_group(state, op, ready, size))
    return True


def barrier_open(state: State, op: Op) -> bool:
    """With a barrier an op starts when all input is listed and everything upstream of it has ended."""
    return op.source or (not state.listing_input and not any(before.live for before in op.upstream))


def may_prefetch(state: State, op: Op) -> bool:
    """Dedicated workers always hold their next task; shared ones only a short one, that no idle worker has to miss."""
    return op.pool.dedicated is not None or 0 <= op.average_s < state.spec.prefetch_s


def seat_limit(state: State, op: Op) -> int:
    """Workers that may hold tasks of this op unless one of them is the oldest.

    An op that parks keeps one worker clear: if a younger generator were parked everywhere, the oldest task could not
    enter. Sources need not, because their units come in lineage order.
    """
    if op.parks and not op.source:
        return min(op.max_seats, op.pool.size - 1)
    return op.max_seats


def find_worker(op: Op, level: int, seated: bool) -> Worker | None:
    """A worker with `level` groups that may take a task of this op; `seated`: only one that has such a task already."""
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
        if len(refused) == TRIES:
            break
    if found is None or len(refused) > 1:
        for worker_id in refused:
            free.move_to_end(worker_id)
    return found


def head_ready(op: Op) -> Task | None:
    """The oldest ready task of an op."""
    heap = op.ready
    while heap:
        task: Task = heap[0][1]
        if task.state == READY:
            return task
        heappop(heap)
    return None


def head_parked(op: Op) -> Task | None:
    """The oldest parked task of an op whose worker may have room."""
    heap = op.waiting
    while heap:
        task = heap[0][1]
        if task.state == PARKED:
            return task
        heappop(heap)
        task.waiting = False
    return None


def assign_parked(state: State, op: Op, task: Task) -> bool:
    """Resume a parked task if its worker has room; if not, it is queued again as soon as the worker has."""
    worker = task.worker
    assert worker is not None, task.story()
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


def resume(state: State, task: Task) -> None:
    """Let a parked task go on with its reserve."""
    worker = task.worker
    assert worker is not None, task.story()
    del worker.parked[task.id]
    hold(state, worker, task, Group(1))
    set_groups(worker, worker.groups + 1)
    state.out.append(Resume(worker.id, task.id, credit_of(state, task)))


def take_group(state: State, op: Op, first: Task, size: int) -> list[Task]:
    """The first ready task of an op, which has its reserve, and those behind it that go along in one Dispatch."""
    heap = op.ready
    if heap[0][1] is first:
        heappop(heap)
    else:
        first.state = HELD  # its entry is stale from now on
    op.nready -= 1
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


def group_size(op: Op, share: int) -> int:
    """Tasks in one Dispatch: one call, or several calls of tiny tasks, but not more than this worker's share."""
    batch = op.spec.batch_size
    if op.group <= batch or op.parks:
        return batch
    return max(batch, min(op.group, share) // batch * batch)


def assign_sink(state: State, op: Op, level: int) -> bool:
    """Choose the worker that writes a unit, when its first batch may be written."""
    heap = op.ready
    while heap:
        key, unit = heap[0]
        if unit.eligible and unit.key is key and unit.sink_worker is None:
            worker = find_worker(op, level, False)
            if worker is None:
                return False
            leaf = first_leaf(unit)
            if leaf is not None and leaf.home:
                worker = worker_near(state, worker, leaf, seated=False) or worker
            heappop(heap)
            op.nready -= 1
            unit.sink_worker = worker
            worker.units[unit.name] = unit
            send_to_sink(state, unit, worker)
            return True
        heappop(heap)
    return False


def send_to_sink(state: State, unit: Unit, worker: Worker) -> None:
    """Give a worker the next tasks of a unit that it writes, as many as are certain to be next."""
    leaf = first_leaf(unit)
    assert leaf is not None, f"unit {unit.name!r} is queued for its sink and has nothing to write"
    op = leaf.op
    size = max(op.group, op.spec.batch_size)
    tasks: list[Task] = []
    while leaf is not None and leaf.op is op and leaf.state == HELD and len(tasks) < size:
        unlink(leaf)
        unit.sinking[leaf.id] = leaf
        tasks.append(leaf)
        leaf = first_leaf(unit)
    unit.eligible = False
    start(state, worker, op, tasks)
    advance(state, unit)


def start(state: State, worker: Worker, op: Op, tasks: list[Task], *, run_through: bool = False) -> None:
    """Dispatch tasks that have what they need; `run_through`: they must not park, whatever they emit."""
    group = Group(len(tasks))
    refs = []
    for task in tasks:
        hold(state, worker, task, group)
        refs.append(TaskRef(task.id, task.unit.name, task.epoch, NO_LIMIT if run_through else credit_of(state, task)))
    if op.tracked:
        held = worker.ops.get(op.index, 0)
        worker.ops[op.index] = held + len(tasks)
        if not held:
            op.seats += 1
    set_groups(worker, worker.groups + 1)
    if state.spec.worker_max_tasks:
        worker.taken += len(tasks)
        if worker.taken >= state.spec.worker_max_tasks:
            send_off(state, worker)
    state.out.append(Dispatch(worker.id, op.index, tuple(refs)))
