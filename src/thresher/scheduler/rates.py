# SPDX-License-Identifier: Apache-2.0
"""What is measured about an op: how long a task takes and how large an emitted batch is."""

from __future__ import annotations

from thresher.scheduler.model import RunSpec
from thresher.scheduler.state import Op, State, Task, chain

TIME_WEIGHT = 0.2  # weight of the newest time in the average
FLOW_TASKS = 20  # tasks that sums of the recent past reach back, and two more for each worker
SHIFT = 2  # a task that takes so many times longer or shorter than of late is odd
SHIFT_TASKS = 8  # odd tasks in a row, all to the same side, after which their time is the one of late
SIZE_DECAY = 8  # a size above the estimate counts at once; below, 1/8 of the difference


def saw_time(state: State, task: Task, busy_s: float) -> None:
    """Take the time of a finished task into the average, and derive how many such tasks make a group.

    A task that reported something on its way, but not its time, tells nothing: its last turn alone may be tiny.
    """
    if task.emitted and not task.busy_s:
        return
    busy_s += task.busy_s
    op = task.op
    before = op.average_s
    average = busy_s if before < 0 else before + TIME_WEIGHT * (busy_s - before)
    op.average_s = average
    if state.measuring:
        saw_shift(op, busy_s)
    spec = state.spec
    group = spec.group_tasks if average * spec.group_tasks <= spec.group_s else max(1, int(spec.group_s / average))
    if group != op.group:
        op.group = group
        set_window(state)


def saw_shift(op: Op, busy_s: float) -> None:
    """Follow a lasting change of the time of a task at once: the sums of the recent past would take many tasks."""
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


def saw_size(op: Op, nbytes: int) -> None:
    """Take the size of an emitted batch into the estimate: quickly up, so that credits fit, slowly down."""
    estimate = op.estimate
    if nbytes > estimate:
        op.estimate = nbytes
    elif nbytes < estimate:
        op.estimate = estimate - (estimate - nbytes + SIZE_DECAY - 1) // SIZE_DECAY or 1
    else:
        return
    set_credit(op)


def set_credit(op: Op) -> None:
    """Two batches where the limit leaves room for several such tasks: most generators then end without parking."""
    op.credit = 2 * op.estimate if 8 * op.estimate <= op.limit else op.estimate


def set_window(state: State) -> None:
    """Batches in flight at which each source waits: some for each worker; whole groups where all tasks are tiny."""
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
    """Tasks of this op that are tiny together, in time and in what they emit."""
    return min(op.group, max(1, spec.group_bytes // op.estimate)) if op.emits else op.group


def saw_flow(op: Op, busy_s: float, outputs: int, ended: int) -> None:
    """Take a report into the sums of the recent past, from which times and fan-outs are derived together."""
    loss = 1 / (FLOW_TASKS + 2 * op.pool.target)
    op.seen_busy_s += busy_s - loss * op.seen_busy_s
    op.seen_outputs += outputs - loss * op.seen_outputs
    op.seen_tasks += ended - loss * op.seen_tasks
