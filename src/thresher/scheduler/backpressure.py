# SPDX-License-Identifier: Apache-2.0
"""Bytes in flight: who may emit how much, and why nothing deadlocks.

Every payload counts as `used` from its emission until its Release. A task that emits runs on a *reserve*, taken from
what the budget leaves. When nothing is left, only the oldest task in lineage order runs, on a reserve of one batch
beyond the budget. Its children are then the oldest, sinks need no reserve, and so the oldest unit always moves.
What a task emits beyond its reserve is debt: it counts as used, so nothing else starts until it is repaid.
"""

from __future__ import annotations

from thresher.scheduler.lineage import oldest_task
from thresher.scheduler.model import NO_LIMIT
from thresher.scheduler.rates import saw_size, set_window
from thresher.scheduler.state import Op, State, Task

LARGEST_WINDOW = 8  # times that the window may become larger to bridge lulls of the input
STARVING_SIGHTINGS = 16  # sightings of an idle worker behind a full window before the window grows by one batch


def may_run(state: State, task: Task) -> bool:
    """Whether there is room for what the task will emit; if so, set its reserve aside."""
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
    """Whether one more batch may enter: measured memory is fine and not too many batches are in flight."""
    if state.pressure:
        return False
    if state.payloads + state.running_sources < op.window:
        return True
    state.held_back = op
    return False


def reserve(state: State, task: Task, nbytes: int, *, exempt: bool) -> None:
    """Set bytes aside for what the task will emit."""
    task.reserve = nbytes
    task.exempt = exempt
    state.reserved += nbytes
    if exempt:
        state.excess += nbytes


def credit_of(state: State, task: Task) -> int:
    """The credit to send along with a task that has its reserve."""
    return task.reserve if task.op.emits and not state.spec.barrier else NO_LIMIT


def return_reserve(state: State, task: Task) -> None:
    """Give back what the task did not use of its reserve."""
    left = task.reserve
    if left:
        task.reserve = 0
        state.reserved -= left
        if task.exempt:
            state.excess -= left


def account(state: State, emitter: Task, child: Task) -> None:
    """Count a new payload: against its emitter's reserve first, the rest is debt."""
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
    saw_size(emitter.op, nbytes)


def discard(state: State, emitter: Task, nbytes: int) -> None:
    """Count a payload that is released on arrival: it only uses up reserve."""
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


def saw_dry(state: State, op: Op) -> None:
    """A worker of its own has nothing left, though a source was held back before: what was in flight did not last.

    Input that comes in bursts is bridged by a larger window; a source that never had to wait has nothing to give. If
    much is still in flight, it waits for other ops, and more of it would only wait there.
    """
    source = state.held_back
    if source is None or op.nready or state.pressure or 2 * state.payloads >= source.window:
        return
    state.held_back = None
    if state.window_growth < (LARGEST_WINDOW - 1) * (source.window - state.window_growth):
        state.window_growth += max(1, source.window // 4)
        set_window(state)


def saw_starving(state: State, op: Op) -> None:
    """A shared worker is idle because the window keeps this source back: let the window grow, slowly and not far.

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
