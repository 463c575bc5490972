# SPDX-License-Identifier: Apache-2.0
"""The lineage tree of a unit: the order of its tasks, and when no earlier task can come any more.

A task stays in the tree until it is done and all its children are gone; a task that was sent to an ordered sink is
removed at once. So the first leaf, depth first, is always the earliest unfinished task of the unit: children come
before the rest of their parent.
"""

from __future__ import annotations

from heapq import heappop, heappush

from thresher.scheduler.state import DONE, State, Task, Unit


def link(state: State, parent: Task | Unit, task: Task) -> None:
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


def unlink(task: Task) -> None:
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
        if parent.__class__ is not Task or parent.first is not None or parent.state != DONE:
            return
        node = parent


def first_leaf(node: Task | Unit) -> Task | None:
    """Return the first task below a unit in lineage order, or None if the unit has none now."""
    leaf = node.first
    if leaf is None:
        return None
    while leaf.first is not None:
        leaf = leaf.first
    return leaf


def oldest_task(state: State) -> Task | None:
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


def subtree(node: Task | Unit) -> list[Task]:
    """Return every task below a node, in lineage order."""
    found: list[Task] = []
    stack = [node.first]
    while stack:
        task = stack.pop()
        if task is None:
            continue
        found.append(task)
        stack.append(task.next)
        stack.append(task.first)
    return found
