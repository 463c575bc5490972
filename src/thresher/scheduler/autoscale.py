# SPDX-License-Identifier: Apache-2.0
"""From what is measured to numbers of workers: what each op costs for one unit of input, and when numbers change.

More workers are started at once. Fewer only after they would have done for a while: the time between two decisions, or
twice the time that a worker takes to start, whichever is longer; five times that if nobody waits for their room.

The first numbers are a guess: devices shared evenly. As long as an op is not measured they stay, except that an op
which takes longer to start than the others gets what these can spare: if that was too much, they have it back after
their own short start, whereas a worker that is missing costs another long one. The first numbers that rest on
measurements replace the guess at once.
"""

from __future__ import annotations

from math import log

from thresher.scheduler.balance import Demand, Shared, even, targets
from thresher.scheduler.defragment import gather_room
from thresher.scheduler.pool import Pool
from thresher.scheduler.pools import refill, send_off
from thresher.scheduler.rates import set_window
from thresher.scheduler.state import UP, Op, State, Worker

UNHURRIED = 5  # times longer that surplus workers stay if nobody waits for their room
SAME_WORK = 0.05  # work that changed by less than this is balanced as it is
SURE_TASKS = 5  # an op is measured after so many tasks,
SURE_S = 1.0  # or after tasks that took so long together
SLOW_START = 2  # an op that takes so many times longer to start than another one starts slowly
SLOW_WORK = 1e6  # work of an op that starts slowly, as a multiple of that of the others


def first_numbers(state: State) -> None:
    """Numbers of workers before anything is measured."""
    found = even_numbers(state) if state.measuring else {}
    for pool in state.pools:
        if pool.balances and pool.dedicated is not None:
            pool.target = found[pool.dedicated]


def even_numbers(state: State) -> dict[int, int]:
    """Numbers of workers that share the devices of the nodes that are up evenly."""
    return even([demand(state, pool, 1.0) for pool in state.pools if pool.dedicated is not None], state.fleet.empty)


def demand(state: State, pool: Pool, work_s: float) -> Demand:
    """What a pool asks for, given its work for one unit of input."""
    assert pool.dedicated is not None, "shared workers ask for nothing"
    fixed = 0 if pool.balances else pool.target
    return Demand(pool.dedicated, work_s, pool.need, fixed, state.spec.max_workers_per_stage)


def rebalance(state: State) -> None:
    """Look at the numbers of workers, if it is time to."""
    fleet, interval_s = state.fleet, state.spec.autoscale_interval_s
    if not state.measuring or interval_s <= 0 or state.stopping:
        return
    first = fleet.guessing and is_measured(state)
    if fleet.now_s < fleet.next_balance_s and not first:
        return
    fleet.next_balance_s = fleet.now_s + interval_s
    starved = any(pool.dedicated is not None and not pool.size for pool in fleet.wanting)
    fleet.guessing = fleet.guessing and not first
    good = better_guess(state) if fleet.guessing else good_numbers(state)
    if good is None and starved:
        good = even_numbers(state)  # its node was lost before anything was measured
    if good is None:
        return
    pools = [pool for pool in state.pools if pool.balances]
    crowded = is_crowded(pools, good)
    at_once = starved or first or fleet.guessing
    for pool in sorted(pools, key=lambda p: good[p.dedicated or 0] > p.target):  # those that shrink make room
        change_number(state, pool, good[pool.dedicated or 0], 0.0 if at_once else patience_s(state, pool, crowded))
    if fleet.wanting:
        gather_room(state)
    set_window(state)


def is_measured(state: State) -> bool:
    """Whether the work of every op with workers of its own is known, or nothing has come to it yet."""
    own = [state.ops[pool.dedicated] for pool in state.pools if pool.dedicated is not None]
    return any(op.seen_tasks for op in own) and all(
        op.seen_tasks >= SURE_TASKS or op.seen_busy_s >= SURE_S or (op.pool.up and not op.live) for op in own
    )


