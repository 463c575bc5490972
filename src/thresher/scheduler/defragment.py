# SPDX-License-Identifier: Apache-2.0
"""Room that lies in pieces: small workers on several devices keep a larger one out, though there is room for all.

Then the fewest and quickest to start of them leave one device, and start again where the larger one would not fit.
"""

from __future__ import annotations

from thresher.scheduler.pool import Pool
from thresher.scheduler.pools import send_off, worth_starting
from thresher.scheduler.state import UP, State, Worker


def gather_room(state: State) -> None:
    """Let workers move, so that one of an op that lacks it can be placed; one op at a time, and nobody else moves."""
    if any(pool.leaving or pool.up < pool.size for pool in state.pools):
        return
    for pool in state.fleet.wanting:
        if pool.need.on_device and pool.size < pool.target and worth_starting(state, pool):
            moving = who_should_move(state, pool)
            for worker in moving:
                send_off(state, worker)
            if moving:
                return


def who_should_move(state: State, pool: Pool) -> list[Worker]:
    """The workers of one device that make room when they move elsewhere; empty if that is impossible."""
    best: list[Worker] = []
    for workers in movable_by_device(state, pool).values():
        moving = those_in_the_way(state, pool, workers)
        if moving and (not best or cost_s(moving) < cost_s(best)):
            best = moving
    return best


def movable_by_device(state: State, pool: Pool) -> dict[tuple[str, tuple[int, ...]], list[Worker]]:
    """Workers of other ops that balance themselves, by the devices that they have."""
    found: dict[tuple[str, tuple[int, ...]], list[Worker]] = {}
    for worker in state.workers.values():
        movable = worker.pool is not pool and worker.pool.balances and worker.state == UP
        if movable and worker.place.devices:
            found.setdefault((worker.place.node, worker.place.devices), []).append(worker)
    return found


def those_in_the_way(state: State, pool: Pool, workers: list[Worker]) -> list[Worker]:
    """The first of these workers, the quickest to start before others, that make room for one of the pool's and find
    room themselves."""
    trial = state.fleet.nodes.copy()
    moving: list[Worker] = []
    for worker in sorted(workers, key=lambda w: (w.pool.setup_s, w.groups, w.id)):
        trial.give_back(worker.pool.need, worker.place)
        moving.append(worker)
        if trial.place(pool.need):
            return moving if all(trial.place(moved.pool.need) for moved in moving) else []
    return []


def cost_s(workers: list[Worker]) -> float:
    """Seconds of setup that moving costs; each move counts a little even where setup takes no time."""
    return sum(worker.pool.setup_s + 0.001 for worker in workers)
