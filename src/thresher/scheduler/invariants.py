# SPDX-License-Identifier: Apache-2.0
"""Invariants of the state after every step, for tests and debugging. `check` takes time proportional to the state."""

from __future__ import annotations

from thresher.scheduler.dispatch import MAX_GENERATORS
from thresher.scheduler.load import first_leaf
from thresher.scheduler.state import (
    COMMITTING,
    DONE,
    HELD,
    OPEN,
    PARKED,
    READY,
    RUNNING,
    UP,
    VOID,
    State,
    TaskState,
    UnitState,
    WorkerState,
)
from thresher.scheduler.step import Scheduler
from thresher.scheduler.units import subtree


class BrokenInvariant(AssertionError):
    """Two parts of the scheduler's state disagree. The message describes the task, worker or unit concerned."""


def check(scheduler: Scheduler) -> None:
    """Raise BrokenInvariant if parts of the state disagree."""
    state = scheduler.state
    if state.over:
        return
    check_places(state)
    check_bytes(state)
    for worker in state.workers.values():
        check_worker(state, worker)
    check_units(state)
    check_nodes(state)


def require(holds: bool, message: str, about: TaskState | WorkerState | None = None) -> None:
    """Raise BrokenInvariant unless `holds`, with a description of `about` (built only then, because it is slow)."""
    if not holds:
        description = "" if about is None else f": {about.describe()}"
        raise BrokenInvariant(message + description)


def check_places(state: State) -> None:
    """Check that every task is in exactly one place, and in the tree of its unit unless a sink has it or it is void."""
    in_trees = {task.id: task for unit in state.units.values() for task in subtree(unit) if task.state != DONE}
    ready = {id(task) for op in state.ops if not op.ordered for _, task in op.ready if task.state == READY}
    for task in state.tasks.values():
        on_worker = task.worker is not None and task in task.worker.queue
        parked = task.worker is not None and task.id in task.worker.parked
        require(on_worker == (task.state in (RUNNING, VOID)), "queue and state disagree", task)
        require(parked == (task.state == PARKED), "parked and state disagree", task)
        require((id(task) in ready) == (task.state == READY), "ready and state disagree", task)
        if task.op.spec.by_unit and task.state == READY:
            calls = [other.call is task.call and other.unit is task.unit for other in task.call or []]
            require(bool(calls) and all(calls), "an incomplete call is queued", task)
        if task.state == VOID:
            require(task.id not in in_trees, "a void task is still in the tree", task)
            continue
        require(task.epoch == task.unit.epoch, "a task of an old epoch is not void", task)
        sinking = task.id in task.unit.sinking
        require(sinking != (task.id in in_trees), "a task must be in the tree or in the sink", task)
        require(not sinking or (task.op.ordered and task.state == RUNNING), "not a sink's task", task)
    for task in in_trees.values():
        require(state.tasks.get(task.id) is task, "in the tree, but not in state.tasks", task)
    for op in state.ops:
        live = sum(1 for task in state.tasks.values() if task.op is op and task.state != VOID)
        require(op.live == live, f"op {op.spec.name!r} counts {op.live} tasks, there are {live}")
        if op.ordered:
            queued = len({id(u) for key, u in op.ready if u.eligible and u.key is key and u.sink_worker is None})
        else:
            queued = len({id(task) for _, task in op.ready if task.state == READY})
        require(op.nready == queued, f"op {op.spec.name!r} counts {op.nready} ready, there are {queued}")
        seats = sum(1 for worker in state.workers.values() if op.index in worker.ops)
        require(op.seats == seats, f"op {op.spec.name!r} counts {op.seats} seats, there are {seats}")


def check_bytes(state: State) -> None:
    """Check that the sums of bytes agree and that only excess goes beyond the budget."""
    payloads = [task for task in state.tasks.values() if task.id > 0]
    used = sum(task.nbytes for task in payloads)
    reserved = sum(task.reserve for task in state.tasks.values())
    excess = sum(task.excess for task in payloads)
    excess += sum(task.reserve for task in state.tasks.values() if task.exempt)
    require(state.used == used, f"used is {state.used}, live payloads have {used}")
    require(state.payloads == len(payloads), f"{state.payloads} payloads are counted, {len(payloads)} live")
    require(state.reserved == reserved, f"reserved is {state.reserved}, tasks hold {reserved}")
    require(state.excess == excess, f"excess is {state.excess}, tasks hold {excess}")
    for task in state.tasks.values():
        require(task.reserve == 0 or task.state in (RUNNING, VOID), "a task that does not run has a reserve", task)
    if not state.spec.barrier:
        total, budget = state.used + state.reserved - state.excess, state.spec.budget_bytes
        require(total <= budget, f"{total} bytes of ordinary credit were granted, the budget is {budget}")


