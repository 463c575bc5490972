# SPDX-License-Identifier: Apache-2.0
"""Time between a failure and the next try: what failed because of something that passes should meet it passed.

Time comes with Ticks. A cluster that never tells it has no waiting.
"""

from __future__ import annotations

from heapq import heappop, heappush

from thresher.scheduler.dispatch import enqueue
from thresher.scheduler.state import DELAYED, State, Task

MOST_S = 30.0  # longest wait before another try


def delay_of(state: State, failures: int) -> float:
    """Seconds to wait after so many failures: doubled with each of them."""
    if not failures or not state.fleet.now_s:
        return 0.0
    return min(MOST_S, state.spec.backoff_s * 2.0 ** (failures - 1))


def enqueue_after(state: State, task: Task, failures: int) -> None:
    """Queue a task once the time to wait after so many failures has passed."""
    delay_s = delay_of(state, failures)
    if not delay_s:
        enqueue(state, task)
        return
    task.state = DELAYED
    heappush(state.delayed, (state.fleet.now_s + delay_s, task.id, task))


def enqueue_due(state: State) -> None:
    """Queue what has waited long enough."""
    while state.delayed and state.delayed[0][0] <= state.fleet.now_s:
        task = heappop(state.delayed)[2]
        if task.state == DELAYED:  # its unit may have started again meanwhile
            enqueue(state, task)
