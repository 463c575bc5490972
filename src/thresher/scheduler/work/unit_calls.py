# SPDX-License-Identifier: Apache-2.0
"""Calls that take consecutive tasks of one unit: `batch_size` of them in lineage order, the last call the rest.

The result of such a call may depend on which tasks it takes, so this choice must not depend on timing. A task waits
until no earlier task of its unit can come and its call is full, or until the unit has no more tasks for the op.
A smaller call is made only if nothing else can run, because room for a full one is not guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush

from thresher.scheduler.state import DELAYED, DONE, HELD, READY, Op, State, Task, Unit, chain


def queue_calls(state: State, unit: Unit, *, flush: bool = False) -> None:
    """Queue the full calls of a unit and its last ones; `flush`: also those that wait for more tasks."""
    for op in chain(unit.entry):
        if op.spec.by_unit:
            queue_calls_of_op(unit, op, flush=flush)


def queue_calls_of_op(unit: Unit, op: Op, *, flush: bool) -> None:
    """Queue the calls of one op."""
    waiting: list[Task] = []
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


def unfinished(node: Task | Unit) -> Iterator[Task]:
    """Yield every unfinished task below a node in lineage order: children come before the rest of their parent."""
    child = node.first
    while child is not None:
        yield from unfinished(child)
        if child.state != DONE:
            yield child
        child = child.next


def queue_call(op: Op, tasks: list[Task]) -> None:
    """Queue a call under its first task; the other tasks stay held until the call starts."""
    for task in tasks:
        task.call = tasks
    tasks[0].state = READY
    op.nready += 1
    heappush(op.ready, (tasks[0].key, tasks[0]))


def take_call(first: Task) -> list[Task]:
    """Return the tasks of a call that starts now. A task that fails is assigned to a new call."""
    tasks = first.call
    assert tasks is not None, first.describe()
    for task in tasks:
        task.call = None
    return tasks
