# SPDX-License-Identifier: Apache-2.0
"""Locality: a task prefers the node that holds its payload, if that idles no worker and starves no task."""

from __future__ import annotations

from thresher.scheduler.state import READY, Op, State, Task, Worker

MAX_GENERATORS = 2  # different emitting ops a worker may hold tasks of, so that at most two can be parked
LOOK_AHEAD = 8  # entries at the top of a queue that are searched for a local task
MAX_PASSED_OVER = 4  # consecutive times that the oldest task may be passed over


def prefer_local(state: State, worker: Worker, oldest: Task, *, seated: bool, full: bool) -> tuple[Worker, Task]:
    """Return a worker and a task on one node if possible; `worker` has room and `oldest` is its op's first task.

    Prefer a free worker on the task's node, then another task on the worker's node, then the given pair. `seated`: only
    a worker that already holds tasks of this op may take one; `full`: only the oldest task may go to another worker.
    """
    op = oldest.op
    if not oldest.home or oldest.home == worker.node:
        op.passed_over = 0
        return worker, oldest
    near = local_worker(state, worker, oldest, seated=seated)
    if near is not None:
        op.passed_over = 0
        return near, oldest
    if op.passed_over < MAX_PASSED_OVER and not full:
        task = local_task(op, worker)
        if task is not None:
            op.passed_over += 1
            return worker, task
    op.passed_over = 0
    return worker, oldest


def local_worker(state: State, worker: Worker, task: Task, *, seated: bool) -> Worker | None:
    """Return another worker with as much room as this one, on the node that holds the task's payload."""
    op = task.op
    free = op.pool.free[worker.groups]
    for other in state.fleet.on_node.get(task.home, {}).values():
        if other.id in free and other.pool is op.pool and (not op.tracked or accepts(other, op, seated)):
            return other
    return None


def local_task(op: Op, worker: Worker) -> Task | None:
    """Return the oldest of the first tasks of an op whose payload is on the worker's node."""
    near = [task for _, task in op.ready[:LOOK_AHEAD] if task.state == READY and task.home == worker.node]
    return min(near, key=lambda task: task.key, default=None)


def accepts(worker: Worker, op: Op, seated: bool) -> bool:
    """Return True if a worker may take a task of the op: one task of an op that parks, tasks of few emitting ops."""
    if op.index in worker.ops:
        return not op.parks
    return not seated and (not op.emits or len(worker.ops) < MAX_GENERATORS)
