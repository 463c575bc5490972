# SPDX-License-Identifier: Apache-2.0
"""Book-keeping of which worker holds which task, and which workers have room."""

from __future__ import annotations

from thresher.scheduler.state import RUNNING, UP, Group, Op, State, Task, Worker


def hold(state: State, worker: Worker, task: Task, group: Group) -> None:
    """Book a task as running on a worker."""
    task.state = RUNNING
    task.worker = worker
    task.group = group
    worker.queue[task] = None
    state.running += 1
    if task.op.source and task.op.emits:
        state.running_sources += 1


def let_go(state: State, worker: Worker, task: Task) -> None:
    """Book a task as no longer in its worker's queue."""
    del worker.queue[task]
    state.running -= 1
    if worker.leaving:
        state.fleet.leaving.append(worker)
    if task.op.source and task.op.emits:
        state.running_sources -= 1
    group = task.group
    assert group is not None, task.story()
    task.group = None
    group.left -= 1
    if not group.left:
        set_groups(worker, worker.groups - 1)
        if worker.sinks or worker.parked:
            state.touched_workers.append(worker)


def leave_op(worker: Worker, op: Op) -> None:
    """Book that a worker holds one task less of an op, parked ones included."""
    if not op.tracked:
        return
    held = worker.ops[op.index] - 1
    if held:
        worker.ops[op.index] = held
    else:
        del worker.ops[op.index]
        op.seats -= 1


def set_groups(worker: Worker, groups: int) -> None:
    """Move a worker to its place among those with room."""
    free = worker.pool.free
    if worker.groups < len(free):
        free[worker.groups].pop(worker.id, None)
    worker.groups = groups
    if groups < len(free) and worker.state == UP and not worker.leaving:
        free[groups][worker.id] = worker
