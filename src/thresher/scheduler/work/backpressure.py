# SPDX-License-Identifier: Apache-2.0
"""Backpressure: the bytes that tasks may emit, under a budget that cannot deadlock.

Every payload counts as `used` from its emission until its Release. A task that emits runs on a *reserve*, taken from
the rest of the budget. When the budget is used up, only the oldest task in lineage order runs, on a reserve of one
batch beyond the budget. Its children are then the oldest and sinks need no reserve, so the oldest unit always makes
progress. Bytes emitted beyond the reserve are debt: they count as used, so nothing else starts until they are released.
"""

from __future__ import annotations

from thresher.scheduler.model import NO_LIMIT
from thresher.scheduler.state import Op, State, Task
from thresher.scheduler.work.lineage import oldest_task
from thresher.scheduler.workers.rates import record_batch_size, set_window

LARGEST_WINDOW = 8  # factor by which the window may grow to bridge gaps in the input
STARVING_SIGHTINGS = 16  # observations of an idle worker with a full window before the window grows by one batch


def may_run(state: State, task: Task) -> bool:
    """Return True if there is room for the outputs of the task, and set its reserve aside."""
    op = task.op
    if state.spec.barrier:
        return not (op.source and state.pressure and state.running)  # the oldest task may be behind the barrier
    if not op.emits:
        return not (op.source and state.pressure) or oldest_task(state) is task
    if state.used + state.reserved + op.credit <= op.limit and (not op.source or source_may_run(state, op)):
        reserve(state, task, op.credit, exempt=False)
        return True
    if oldest_task(state) is task:
        reserve(state, task, op.estimate, exempt=True)
        return True
    return False


def source_may_run(state: State, op: Op) -> bool:
    """Return True if one more batch may enter: memory is not under pressure and the window is not full."""
    if state.pressure:
        return False
    if state.payloads + state.running_sources < op.window:
        return True
    state.held_back = op
    return False


def reserve(state: State, task: Task, nbytes: int, *, exempt: bool) -> None:
    """Reserve bytes for the outputs of the task."""
    task.reserve = nbytes
    task.exempt = exempt
    state.reserved += nbytes
    if exempt:
        state.excess += nbytes


def credit_of(state: State, task: Task) -> int:
    """Return the credit to send with a task that has its reserve."""
    return task.reserve if task.op.emits and not state.spec.barrier else NO_LIMIT


def return_reserve(state: State, task: Task) -> None:
    """Return the unused part of a task's reserve to the budget."""
    left = task.reserve
    if left:
        task.reserve = 0
        state.reserved -= left
        if task.exempt:
            state.excess -= left


def account(state: State, emitter: Task, child: Task) -> None:
    """Account a new payload against its emitter's reserve; the rest is debt."""
    nbytes = child.nbytes
    covered = emitter.reserve
    if covered > nbytes:
        covered = nbytes
    emitter.reserve -= covered
    state.reserved -= covered
    state.used += nbytes
    state.payloads += 1
    state.excess += nbytes - covered
    child.excess = nbytes if emitter.exempt else nbytes - covered
    record_batch_size(emitter.op, nbytes)


def discard(state: State, emitter: Task, nbytes: int) -> None:
    """Account a payload that is released on arrival: it only uses up reserve."""
    covered = min(emitter.reserve, nbytes)
    emitter.reserve -= covered
    state.reserved -= covered
    if emitter.exempt:
        state.excess -= covered


def release(state: State, task: Task) -> None:
    """Free the payload of a task, once."""
    if task.id > 0 and task.nbytes >= 0:
        state.used -= task.nbytes
        state.excess -= task.excess
        state.payloads -= 1
        state.released.append(task.id)
        task.nbytes = -1
        task.excess = 0


def note_drained_worker(state: State, op: Op) -> None:
    """Widen the window when a dedicated worker ran out of tasks although a source was held back before.

    A larger window bridges input that comes in bursts; a source that was never held back has nothing more to emit. If
    many batches are still in flight, they wait for other ops, and more of them would only wait there.
    """
    source = state.held_back
    if source is None or op.nready or state.pressure or 2 * state.payloads >= source.window:
        return
    state.held_back = None
    if state.window_growth < (LARGEST_WINDOW - 1) * (source.window - state.window_growth):
        state.window_growth += max(1, source.window // 4)
        set_window(state)


def note_starved_worker(state: State, op: Op) -> None:
    """Widen the window, slowly and not far, when a shared worker is idle because the window holds this source back.

    If tasks wait for dedicated workers, those are the bottleneck, and more batches would only wait there.
    """
    if state.pressure or state.used + state.reserved + op.credit > op.limit:
        return
    if any(pool.dedicated is not None and pool.inner and pool.inner[0].nready for pool in state.pools):
        return
    state.starving += 1
    if state.starving >= STARVING_SIGHTINGS and state.window_growth < op.window:
        state.starving = 0
        state.window_growth += 1
        set_window(state)
