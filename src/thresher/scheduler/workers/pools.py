# SPDX-License-Identifier: Apache-2.0
"""Worker pools: start workers where there is room, drain and recycle them, and stop them when they are empty.

A draining worker gets no new tasks, but finishes what only it can do: its queue, the units it writes and its parked
generators. So no work is interrupted or repeated.

Workers are recycled by age, by private memory, and when the memory of the run is short; `dispatch` applies
`worker_max_tasks`. A worker is recycled only after it finished a task, so that a limit that is too low costs time but
never stalls the run.
"""

from __future__ import annotations

from collections import OrderedDict

from thresher.scheduler.actions import StartWorker, StopWorker
from thresher.scheduler.events import MemorySample, WorkerMemory
from thresher.scheduler.load import set_groups
from thresher.scheduler.model import OpSpec, RunSpec
from thresher.scheduler.state import STARTING, UP, OpState, State, WorkerState
from thresher.scheduler.workers.capacity import Need, Place, need_of


class Pool:
    """Workers that serve the same ops."""

    __slots__ = (
        "balances",
        "dedicated",
        "draining",
        "failed_before",
        "free",
        "inner",
        "losses",
        "low_most",
        "low_since_s",
        "need",
        "setup_failures",
        "setup_s",
        "size",
        "sources",
        "target",
        "up",
    )

    def __init__(self, ops: list[OpState], own: OpSpec | None, spec: RunSpec) -> None:
        self.dedicated = None if own is None else own.index  # the op they serve; None: the shared workers
        self.need: Need = need_of(own)  # resources of one worker
        self.balances = own is not None and own.dedicated_workers is None  # the number of workers is autoscaled
        self.target = spec.shared_workers if own is None else own.dedicated_workers or 1  # workers it should have
        self.draining = 0  # number of draining workers
        self.setup_s = 0.0  # measured setup time of a worker; 0: not measured yet
        self.low_since_s = -1.0  # time since which fewer workers would suffice; -1: they would not
        self.low_most = 0  # largest proposed target since then
        self.inner = [op for op in ops if not op.source]  # most downstream first
        self.sources = [op for op in ops if op.source]
        self.free: list[OrderedDict[int, WorkerState]] = [OrderedDict() for _ in range(spec.depth)]  # by groups held
        self.size = 0  # number of workers that are up or starting, draining ones included
        self.up = 0  # of these, workers that are ready
        self.setup_failures = 0  # consecutive setup failures
        self.failed_before = 0  # workers with this id or a later one were started after the last setup failure
        self.losses = 0  # workers lost since a task of this pool finished


def start_worker(state: State, pool: Pool, node: str = "") -> bool:
    """Start one more worker of a pool, preferably on this node; return False if there is no room."""
    place = shared_place(state, pool, node) if pool.dedicated is None else state.fleet.nodes.find(pool.need)
    if place is None:
        return False
    fleet = state.fleet
    worker = WorkerState(state.next_worker, pool, place)
    state.next_worker += 1
    state.workers[worker.id] = worker
    pool.size += 1
    fleet.nodes.allocate(pool.need, place)
    fleet.on_node.setdefault(worker.node, {})[worker.id] = worker
    if pool.dedicated is None:
        fleet.shared_on[place.node] += 1
    state.out.append(StartWorker(worker.id, pool.dedicated, place.node, place.devices))
    return True


def shared_place(state: State, pool: Pool, node: str) -> Place | None:
    """Return the place for one more shared worker: `node`, then a node below its quota, then any for the first."""
    fleet = state.fleet
    if node in fleet.quota and fleet.shared_on[node] < fleet.quota[node]:
        return Place(node)
    if sum(fleet.quota.values()) > pool.size or not pool.size:
        for name, quota in fleet.quota.items():
            if fleet.shared_on[name] < quota:
                return Place(name)
    return None if pool.size else fleet.nodes.find(pool.need)


def remove_worker(state: State, worker: WorkerState) -> None:
    """Remove a worker that is gone. Everything it held must have been recovered."""
    fleet, pool = state.fleet, worker.pool
    del state.workers[worker.id]
    del fleet.on_node[worker.node][worker.id]
    fleet.parked_draining.pop(worker.id, None)
    fleet.nodes.free_room(pool.need, worker.place)
    if pool.dedicated is None and worker.place.node in fleet.shared_on:
        fleet.shared_on[worker.place.node] -= 1
    pool.size -= 1
    pool.up -= worker.state != STARTING
    pool.draining -= worker.draining
    for free in pool.free:
        free.pop(worker.id, None)


def refill(state: State, pool: Pool, node: str = "") -> None:
    """Start the workers that a pool lacks: always the first one, the others only if there will be work for them."""
    if state.stopping or state.over:
        return
    state.fleet.wanting.pop(pool, None)
    while pool.size < pool.target:
        short = state.fleet.critical and pool.size
        if short or not worth_starting(state, pool) or not start_worker(state, pool, node):
            state.fleet.wanting[pool] = None
            return


def refill_wanting(state: State) -> None:
    """Refill the pools that lack workers: those without any worker first, then the hardest to place."""
    for pool in sorted(state.fleet.wanting, key=lambda p: (p.size > 0, not p.need.on_device)):
        refill(state, pool)


