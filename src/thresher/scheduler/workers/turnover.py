# SPDX-License-Identifier: Apache-2.0
"""Turnover of workers and nodes: workers that become ready, fail to start or are lost, nodes that join or are lost."""

from __future__ import annotations

from thresher.scheduler.events import NodeJoined, NodeLost, WorkerLost, WorkerReady, WorkerSetupFailed
from thresher.scheduler.load import detach, set_groups
from thresher.scheduler.model import IllegalEvent, NodeSpec, RunSpec
from thresher.scheduler.recovery import blame_unit, fail, remove_running, remove_void_task, restart, retry_task
from thresher.scheduler.state import LOST, STARTING, UP, VOID, OpState, State, TaskState, UnitState, WorkerState, chain
from thresher.scheduler.workers.capacity import quotas
from thresher.scheduler.workers.pools import refill, refill_wanting, remove_worker, replace_worker

IDLE_LOSSES = 10  # lost workers of a pool, beyond its size, without a finished task before the run fails


def live_worker(state: State, worker_id: int) -> WorkerState | None:
    """Return the worker; None if it is lost."""
    worker = state.workers.get(worker_id)
    if worker is None and not 0 < worker_id < state.next_worker:
        raise IllegalEvent(f"worker {worker_id} was never started; known are 1 to {state.next_worker - 1}")
    return worker


def on_worker_ready(state: State, event: WorkerReady) -> None:
    worker = live_worker(state, event.worker)
    if worker is None:
        return
    if worker.state != STARTING:
        raise IllegalEvent(f"worker {worker.id} is ready for the second time")
    fleet, pool = state.fleet, worker.pool
    worker.state = UP
    pool.up += 1
    worker.born_s = fleet.now_s
    fleet.by_age.append(worker)
    if event.node and event.node != worker.node:
        del fleet.on_node[worker.node][worker.id]
        worker.node = event.node
        fleet.on_node.setdefault(worker.node, {})[worker.id] = worker
    if event.setup_s:
        pool.setup_s = (pool.setup_s + event.setup_s) / 2 if pool.setup_s else event.setup_s
    pool.setup_failures = 0
    set_groups(worker, 0)


def on_worker_setup_failed(state: State, event: WorkerSetupFailed) -> None:
    worker = live_worker(state, event.worker)
    if worker is not None:
        setup_failed(state, worker, event.message)


def on_worker_lost(state: State, event: WorkerLost) -> None:
    worker = live_worker(state, event.worker)
    if worker is not None:
        worker_lost(state, worker, event.reason, blamed=event.blamed)


def setup_failed(state: State, worker: WorkerState, message: str) -> None:
    """Start another worker, or fail the run after too many attempts. Workers that started together count as one."""
    pool = worker.pool
    if worker.id >= pool.failed_before:
        pool.setup_failures += 1
        pool.failed_before = state.next_worker
    if pool.setup_failures >= state.spec.setup_attempts:
        op = None if pool.dedicated is None else state.ops[pool.dedicated]
        workers = "shared workers" if op is None else f"workers of op {op.spec.name!r}"
        remove_worker(state, worker)
        fail(state, f"{workers} could not be set up, {pool.setup_failures} times in a row: {message}", op=op)
    else:
        replace_worker(state, worker)


def worker_lost(
    state: State, worker: WorkerState, reason: str, *, with_node: bool = False, blamed: bool = True
) -> None:
    """Recover everything a lost worker held. Blame only what it was working on, and nothing if its node was lost or
    the cause is known and will be isolated."""
    if worker.state == STARTING:
        if with_node:
            replace_worker(state, worker)
        else:
            setup_failed(state, worker, reason)
        return
    worker.state = LOST
    pool = worker.pool
    pool.losses += blamed and not with_node
    if pool.losses > IDLE_LOSSES + pool.size:
        fail(state, f"{pool.losses} workers were lost and none of them finished a task; the last one: {reason}")
    under_way = set() if with_node else items_under_way(worker)
    restarts: dict[UnitState, OpState | None] = {}
    for item in list(worker.queue):
        if isinstance(item, UnitState):
            restarts.setdefault(item, None)
            if item in under_way and blamed:
                restarts[item] = chain(item.entry)[-1]
        else:
            task_lost(state, item, restarts, under_way=item in under_way, reason=reason if blamed else None)
    for task in worker.parked.values():
        restarts.setdefault(task.unit, None)
    for unit in worker.units.values():
        restarts.setdefault(unit, None)
    for unit, op in sorted(restarts.items(), key=lambda item: item[0].is_stream):  # streams last: one rerun serves all
        if op is not None:
            blame_unit(state, unit, op, reason)
        restart(state, unit, blamed=op is not None)
    replace_worker(state, worker)


