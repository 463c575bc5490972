# SPDX-License-Identifier: Apache-2.0
"""Autoscaling: derive the number of workers of each op from measured work, and decide when to change it.

More workers are started at once. Workers are removed only after a smaller number would have sufficed for a while: the
time between two decisions or twice the setup time of a worker, whichever is longer; five times that if no other op
waits for the room.

The initial targets are a guess: devices are shared evenly. They stay until every op is measured, except that an op
with a longer setup than the others gets the devices that these can spare: if that was too much, the others get them
back after a short setup, whereas a missing worker costs another long setup. The first measured targets replace the
guess at once.

Free room can be fragmented: small workers on several devices keep a larger one out although there is room for all.
`defragment` then drains the fewest workers with the quickest setup of one device; they start again on other devices.
"""

from __future__ import annotations

from math import log

from thresher.scheduler.actions import Rescale
from thresher.scheduler.load import set_window
from thresher.scheduler.state import UP, OpState, State, WorkerState
from thresher.scheduler.workers.placement import Demand, Shared, best_counts, even_counts
from thresher.scheduler.workers.pools import Pool, drain_worker, refill, worth_starting

UNHURRIED_FACTOR = 5  # factor for the delay before surplus workers are removed if no other op waits for their room
SAME_WORK = 0.05  # a smaller relative change of the work does not trigger rebalancing
MEASURED_TASKS = 5  # an op counts as measured after this many tasks,
MEASURED_S = 1.0  # or after tasks with this total run time
SLOW_SETUP = 2  # an op has a slow setup if it takes this many times longer than another one
SLOW_WORK = 1e6  # work of an op with a slow setup, as a multiple of that of the others


def set_initial_targets(state: State) -> None:
    """Set the targets before anything is measured."""
    found = even_targets(state) if state.measuring else {}
    for pool in state.pools:
        if pool.balances and pool.dedicated is not None:
            pool.target = found[pool.dedicated]


def even_targets(state: State) -> dict[int, int]:
    """Return targets that share the devices of the nodes that are up evenly."""
    return even_counts(
        [demand(state, pool, 1.0) for pool in state.pools if pool.dedicated is not None], state.fleet.empty
    )


def demand(state: State, pool: Pool, work_s: float) -> Demand:
    """Return the demand of a pool, given its work per unit of input."""
    assert pool.dedicated is not None, "shared workers have no demand"
    fixed = 0 if pool.balances else pool.target
    return Demand(pool.dedicated, work_s, pool.need, fixed, state.spec.max_workers_per_stage)


def rebalance(state: State) -> None:
    """Adjust the targets if the next decision is due."""
    fleet, interval_s = state.fleet, state.spec.autoscale_interval_s
    if not state.measuring or interval_s <= 0 or state.stopping:
        return
    first = fleet.guessing and is_measured(state)
    if fleet.now_s < fleet.next_balance_s and not first:
        return
    fleet.next_balance_s = fleet.now_s + interval_s
    starved = any(pool.dedicated is not None and not pool.size for pool in fleet.wanting)
    fleet.guessing = fleet.guessing and not first
    good = slow_setup_targets(state) if fleet.guessing else measured_targets(state)
    if good is None and starved:
        good = even_targets(state)  # the pool's node was lost before anything was measured
    if good is None:
        return
    pools = [pool for pool in state.pools if pool.balances]
    crowded = any_pool_lacks_workers(pools, good)
    at_once = starved or first or fleet.guessing
    for pool in sorted(pools, key=lambda p: good[p.dedicated or 0] > p.target):  # shrink first to make room
        move_target(state, pool, good[pool.dedicated or 0], 0.0 if at_once else shrink_delay_s(state, pool, crowded))
    if fleet.wanting:
        defragment(state)
    set_window(state)


def is_measured(state: State) -> bool:
    """Return True if every op with dedicated workers is measured or has received no task yet."""
    own = [state.ops[pool.dedicated] for pool in state.pools if pool.dedicated is not None]
    return any(op.seen_tasks for op in own) and all(
        op.seen_tasks >= MEASURED_TASKS or op.seen_busy_s >= MEASURED_S or (op.pool.up and not op.live) for op in own
    )


