# SPDX-License-Identifier: Apache-2.0
"""A task goes where its payload lies, as far as that idles no worker and keeps no task waiting for long."""

from __future__ import annotations

from thresher.scheduler.state import READY, Op, State, Task, Worker

GENERATORS = 2  # different emitting ops a worker may hold tasks of, so that at most two can be parked
LOOK_AHEAD = 8  # entries at the top of a queue that are looked at for a task that lies near
PATIENCE = 4  # times in a row that the oldest task may be passed over


def bring_together(state: State, worker: Worker, oldest: Task, *, seated: bool, full: bool) -> tuple[Worker, Task]:
    """A worker and a task on one node, if there are; `worker` has room and `oldest` is its op's first task.

    A free worker near the task comes first, then another task near the worker, then any pair. `seated`: only a worker
    that holds tasks of this op already may take one; `full`: only the oldest task of all may go to another worker.
    """
    op = oldest.op
    if not oldest.home or oldest.home == worker.node:
        op.passed_over = 0
        return worker, oldest
    near = worker_near(state, worker, oldest, seated=seated)
    if near is not None:
        op.passed_over = 0
        return near, oldest
    if op.passed_over < PATIENCE and not full:
        task = task_near(op, worker)
        if task is not None:
            op.passed_over += 1
            return worker, task
    op.passed_over = 0
    return worker, oldest


def worker_near(state: State, worker: Worker, task: Task, *, seated: bool) -> Worker | None:
    """Another worker with as much room as this one, on the node where the task's payload lies."""
    op = task.op
    free = op.pool.free[worker.groups]
    for other in state.fleet.on_node.get(task.home, {}).values():
        if other.id in free and other.pool is op.pool and (not op.tracked or accepts(other, op, seated)):
            return other
    return None


def task_near(op: Op, worker: Worker) -> Task | None:
    """The oldest of the first tasks of an op whose payload lies on the worker's node."""
    near = [task for _, task in op.ready[:LOOK_AHEAD] if task.state == READY and task.home == worker.node]
    return min(near, key=lambda task: task.key, default=None)


def accepts(worker: Worker, op: Op, seated: bool) -> bool:
    """An op that parks is entered once; and a worker holds tasks of few emitting ops, as each might park."""
    if op.index in worker.ops:
        return not op.parks
    return not seated and (not op.emits or len(worker.ops) < GENERATORS)
