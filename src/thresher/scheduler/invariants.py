# SPDX-License-Identifier: Apache-2.0
"""What holds after every step. `check` costs time in proportion to the state: for tests and debugging."""

from __future__ import annotations

from thresher.scheduler.lineage import first_leaf, subtree
from thresher.scheduler.locality import GENERATORS
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
    Task,
    Unit,
    Worker,
)
from thresher.scheduler.step import Scheduler


class BrokenInvariant(AssertionError):
    """The scheduler's books do not agree; the message tells the story of the task or unit concerned."""


def check(scheduler: Scheduler) -> None:
    """Raise BrokenInvariant if any book disagrees with another."""
    state = scheduler.state
    if state.over:
        return
    check_places(state)
    check_bytes(state)
    for worker in state.workers.values():
        check_worker(state, worker)
    check_units(state)
    check_nodes(state)


def require(holds: bool, message: str, about: Task | Worker | None = None) -> None:
    """Raise unless it holds, with the story of the task or worker it is about (told only then: stories cost time)."""
    if not holds:
        story = "" if about is None else f": {about.story()}"
        raise BrokenInvariant(message + story)


def check_places(state: State) -> None:
    """Every task is in exactly one place, and in the tree of its unit unless a sink has it or its epoch is over."""
    in_trees = {task.id: task for unit in state.units.values() for task in subtree(unit) if task.state != DONE}
    ready = {id(task) for op in state.ops if not op.ordered for _, task in op.ready if task.state == READY}
    for task in state.tasks.values():
        on_worker = task.worker is not None and task in task.worker.queue
        parked = task.worker is not None and task.id in task.worker.parked
        require(on_worker == (task.state in (RUNNING, VOID)), "queue and state disagree", task)
        require(parked == (task.state == PARKED), "parked and state disagree", task)
        require((id(task) in ready) == (task.state == READY), "ready and state disagree", task)
        if task.state == VOID:
            require(task.id not in in_trees, "an old epoch is still in the tree", task)
            continue
        require(task.epoch == task.unit.epoch, "a task of an old epoch lives on", task)
        sinking = task.id in task.unit.sinking
        require(sinking != (task.id in in_trees), "a task must be in the tree or in the sink", task)
        require(not sinking or (task.op.ordered and task.state == RUNNING), "not a sink's task", task)
    for task in in_trees.values():
        require(state.tasks.get(task.id) is task, "in the tree, but forgotten", task)
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
    """The sums of bytes agree, and only excess goes beyond the budget."""
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
        require(task.reserve == 0 or task.state in (RUNNING, VOID), "a reserve without use", task)
    if not state.spec.barrier:
        total, budget = state.used + state.reserved - state.excess, state.spec.budget_bytes
        require(total <= budget, f"{total} bytes were given ordinary credit, the budget is {budget}")


def check_worker(state: State, worker: Worker) -> None:
    """No worker holds more than it may."""
    tasks = [item for item in worker.queue if isinstance(item, Task)]
    groups = len({id(task.group) for task in tasks})
    require(worker.groups == groups <= state.spec.depth, "the count of groups is wrong, or too many", worker)
    require(len(worker.parked) <= GENERATORS, "more parked tasks than a worker may have", worker)
    parked = [task.op.index for task in worker.parked.values()]
    require(len(set(parked)) == len(parked), "two parked tasks of one op", worker)
    for task in tasks:
        require(task.op.index not in parked, "a task stands behind a parked one of its op", task)
        require(task.op.pool is worker.pool, "a task is on a worker that is not for it", task)
    held: dict[int, int] = {}
    for task in tasks + list(worker.parked.values()):
        if task.op.tracked:
            held[task.op.index] = held.get(task.op.index, 0) + 1
    require(held == worker.ops, "the count of tasks by op is wrong", worker)
    for level, free in enumerate(worker.pool.free):
        listed = worker.id in free
        require(
            listed == (worker.state == UP and not worker.leaving and worker.groups == level),
            "wrongly listed among those with room",
            worker,
        )


def check_nodes(state: State) -> None:
    """What nodes have left is what they had without what their workers take, and never less than nothing."""
    fleet = state.fleet
    left = fleet.empty.copy()
    for worker in state.workers.values():
        if worker.place.node in left.room:
            left.take(worker.pool.need, worker.place)
    for node, room in fleet.nodes.room.items():
        same = room.free_parts == left.room[node].free_parts and room.memory_bytes == left.room[node].memory_bytes
        require(same, f"node {node!r} has {room} left, its workers leave {left.room[node]}")
        held = all(parts >= 0 for parts in room.free_parts) and all(amount > -1e-6 for _, amount in room.custom)
        require(held and room.memory_bytes >= -1, f"node {node!r} is over-committed: {room}")
        shared = sum(1 for w in state.workers.values() if w.place.node == node and w.pool.dedicated is None)
        require(fleet.shared_on[node] == shared, f"node {node!r} counts {fleet.shared_on[node]} shared, has {shared}")
    for pool in state.pools:
        leaving = sum(1 for w in state.workers.values() if w.pool is pool and w.leaving)
        up = sum(1 for w in state.workers.values() if w.pool is pool and w.state == UP)
        require(pool.up == up, f"{pool.up} workers of a pool are counted as ready, {up} are")
        require(pool.leaving == leaving, f"{pool.leaving} workers of a pool are counted as leaving, {leaving} are")


def check_units(state: State) -> None:
    """Every unit is in progress for a reason, and only its first leaf waits for the sink."""
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
    running = sum(1 for w in state.workers.values() for item in w.queue if isinstance(item, Task))
    require(state.running == running, f"{state.running} tasks are counted as running, there are {running}")


def check_open_unit(unit: Unit) -> None:
    """An open unit has something to do, or waits for its stream."""
    if unit.first is None and not unit.sinking and unit.closed:
        raise BrokenInvariant(f"unit {unit.name!r} has nothing to do and is not committed")
    leaf = first_leaf(unit)
    if leaf is not None and leaf.state == HELD:
        require(unit.eligible or not leaf.op.ordered, "nothing earlier can come, but it is held", leaf)
    if unit.sink_worker is not None:
        require(unit.sink_worker.units.get(unit.name) is unit, f"unit {unit.name!r} and its sink worker disagree")