def slow_setup_targets(state: State) -> dict[int, int] | None:
    """Return targets that favour ops with a slow setup, with one worker for each other op; None if no setup is slow."""
    slow = ops_with_slow_setup(state)
    if not slow:
        return None
    known = state.fleet.balanced_for
    if known is not None and known[0] == slow:
        return known[1]
    own = [pool for pool in state.pools if pool.dedicated is not None]
    demands = [demand(state, pool, 1.0) for pool in own]
    found = even_counts([d._replace(work_s=SLOW_WORK) if d.op in slow else d for d in demands], state.fleet.empty)
    state.fleet.balanced_for = (slow, found)
    return found


def ops_with_slow_setup(state: State) -> set[int]:
    """Return the ops on devices without a ready worker, once others are up and could have started twice."""
    on_devices = [p for p in state.pools if p.dedicated is not None and p.need.on_device]
    up = [pool.setup_s for pool in on_devices if pool.up]
    slow = {pool.dedicated for pool in on_devices if not pool.up and pool.dedicated is not None}
    if not up or state.fleet.now_s < max(state.spec.autoscale_interval_s, SLOW_SETUP * max(up)):
        return set()
    return slow


def any_pool_lacks_workers(pools: list[Pool], good: dict[int, int]) -> bool:
    """Return True if an op should have more workers than it has."""
    return any(pool.size < max(pool.target, good[pool.dedicated or 0]) for pool in pools)


def shrink_delay_s(state: State, pool: Pool, crowded: bool) -> float:
    """Return the time for which fewer workers must have sufficed before any is removed."""
    wait_s = max(state.spec.autoscale_interval_s, 2 * pool.setup_s)
    return wait_s if crowded else UNHURRIED_FACTOR * wait_s


def move_target(state: State, pool: Pool, good: int, patience: float) -> None:
    """Move the target of a pool towards `good`: up at once, down after a delay."""
    now_s = state.fleet.now_s
    if good >= pool.target:
        pool.low_since_s = -1.0
        set_target(state, pool, good)
        refill(state, pool)
        drain_surplus(state, pool)  # workers that were still starting when the target went down
        return
    if pool.low_since_s < 0:
        pool.low_since_s, pool.low_most = now_s, good
    pool.low_most = max(pool.low_most, good)
    if now_s - pool.low_since_s >= patience:
        pool.low_since_s = -1.0
        set_target(state, pool, pool.low_most)
        drain_surplus(state, pool)


def set_target(state: State, pool: Pool, workers: int) -> None:
    """Set the target of a pool, and tell observers if it is another one."""
    if workers != pool.target and pool.dedicated is not None:
        state.out.append(Rescale(pool.dedicated, workers, pool.target))
    pool.target = workers


def drain_surplus(state: State, pool: Pool) -> None:
    """Drain the surplus workers: those on the emptiest devices first, so that free room is contiguous; then the idle,
    then the young ones.

    Starting workers do not count: the op must not be without workers until they are ready.
    """
    surplus = min(pool.size, pool.up) - pool.draining - pool.target
    left = state.fleet.nodes.copy() if surplus > 0 else state.fleet.nodes
    mine = [w for w in state.workers.values() if w.pool is pool and w.state == UP and not w.draining]

    def drain_order(worker: WorkerState) -> tuple[int, int, int]:
        place = worker.place
        free = left.room[place.node].free_parts[place.devices[0]] if place.devices and place.node in left.room else 0
        return (-free, worker.groups + len(worker.parked) + len(worker.units), -worker.id)

    for _ in range(surplus):
        worker = min(mine, key=drain_order)
        mine.remove(worker)
        left.free_room(pool.need, worker.place)
        drain_worker(state, worker, "surplus")


def measured_targets(state: State) -> dict[int, int] | None:
    """Return the best targets for the measured work; None if nothing is measured yet."""
    work = work_per_input(state)
    if work is None:
        return None
    shared_s = sum(work[op.index] * max(op.spec.cpus, 1.0) for op in state.ops if op.pool.dedicated is None)
    demands = [demand(state, p, work[p.dedicated]) for p in state.pools if p.dedicated is not None]
    known = state.fleet.balanced_for
    now = [shared_s, *(d.work_s for d in demands)]
    if known is not None and is_same(known[0], now):
        return known[1]
    cpus = sum(room.cpus for room in state.fleet.empty.room.values())
    found = best_counts(demands, Shared(shared_s, cpus), state.fleet.empty)
    state.fleet.balanced_for = (now, found)
    return found


