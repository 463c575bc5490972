# SPDX-License-Identifier: Apache-2.0
"""The last resort: nothing runs, yet work is left. Then the oldest task runs, whatever it takes.

Dispatch looks at a few workers and keeps to every limit, so it may find nothing to do although something could be
done. When no task runs and no commit is under way, no event would come either. Here every worker of the oldest
task's pool is looked at; if a parked generator of the same op sits in each of them, the youngest one gives way.
"""

from __future__ import annotations

from heapq import heappop

from thresher.scheduler.backpressure import reserve
from thresher.scheduler.dispatch import dispatch, resume, start
from thresher.scheduler.lineage import oldest_task
from thresher.scheduler.locality import GENERATORS
from thresher.scheduler.pools import call_back, holds_nothing
from thresher.scheduler.recovery import restart
from thresher.scheduler.state import DELAYED, PARKED, READY, UP, Op, State, Task, Worker


def unblock(state: State) -> None:
    """If nothing runs, make the oldest task run."""
    if state.spec.barrier:
        return  # no credits, nothing parks: whatever may run was found
    while not state.running and not state.commits and not state.stopping and not state.over:
        task = oldest_task(state)
        if task is None or task.state == DELAYED or not force(state, task):
            return


def force(state: State, task: Task) -> bool:
    """Make a task run; False if it has to wait for a worker to start. True also if room was made for another try."""
    op = task.op
    if task.state == PARKED:
        reserve(state, task, op.estimate, exempt=True)
        resume(state, task)
        return True
    if not op.pool.up:
        return False
    workers = [w for w in state.workers.values() if w.pool is op.pool and w.state == UP]
    if all(w.leaving for w in workers) and any(not holds_nothing(w) for w in workers):
        for worker in workers:
            call_back(state, worker)
        dispatch(state)
        return True
    workers = [w for w in workers if not w.leaving]
    if not workers:
        return False
    if task.state != READY or not op.emits:
        raise AssertionError(f"nothing runs, workers are free, and yet dispatch left {task.story()}")
    enterable = [w for w in workers if op.index not in w.ops]
    if enterable:
        start_oldest(state, task, min(enterable, key=lambda w: (len(w.ops), w.id)))
    else:
        make_room(state, task, op, workers)
    return True


def start_oldest(state: State, task: Task, worker: Worker) -> None:
    """Start the oldest task beyond the budget. It must not park as a third generator, so then it runs through."""
    op = task.op
    op.nready -= 1
    heappop(op.ready)
    reserve(state, task, op.estimate, exempt=True)
    start(state, worker, op, [task], run_through=len(worker.ops) >= GENERATORS)


def make_room(state: State, task: Task, op: Op, workers: list[Worker]) -> None:
    """The youngest parked generator of the op gives way: its unit starts again, without blame."""
    parked = [p for worker in workers for p in worker.parked.values() if p.op is op]
    youngest = max(parked, key=lambda p: p.key)
    if youngest.unit is task.unit:
        task.unit.serial = True  # or the same would happen again in the next epoch
    restart(state, youngest.unit)
    dispatch(state)
