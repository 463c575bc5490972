# SPDX-License-Identifier: Apache-2.0
"""Workers come and go: started where there is room, told to leave, stopped when they hold nothing.

A worker that leaves gets no new tasks, but goes on with what only it can do: its queue, the units it writes, its parked
generators. So nothing that works is stopped, and nothing is done twice.
"""

from __future__ import annotations

from thresher.scheduler.actions import StartWorker, StopWorker
from thresher.scheduler.capacity import Place
from thresher.scheduler.holding import set_groups
from thresher.scheduler.pool import Pool
from thresher.scheduler.state import STARTING, UP, Op, State, Worker


def start_worker(state: State, pool: Pool, node: str = "") -> bool:
    """Ask for one more worker of a pool, on this node if it may be; False if there is no room."""
    place = shared_place(state, pool, node) if pool.dedicated is None else state.fleet.nodes.find(pool.need)
    if place is None:
        return False
    fleet = state.fleet
    worker = Worker(state.next_worker, pool, place)
    state.next_worker += 1
    state.workers[worker.id] = worker
    pool.size += 1
    fleet.nodes.take(pool.need, place)
    fleet.on_node.setdefault(worker.node, {})[worker.id] = worker
    if pool.dedicated is None:
        fleet.shared_on[place.node] += 1
    state.out.append(StartWorker(worker.id, pool.dedicated, place.node, place.devices))
    return True


def shared_place(state: State, pool: Pool, node: str) -> Place | None:
    """The node for one more shared worker: the one that lost one, then one that has too few, then any for the first."""
    fleet = state.fleet
    if node in fleet.quota and fleet.shared_on[node] < fleet.quota[node]:
        return Place(node)
    if sum(fleet.quota.values()) > pool.size or not pool.size:
        for name, quota in fleet.quota.items():
            if fleet.shared_on[name] < quota:
                return Place(name)
    return None if pool.size else fleet.nodes.find(pool.need)


def remove_worker(state: State, worker: Worker) -> None:
    """Forget a worker that is gone, after everything it held was dealt with."""
    fleet, pool = state.fleet, worker.pool
    del state.workers[worker.id]
    del fleet.on_node[worker.node][worker.id]
    fleet.parked_leaving.pop(worker.id, None)
    fleet.nodes.give_back(pool.need, worker.place)
    if pool.dedicated is None and worker.place.node in fleet.shared_on:
        fleet.shared_on[worker.place.node] -= 1
    pool.size -= 1
    pool.up -= worker.state != STARTING
    pool.leaving -= worker.leaving
    for free in pool.free:
        free.pop(worker.id, None)


def refill(state: State, pool: Pool, node: str = "") -> None:
    """Start the workers that a pool lacks. The first one always, the others if they will find something to do."""
    if state.stopping or state.over:
        return
    state.fleet.wanting.pop(pool, None)
    while pool.size < pool.target:
        short = state.fleet.critical and pool.size
        if short or not worth_starting(state, pool) or not start_worker(state, pool, node):
            state.fleet.wanting[pool] = None
            return


def refill_wanting(state: State) -> None:
    """Try again to start what had no room, the hardest to place first. Pools without any worker come before others."""
    for pool in sorted(state.fleet.wanting, key=lambda p: (p.size > 0, not p.need.on_device)):
        refill(state, pool)


def replace_worker(state: State, worker: Worker) -> None:
    """A worker is gone: others may have the room, then another one takes its place."""
    remove_worker(state, worker)
    if state.fleet.wanting:
        refill_wanting(state)
    refill(state, worker.pool, worker.place.node)


def worth_starting(state: State, pool: Pool) -> bool:
    """Whether there will still be work when one more worker is ready."""
    if not pool.size or state.listing:
        return True
    if pool.dedicated is None:
        waiting = len(state.tasks) > pool.size
        return waiting or any(op.live for op in state.ops if op.emits)
    op = state.ops[pool.dedicated]
    if op.average_s < 0:
        return remaining_tasks(op) > pool.size
    return remaining_tasks(op) * max(op.average_s, 0.001) > pool.setup_s * pool.size


def remaining_tasks(op: Op) -> float:
    """Tasks that an op has or will have, as far as the fan-out before it is known."""
    total = float(op.live)
    for before in op.upstream:
        if not before.live:
            continue
        expected = float(before.live)
        at = before
        while at is not op:
            if not at.seen_tasks:
                return float("inf")
            expected *= at.seen_outputs / at.seen_tasks
            assert at.next is not None, f"op {at.index} is upstream of {op.index}"
            at = at.next
        total += expected
    return total


def send_off(state: State, worker: Worker) -> None:
    """A worker gets no new tasks from now on. It is stopped when it holds nothing."""
    if worker.leaving or worker.state != UP:
        return
    worker.leaving = True
    worker.pool.leaving += 1
    for free in worker.pool.free:
        free.pop(worker.id, None)
    state.fleet.leaving.append(worker)
    if worker.parked:
        state.fleet.parked_leaving[worker.id] = worker


def call_back(state: State, worker: Worker) -> None:
    """A worker that was to leave is needed after all."""
    worker.leaving = False
    worker.pool.leaving -= 1
    state.fleet.parked_leaving.pop(worker.id, None)
    set_groups(worker, worker.groups)


def holds_nothing(worker: Worker) -> bool:
    """Whether a worker can be stopped: no task, no commit, no parked generator, no unit half written."""
    return not (worker.queue or worker.parked or worker.units)


def stop_leaving(state: State) -> None:
    """Stop the workers that leave and hold nothing any more, and start others in their place."""
    leaving = state.fleet.leaving
    state.fleet.leaving = []
    for worker in leaving:
        if worker.leaving and worker.state == UP and worker.id in state.workers and holds_nothing(worker):
            state.out.append(StopWorker(worker.id))
            replace_worker(state, worker)


def stop_idle(state: State) -> int:
    """Memory is short: stop every worker that holds nothing, but one of each pool. Tells how many."""
    stopped = 0
    for pool in state.pools:
        for worker in reversed(list(pool.free[0].values())):
            if pool.size - pool.leaving <= 1:
                break
            if holds_nothing(worker):
                state.out.append(StopWorker(worker.id))
                remove_worker(state, worker)
                state.fleet.wanting[pool] = None
                stopped += 1
    return stopped
