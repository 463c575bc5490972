# SPDX-License-Identifier: Apache-2.0
"""Measured rates of an op: the time of a task, its fan-out and the size of an emitted batch."""

from __future__ import annotations

from thresher.scheduler.model import RunSpec
from thresher.scheduler.state import Op, State, Task, chain

TIME_WEIGHT = 0.2  # weight of the newest time in the average
FLOW_TASKS = 20  # number of tasks that the decayed sums cover, plus two for each worker
SHIFT = 2  # a task is an outlier if it takes this many times longer or shorter than recent ones
SHIFT_TASKS = 8  # consecutive outliers on one side after which their time becomes the recent time
SIZE_DECAY = 8  # a size above the estimate counts at once; below, 1/8 of the difference


def record_task_time(state: State, task: Task, busy_s: float) -> None:
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


def follow_time_shift(op: Op, busy_s: float) -> None:
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


def record_batch_size(op: Op, nbytes: int) -> None:
    """Update the estimate with the size of an emitted batch: up at once, so that credits fit, slowly down."""
    estimate = op.estimate
    if nbytes > estimate:
        op.estimate = nbytes
    elif nbytes < estimate:
        op.estimate = estimate - (estimate - nbytes + SIZE_DECAY - 1) // SIZE_DECAY or 1
    else:
        return
    set_credit(op)


def set_credit(op: Op) -> None:
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


def tiny_group(spec: RunSpec, op: Op) -> int:
    """Return how many tasks of this op form a group that is small in time and output bytes."""
    return min(op.group, max(1, spec.group_bytes // op.estimate)) if op.emits else op.group


def record_flow(op: Op, busy_s: float, outputs: int, ended: int) -> None:
    """Add a report to the decayed sums, from which task times and fan-outs are derived."""
    loss = 1 / (FLOW_TASKS + 2 * op.pool.target)
    op.seen_busy_s += busy_s - loss * op.seen_busy_s
    op.seen_outputs += outputs - loss * op.seen_outputs
    op.seen_tasks += ended - loss * op.seen_tasks
