# SPDX-License-Identifier: Apache-2.0
"""The lineage tree of a unit and the queues of ops: the order of tasks, and when each of them may run.

A task stays in the tree until it is done and all its children are gone; a task that was sent to an ordered sink is
removed at once. So the first leaf, depth first, is always the earliest unfinished task of the unit: children come
before the rest of their parent. Where order matters, a task is held until no earlier one can come.

Some ops take consecutive tasks of one unit in a call: `batch_size` of them in lineage order, the last call the rest.
The result of such a call may depend on which tasks it takes, so this choice must not depend on timing. A task waits
until no earlier task of its unit can come and its call is full, or until the unit has no more tasks for the op.
A smaller call is made only if nothing else can run, because room for a full one is not guaranteed.

A task that failed waits for its backoff before it is queued. Time comes from Ticks; without them there is no delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from thresher.scheduler.state import DELAYED, DONE, HELD, READY, OpState, State, TaskState, UnitState, chain

MAX_DELAY_S = 30.0  # longest delay before a retry


# -- the tree ----------------------------------------------------------------------------------------------------------


def link(state: State, parent: TaskState | UnitState, task: TaskState) -> None:
    """Append a new task to its siblings."""
    task.parent = parent
    last = parent.last
    task.prev = last
    if last is None:
        parent.first = task
    else:
        last.next = task
    parent.last = task
    unit = task.unit
    if not unit.listed:
        unit.listed = True
        heappush(state.oldest_units, (unit.key, unit))


def unlink(task: TaskState) -> None:
    """Remove a task without children from the tree, and each finished ancestor whose last child it was."""
    node = task
    while True:
        parent = node.parent
        before, after = node.prev, node.next
        if before is None:
            parent.first = after  # type: ignore[union-attr]  # a linked node has a parent
        else:
            before.next = after
        if after is None:
            parent.last = before  # type: ignore[union-attr]  # a linked node has a parent
        else:
            after.prev = before
        node.parent = node.prev = node.next = None
        if parent.__class__ is not TaskState or parent.first is not None or parent.state != DONE:
            return
        node = parent


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


def subtree(node: TaskState | UnitState) -> list[TaskState]:
    """Return every task below a node, in lineage order."""
    found: list[TaskState] = []
    stack = [node.first]
    while stack:
        task = stack.pop()
        if task is None:
            continue
        found.append(task)
        stack.append(task.next)
        stack.append(task.first)
    return found


# -- queues ------------------------------------------------------------------------------------------------------------


def enqueue(state: State, task: TaskState) -> None:
    """Queue a new task, or hold it back until it is the first of its unit where order matters."""
    if task.op.ordered or task.op.spec.by_unit or (task.unit.serial and task.op.emits):
        task.state, task.call = HELD, None
        state.touched_units.append(task.unit)
    else:
        make_ready(task)


def make_ready(task: TaskState) -> None:
    """Put a task into its op's queue."""
    op = task.op
    task.state = READY
    op.nready += 1
    heappush(op.ready, (task.key, task))


def delay_of(state: State, failures: int) -> float:
    """Return the delay after the given number of failures: doubled with each of them."""
    if not failures or not state.fleet.now_s:
        return 0.0
    return min(MAX_DELAY_S, state.spec.backoff_s * 2.0 ** (failures - 1))


def enqueue_after(state: State, task: TaskState, failures: int) -> None:
    """Queue a task after the delay for the given number of failures."""
    delay_s = delay_of(state, failures)
    if not delay_s:
        enqueue(state, task)
        return
    task.state = DELAYED
    heappush(state.delayed, (state.fleet.now_s + delay_s, task.id, task))


def enqueue_due(state: State) -> None:
    """Queue the tasks whose delay has passed."""
    while state.delayed and state.delayed[0][0] <= state.fleet.now_s:
        task = heappop(state.delayed)[2]
        if task.state == DELAYED:  # its unit may have restarted in the meantime
            enqueue(state, task)


# -- calls by unit -----------------------------------------------------------------------------------------------------


def queue_calls(state: State, unit: UnitState, *, flush: bool = False) -> None:
    """Queue the full calls of a unit and its last ones; `flush`: also those that wait for more tasks."""
    for op in chain(unit.entry):
        if op.spec.by_unit:
            queue_calls_of_op(unit, op, flush=flush)


def queue_calls_of_op(unit: UnitState, op: OpState, *, flush: bool) -> None:
    """Queue the calls of one op."""
    waiting: list[TaskState] = []
    complete = unit.closed
    for task in unfinished(unit):
        if task.op.index < op.index or (task.op is op and task.state == DELAYED):
            complete = False  # an earlier task than the following ones may still come
            break
        if task.op is op and task.state == HELD and task.call is None:
            waiting.append(task)
            if len(waiting) == op.spec.batch_size:
                queue_call(op, waiting)
                waiting = []
    if waiting and (complete or flush):
        queue_call(op, waiting)


def unfinished(node: TaskState | UnitState) -> Iterator[TaskState]:
    """Yield every unfinished task below a node in lineage order: children come before the rest of their parent."""
    child = node.first
    while child is not None:
        yield from unfinished(child)
        if child.state != DONE:
            yield child
        child = child.next


def queue_call(op: OpState, tasks: list[TaskState]) -> None:
    """Queue a call under its first task; the other tasks stay held until the call starts."""
    for task in tasks:
        task.call = tasks
    tasks[0].state = READY
    op.nready += 1
    heappush(op.ready, (tasks[0].key, tasks[0]))


def take_call(first: TaskState) -> list[TaskState]:
    """Return the tasks of a call that starts now. A task that fails is assigned to a new call."""
    tasks = first.call
    assert tasks is not None, first.describe()
    for task in tasks:
        task.call = None
    return tasks