def replace_worker(state: State, worker: WorkerState) -> None:
    """Remove a worker that is gone; use the room for pools that wait for it, then start its replacement."""
    remove_worker(state, worker)
    if state.fleet.wanting:
        refill_wanting(state)
    refill(state, worker.pool, worker.place.node)


def worth_starting(state: State, pool: Pool) -> bool:
    """Return True if there will still be work when one more worker is ready."""
    if not pool.size or state.listing:
        return True
    if pool.dedicated is None:
        waiting = len(state.tasks) > pool.size
        return waiting or any(op.live for op in state.ops if op.emits)
    op = state.ops[pool.dedicated]
    if op.average_s < 0:
        return remaining_tasks(op) > pool.size
    return remaining_tasks(op) * max(op.average_s, 0.001) > pool.setup_s * pool.size


def remaining_tasks(op: OpState) -> float:
    """Return the tasks that an op has or will have, estimated from the fan-out upstream; inf if that is unknown."""
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


def drain_worker(state: State, worker: WorkerState, reason: str) -> None:
    """Drain a worker: it gets no new tasks and is stopped when it is empty, for this reason."""
    if worker.draining or worker.state != UP:
        return
    worker.draining, worker.drain_reason = True, reason
    worker.pool.draining += 1
    for free in worker.pool.free:
        free.pop(worker.id, None)
    state.fleet.draining.append(worker)
    if worker.parked:
        state.fleet.parked_draining[worker.id] = worker


def cancel_draining(state: State, worker: WorkerState) -> None:
    """Cancel the draining of a worker."""
    worker.draining = False
    worker.pool.draining -= 1
    state.fleet.parked_draining.pop(worker.id, None)
    set_groups(worker, worker.groups)


def holds_nothing(worker: WorkerState) -> bool:
    """Return True if a worker can be stopped: it has no task, commit, parked generator or unfinished unit."""
    return not (worker.queue or worker.parked or worker.units)


def stop_drained(state: State) -> None:
    """Stop the draining workers that are empty, and start their replacements."""
    draining = state.fleet.draining
    state.fleet.draining = []
    for worker in draining:
        if worker.draining and worker.state == UP and worker.id in state.workers and holds_nothing(worker):
            state.out.append(StopWorker(worker.id, worker.drain_reason))
            replace_worker(state, worker)


def stop_idle(state: State) -> int:
    """Stop every empty worker except one of each pool, because memory is short. Return how many were stopped."""
    stopped = 0
    for pool in state.pools:
        for worker in reversed(list(pool.free[0].values())):
            if pool.size - pool.draining <= 1:
                break
            if holds_nothing(worker):
                state.out.append(StopWorker(worker.id, "short"))
                remove_worker(state, worker)
                state.fleet.wanting[pool] = None
                stopped += 1
    return stopped


# -- recycling ---------------------------------------------------------------------------------------------------------


def recycle_old(state: State) -> None:
    """Drain workers that have reached their maximum age, one at a time and not too often."""
    fleet, spec = state.fleet, state.spec
    if not spec.worker_max_lifetime_s:
        return
    while fleet.by_age:
        worker = fleet.by_age[0]
        if worker.draining or state.workers.get(worker.id) is not worker:
            fleet.by_age.popleft()
            continue
        due = worker.born_s + spec.worker_max_lifetime_s <= fleet.now_s
        if not due or fleet.now_s < fleet.next_restart_s or worker.pool.draining > worker.pool.size // 2:
            return
        fleet.by_age.popleft()
        if worker.done:
            fleet.next_restart_s = fleet.now_s + spec.worker_restart_interval_s
            drain_worker(state, worker, "age")
        else:
            worker.born_s = fleet.now_s
            fleet.by_age.append(worker)


def on_worker_memory(state: State, event: WorkerMemory) -> None:
    """Store the memory of a worker, and drain it if it is above its limit."""
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    worker.private_bytes = event.private_bytes
    if event.limit_bytes and event.private_bytes > event.limit_bytes and worker.done:
        drain_worker(state, worker, "memory")


def on_memory_sample(state: State, event: MemorySample) -> None:
    """React to the memory of the run: first hold new input back, then stop idle workers, then recycle the largest."""
    spec, fleet = state.spec, state.fleet
    share = event.used_bytes / event.limit_bytes if event.limit_bytes else 0.0
    if share >= spec.memory_high:
        state.pressure = True
    elif share < spec.memory_low:
        state.pressure = False
        if fleet.critical:
            fleet.critical = False
            refill_wanting(state)
    if share >= spec.memory_critical:
        fleet.critical = True
        if not stop_idle(state):
            recycle_largest(state)


def recycle_largest(state: State) -> None:
    """Drain the worker with the most private memory; the next one only after this one is gone."""
    fleet = state.fleet
    if (
        fleet.recycled is not None
        and state.workers.get(fleet.recycled.id) is fleet.recycled
        and fleet.recycled.draining
    ):
        return
    largest: WorkerState | None = None
    for worker in state.workers.values():
        fit = worker.state == UP and worker.done and worker.private_bytes and not worker.draining
        if fit and (largest is None or worker.private_bytes > largest.private_bytes):
            largest = worker
    if largest is not None:
        fleet.recycled = largest
        drain_worker(state, largest, "memory")
