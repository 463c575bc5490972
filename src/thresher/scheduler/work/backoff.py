# SPDX-License-Identifier: Apache-2.0
"""Backoff: the delay between a failure and the retry.

Time comes from Ticks; without them there is no delay.
"""

from __future__ import annotations

from heapq import heappop, heappush

from thresher.scheduler.state import DELAYED, State, Task
from thresher.scheduler.work.dispatch import enqueue

MAX_DELAY_S = 30.0  # longest delay before a retry


def delay_of(state: State, failures: int) -> float:
    """Return the delay after the given number of failures: doubled with each of them."""
    if not failures or not state.fleet.now_s:
        return 0.0
    return min(MAX_DELAY_S, state.spec.backoff_s * 2.0 ** (failures - 1))


def enqueue_after(state: State, task: Task, failures: int) -> None:
    """Queue a task after the delay for the given number of failures."""
    delay_s = delay_of(state, failures)
    if not delay_s:
        enqueue(state, task)
        return
    task.state = DELAYED
    heappush(state.delayed, (state.fleet.now_s + delay_s, task.id, task))


def enqueue_due(state: State) -> None:
    """Queue the tasks whose delay has passed."""
    while state.delayed and state.delayed[0][0] <= state.fleet.now_s:
        task = heappop(state.delayed)[2]
        if task.state == DELAYED:  # its unit may have restarted in the meantime
            enqueue(state, task)