def is_same(before: object, now: list[float]) -> bool:
    """Return True if the proportions of the work hardly changed."""
    if not isinstance(before, list) or not sum(before) or not sum(now):
        return False
    for old, new in zip(before, now, strict=True):
        old, new = old / sum(before), new / sum(now)
        if min(old, new) > 0.001 and abs(log(new / old)) > SAME_WORK:
            return False
        if min(old, new) <= 0.001 < max(old, new):
            return False
    return True


def work_per_input(state: State) -> dict[int, float] | None:
    """Return the seconds of work of each op per unit of input, which is one batch that a source emits.

    An op that is not measured counts as slow as the slowest: a fast op before it must not take all the devices.
    """
    own = [op for op in state.ops if op.pool.dedicated is not None]
    guess_s = max((task_s(op) for op in own if op.seen_tasks), default=-1.0)
    if guess_s < 0:
        return None
    visits = dict.fromkeys(range(len(state.ops)), 0.0)  # tasks of each op for all that the sources will emit
    work: dict[int, float] = {}
    entered = 0.0
    for op in state.ops:
        if op.source:
            visits[op.index] = float(op.live or bool(op.seen_tasks or op.seen_outputs))
        if not op.seen_tasks and not op.seen_outputs:
            work[op.index] = visits[op.index] * guess_s if op.pool.dedicated is not None else 0.0
        elif op.source and op.emits and op.seen_outputs:
            work[op.index] = visits[op.index] * fan_out(op) * op.seen_busy_s / op.seen_outputs
        else:
            work[op.index] = visits[op.index] * task_s(op)
        if op.next is not None:
            visits[op.next.index] += visits[op.index] * fan_out(op)
        if op.source:
            entered += visits[op.index] * fan_out(op)
    return {index: seconds / entered if entered else seconds for index, seconds in work.items()}


def task_s(op: OpState) -> float:
    """Return the recent time of one task."""
    return op.seen_busy_s / op.seen_tasks if op.seen_tasks else max(op.average_s, 0.0)


def fan_out(op: OpState) -> float:
    """Return the recent number of batches per task; if no task has ended, the batches so far, at least 1."""
    if op.seen_tasks:
        return op.seen_outputs / op.seen_tasks if op.emits else 1.0
    return op.seen_outputs or 1.0


def defragment(state: State) -> None:
    """Drain workers so that one worker of an op that lacks workers can be placed; for one op at a time."""
    if any(pool.draining or pool.up < pool.size for pool in state.pools):
        return
    for pool in state.fleet.wanting:
        if pool.need.on_device and pool.size < pool.target and worth_starting(state, pool):
            moving = workers_to_move(state, pool)
            for worker in moving:
                drain_worker(state, worker, "moved")
            if moving:
                return


def workers_to_move(state: State, pool: Pool) -> list[WorkerState]:
    """Return the workers of one device that make room when they move elsewhere; empty if that is impossible."""
    best: list[WorkerState] = []
    for workers in movable_by_device(state, pool).values():
        moving = blocking_workers(state, pool, workers)
        if moving and (not best or cost_s(moving) < cost_s(best)):
            best = moving
    return best


def movable_by_device(state: State, pool: Pool) -> dict[tuple[str, tuple[int, ...]], list[WorkerState]]:
    """Return the workers of other autoscaled ops, by the devices that they use."""
    found: dict[tuple[str, tuple[int, ...]], list[WorkerState]] = {}
    for worker in state.workers.values():
        movable = worker.pool is not pool and worker.pool.balances and worker.state == UP
        if movable and worker.place.devices:
            found.setdefault((worker.place.node, worker.place.devices), []).append(worker)
    return found


def blocking_workers(state: State, pool: Pool, workers: list[WorkerState]) -> list[WorkerState]:
    """Return the first of these workers, quickest setup first, that make room for a worker of the pool and can be
    placed elsewhere; empty if there are none."""
    trial = state.fleet.nodes.copy()
    moving: list[WorkerState] = []
    for worker in sorted(workers, key=lambda w: (w.pool.setup_s, w.groups, w.id)):
        trial.free_room(worker.pool.need, worker.place)
        moving.append(worker)
        if trial.place(pool.need):
            return moving if all(trial.place(moved.pool.need) for moved in moving) else []
    return []


def cost_s(workers: list[WorkerState]) -> float:
    """Return the setup time that moving costs; each move counts a little even if its setup takes no time."""
    return sum(worker.pool.setup_s + 0.001 for worker in workers)