def check_worker(state: State, worker: WorkerState) -> None:
    """Check that a worker holds no more than it may."""
    tasks = [item for item in worker.queue if isinstance(item, TaskState)]
    groups = len({id(task.group) for task in tasks})
    require(worker.groups == groups <= state.spec.depth, "the number of groups is wrong or too large", worker)
    require(len(worker.parked) <= MAX_GENERATORS, "more parked tasks than a worker may have", worker)
    parked = [task.op.index for task in worker.parked.values()]
    require(len(set(parked)) == len(parked), "two parked tasks of one op", worker)
    for task in tasks:
        require(task.op.index not in parked, "a task is queued behind a parked task of its op", task)
        require(task.op.pool is worker.pool, "a task is on a worker of another pool", task)
    held: dict[int, int] = {}
    for task in tasks + list(worker.parked.values()):
        if task.op.tracked:
            held[task.op.index] = held.get(task.op.index, 0) + 1
    require(held == worker.ops, "the number of tasks by op is wrong", worker)
    for level, free in enumerate(worker.pool.free):
        listed = worker.id in free
        require(
            listed == (worker.state == UP and not worker.draining and worker.groups == level),
            "wrongly listed among the workers with room",
            worker,
        )


def check_nodes(state: State) -> None:
    """Check that the free resources of each node are its total minus its workers' needs, and never negative."""
    fleet = state.fleet
    left = fleet.empty.copy()
    for worker in state.workers.values():
        if worker.place.node in left.room:
            left.allocate(worker.pool.need, worker.place)
    for node, room in fleet.nodes.room.items():
        same = room.free_parts == left.room[node].free_parts and room.memory_bytes == left.room[node].memory_bytes
        require(same, f"node {node!r} has {room} free, its workers leave {left.room[node]}")
        held = all(parts >= 0 for parts in room.free_parts) and all(amount > -1e-6 for _, amount in room.custom)
        require(held and room.memory_bytes >= -1, f"node {node!r} is over-committed: {room}")
        shared = sum(1 for w in state.workers.values() if w.place.node == node and w.pool.dedicated is None)
        require(fleet.shared_on[node] == shared, f"node {node!r} counts {fleet.shared_on[node]} shared, has {shared}")
    for pool in state.pools:
        draining = sum(1 for w in state.workers.values() if w.pool is pool and w.draining)
        up = sum(1 for w in state.workers.values() if w.pool is pool and w.state == UP)
        require(pool.up == up, f"{pool.up} workers of a pool are counted as ready, {up} are")
        require(pool.draining == draining, f"{pool.draining} workers of a pool are counted as draining, {draining} are")


def check_units(state: State) -> None:
    """Check that every open unit has work left, and that the counts of units, commits and running tasks agree."""
    unfinished = 0
    for unit in state.units.values():
        if unit.state in (OPEN, COMMITTING):
            unfinished += 1
        if unit.state == OPEN:
            check_open_unit(unit)
        require(unit.name not in state.committed, f"unit {unit.name!r} is committed and in progress")
    require(
        state.unfinished == unfinished, f"{state.unfinished} units are counted as unfinished, there are {unfinished}"
    )
    commits = sum(1 for unit in state.units.values() if unit.state == COMMITTING)
    require(state.commits == commits, f"{state.commits} commits are counted, {commits} are under way")
    running = sum(1 for w in state.workers.values() for item in w.queue if isinstance(item, TaskState))
    require(state.running == running, f"{state.running} tasks are counted as running, there are {running}")


def check_open_unit(unit: UnitState) -> None:
    """Check that an open unit has tasks or waits for its stream."""
    if unit.first is None and not unit.sinking and unit.closed:
        raise BrokenInvariant(f"unit {unit.name!r} has no tasks left and is not committed")
    leaf = first_leaf(unit)
    if leaf is not None and leaf.state == HELD:
        require(unit.eligible or not leaf.op.ordered, "the first leaf is held, but not queued for the sink", leaf)
    if unit.sink_worker is not None:
        require(unit.sink_worker.units.get(unit.name) is unit, f"unit {unit.name!r} and its sink worker disagree")