def better_guess(state: State) -> dict[int, int] | None:
    """Numbers that give all devices but one worker of each op to the ops that start slowly; None if none does."""
    slow = slow_starters(state)
    if not slow:
        return None
    known = state.fleet.balanced_for
    if known is not None and known[0] == slow:
        return known[1]
    own = [pool for pool in state.pools if pool.dedicated is not None]
    demands = [demand(state, pool, 1.0) for pool in own]
    found = even([d._replace(work_s=SLOW_WORK) if d.op in slow else d for d in demands], state.fleet.empty)
    state.fleet.balanced_for = (slow, found)
    return found


def slow_starters(state: State) -> set[int]:
    """Ops on devices that still start, though others are up and could have started twice by now."""
    on_devices = [p for p in state.pools if p.dedicated is not None and p.need.on_device]
    up = [pool.setup_s for pool in on_devices if pool.up]
    slow = {pool.dedicated for pool in on_devices if not pool.up and pool.dedicated is not None}
    if not up or state.fleet.now_s < max(state.spec.autoscale_interval_s, SLOW_START * max(up)):
        return set()
    return slow


def is_crowded(pools: list[Pool], good: dict[int, int]) -> bool:
    """Whether an op should have more workers than it has."""
    return any(pool.size < max(pool.target, good[pool.dedicated or 0]) for pool in pools)


def patience_s(state: State, pool: Pool, crowded: bool) -> float:
    """Time for which fewer workers must have been enough before any is stopped."""
    wait_s = max(state.spec.autoscale_interval_s, 2 * pool.setup_s)
    return wait_s if crowded else UNHURRIED * wait_s


def change_number(state: State, pool: Pool, good: int, patience: float) -> None:
    """Bring a pool towards a good number of workers: up at once, down with patience."""
    now_s = state.fleet.now_s
    if good >= pool.target:
        pool.low_since_s = -1.0
        pool.target = good
        refill(state, pool)
        send_surplus_off(state, pool)  # workers that were still starting when the number went down
        return
    if pool.low_since_s < 0:
        pool.low_since_s, pool.low_most = now_s, good
    pool.low_most = max(pool.low_most, good)
    if now_s - pool.low_since_s >= patience:
        pool.target, pool.low_since_s = pool.low_most, -1.0
        send_surplus_off(state, pool)


def send_surplus_off(state: State, pool: Pool) -> None:
    """Send off the workers that are too many: those on the emptiest devices, so that the room they leave lies together;
    of equal ones the idle, then the young.

    Those that still start do not count: the op must not be without workers until they are ready.
    """
    surplus = min(pool.size, pool.up) - pool.leaving - pool.target
    left = state.fleet.nodes.copy() if surplus > 0 else state.fleet.nodes
    mine = [w for w in state.workers.values() if w.pool is pool and w.state == UP and not w.leaving]

    def first_to_go(worker: Worker) -> tuple[int, int, int]:
        place = worker.place
        free = left.room[place.node].free_parts[place.devices[0]] if place.devices and place.node in left.room else 0
        return (-free, worker.groups + len(worker.parked) + len(worker.units), -worker.id)

    for _ in range(surplus):
        worker = min(mine, key=first_to_go)
        mine.remove(worker)
        left.give_back(pool.need, worker.place)
        send_off(state, worker)


def good_numbers(state: State) -> dict[int, int] | None:
    """The numbers of workers that are best for what is measured; None if nothing is measured yet."""
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
    found = targets(demands, Shared(shared_s, cpus), state.fleet.empty)
    state.fleet.balanced_for = (now, found)
    return found


def is_same(before: object, now: list[float]) -> bool:
    """Whether the proportions of the work hardly changed."""
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
    """Seconds of work of each op for one unit of input, which is one batch that a source emits.

    An op that is not measured yet counts as slow as the slowest: a fast op before it must not take all the devices.
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


def task_s(op: Op) -> float:
    """Time of one task, of late."""
    return op.seen_busy_s / op.seen_tasks if op.seen_tasks else max(op.average_s, 0.0)


def fan_out(op: Op) -> float:
    """Batches that a task emits, of late; 1 if nothing is known, and what it emitted so far if none has ended."""
    if op.seen_tasks:
        return op.seen_outputs / op.seen_tasks if op.emits else 1.0
    return op.seen_outputs or 1.0
