# SPDX-License-Identifier: Apache-2.0
"""Worker queues: which worker holds which task, and which workers have room."""

from __future__ import annotations

from thresher.scheduler.state import RUNNING, UP, Group, Op, State, Task, Worker


def add_to_queue(state: State, worker: Worker, task: Task, group: Group) -> None:
    """Add a task to a worker's queue."""
    task.state = RUNNING
    task.worker = worker
    task.group = group
    worker.queue[task] = None
    state.running += 1
    if task.op.source and task.op.emits:
        state.running_sources += 1


def remove_from_queue(state: State, worker: Worker, task: Task) -> None:
    """Remove a task from its worker's queue."""
    del worker.queue[task]
    state.running -= 1
    if worker.draining:
        state.fleet.draining.append(worker)
    if task.op.source and task.op.emits:
        state.running_sources -= 1
    group = task.group
    assert group is not None, task.describe()
    task.group = None
    group.left -= 1
    if not group.left:
        set_groups(worker, worker.groups - 1)
        if worker.sinks or worker.parked:
            state.touched_workers.append(worker)


def drop_op_task(worker: Worker, op: Op) -> None:
    """Decrement the number of tasks of an op that a worker holds, parked ones included."""
    if not op.tracked:
        return
    held = worker.ops[op.index] - 1
    if held:
        worker.ops[op.index] = held
    else:
        del worker.ops[op.index]
        op.seats -= 1


def set_groups(worker: Worker, groups: int) -> None:
    """Set the number of groups a worker holds and list it among the workers with that much room."""
    free = worker.pool.free
    if worker.groups < len(free):
        free[worker.groups].pop(worker.id, None)
    worker.groups = groups
    if groups < len(free) and worker.state == UP and not worker.draining:
        free[groups][worker.id] = worker