def items_under_way(worker: WorkerState) -> set[TaskState | UnitState]:
    """Return what a worker is working on: the first item of its queue and the other tasks of the same call."""
    items = list(worker.queue)
    if not items:
        return set()
    first = items[0]
    if isinstance(first, UnitState):
        return {first}
    call = items[: first.op.spec.batch_size]
    return {item for item in call if isinstance(item, TaskState) and item.group is first.group}


def task_lost(
    state: State, task: TaskState, restarts: dict[UnitState, OpState | None], *, under_way: bool, reason: str | None
) -> None:
    """Retry a task whose worker was lost, or add its unit to `restarts`. Blame the task if it was under way and there
    is a reason."""
    worker = task.worker
    assert worker is not None, task.describe()
    detach(state, worker, task)
    blamed = under_way and reason is not None
    if task.state == VOID:
        remove_void_task(state, task)
    elif task.emitted or task.op.ordered or (task.op.sink and under_way):
        remove_running(state, task)
        restarts.setdefault(task.unit, None)
        if blamed:
            restarts[task.unit] = task.op
    else:
        retry_task(state, task, reason or "", blamed)


# -- nodes -------------------------------------------------------------------------------------------------------------


def on_node_joined(state: State, event: NodeJoined) -> None:
    """Add a node; start its shared workers, and those that had no room elsewhere."""
    fleet = state.fleet
    node = event.spec or fleet.known.get(event.node)
    if event.node in fleet.empty.room or (node is None and not state.spec.nodes):
        return  # it was there from the beginning, or the run names no nodes
    if node is None or node.node != event.node:
        raise IllegalEvent(f"node {event.node!r} joined; it is not in RunSpec.nodes, so the event must carry its spec")
    fleet.known = {**fleet.known, node.node: node}
    fleet.is_wide = True
    fleet.nodes.join(node)
    fleet.empty.join(node)
    fleet.quota[node.node] = shared_share(state.spec, node)
    fleet.shared_on[node.node] = 0
    fleet.balanced_for = None
    fleet.next_balance_s = fleet.now_s
    set_shared_target(state)
    refill_wanting(state)
    for pool in state.pools:
        if pool.dedicated is None:
            refill(state, pool)


def shared_share(spec: RunSpec, node: NodeSpec) -> int:
    """Return the shared workers of a node that joins: as many per CPU as at the start of the run."""
    if node in spec.nodes:
        return quotas(spec.shared_workers, spec.nodes)[node.node]
    cpus = sum(other.cpus for other in spec.nodes)
    return int(node.cpus * spec.shared_workers / cpus + 0.5) if cpus > 0 else 0


def on_node_lost(state: State, event: NodeLost) -> None:
    """Remove a node; start its dedicated workers elsewhere if there is room. Shared ones wait for it to come back."""
    fleet = state.fleet
    if event.node in fleet.empty.room and state.spec.nodes:
        fleet.nodes.lose(event.node)
        fleet.empty.lose(event.node)
        del fleet.quota[event.node]
        del fleet.shared_on[event.node]
        fleet.balanced_for = None
        fleet.next_balance_s = fleet.now_s
        set_shared_target(state)
    for worker in list(fleet.on_node.get(event.node, {}).values()):
        worker_lost(state, worker, event.reason or f"node {event.node} was lost", with_node=True)


def set_shared_target(state: State) -> None:
    """Set the number of shared workers to the sum over the nodes that are up, at least one."""
    for pool in state.pools:
        if pool.dedicated is None:
            pool.target = max(1, sum(state.fleet.quota.values()))
