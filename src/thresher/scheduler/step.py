# SPDX-License-Identifier: Apache-2.0
"""The scheduler: one event in, a list of actions out.

    scheduler = Scheduler(spec)
    actions = scheduler.start()
    actions = scheduler.step(event)     # for every event, in order

No clock, no randomness, no I/O: the same spec and events always give the same actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thresher.scheduler.actions import AnyAction, Finish, Release, Requeue, StopWorker
from thresher.scheduler.dispatch import dispatch
from thresher.scheduler.events import (
    AnyEvent,
    CommitFailed,
    Emitted,
    MemorySample,
    NodeJoined,
    NodeLost,
    PayloadLost,
    StopRequested,
    TaskDone,
    TaskEmitted,
    TaskFailed,
    TaskParked,
    Tick,
    UnitCommitted,
    UnitsListed,
    WorkerLost,
    WorkerMemory,
    WorkerReady,
    WorkerSetupFailed,
)
from thresher.scheduler.load import (
    detach,
    finish_task,
    limit_bytes,
    record_flow,
    record_task_time,
    remove_from_queue,
    return_reserve,
    set_credit,
    set_window,
)
from thresher.scheduler.model import IllegalEvent, RunSpec
from thresher.scheduler.recovery import (
    blame_unit,
    fail,
    remove_running,
    remove_void_task,
    requeue_behind_parked,
    restart,
    retry_task,
    unblock,
    void,
)
from thresher.scheduler.state import DONE, OPEN, PARKED, RUNNING, VOID, State, TaskState, chain
from thresher.scheduler.units import add_unit, commit_if_complete, emit, enqueue_due, finish_unit, unlink
from thresher.scheduler.workers.autoscale import rebalance, set_initial_targets
from thresher.scheduler.workers.capacity import size_of
from thresher.scheduler.workers.placement import placement_errors
from thresher.scheduler.workers.pools import (
    Pool,
    drain_worker,
    on_memory_sample,
    on_worker_memory,
    recycle_old,
    refill,
    refill_wanting,
    stop_drained,
)
from thresher.scheduler.workers.turnover import (
    on_node_joined,
    on_node_lost,
    on_worker_lost,
    on_worker_ready,
    on_worker_setup_failed,
)


class Scheduler:
    """Decides dispatch, backpressure, retries and commits of one run. Callers must not change `state`."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.state = build(spec)
        for op in self.state.ops:
            set_credit(op)
        set_window(self.state)

    def start(self) -> list[AnyAction]:
        """Return the actions before the first event: start the workers."""
        state = self.state
        unplaceable = placement_errors(self.spec)
        if unplaceable:
            fail(state, "; ".join(unplaceable))
            return take_actions(state)
        set_initial_targets(state)
        set_window(state)
        for pool in sorted(state.pools, key=lambda pool: size_of(pool.need), reverse=True):
            refill(state, pool)  # the workers that are hardest to place come first
        return take_actions(state)

    def step(self, event: AnyEvent) -> list[AnyAction]:
        """Process one event and return the resulting actions. Return none after Finish or Fail."""
        state = self.state
        if state.over:
            return []
        HANDLERS[event.__class__](state, event)
        if not state.over:
            dispatch(state)
            if not state.running and state.unfinished:
                unblock(state)
            if state.fleet.draining:
                stop_drained(state)
            finish_if_done(state)
        return take_actions(state)


def build(spec: RunSpec) -> State:
    """Return the state before the first event: ops linked, pools created, no workers."""
    state = State(spec)
    for op in state.ops:
        if op.spec.next is not None:
            op.next = state.ops[op.spec.next]
    for op in state.ops:
        op.upstream = tuple(o for o in state.ops if op in chain(o)[1:])
        op.limit = limit_bytes(spec, op)
        op.gated = any(o.ordered for o in chain(op))
        op.gathers = any(o.spec.by_unit for o in chain(op))
    distance = {op.index: len(chain(op)) for op in state.ops}
    order = sorted(state.ops, key=lambda op: (distance[op.index], op.index))
    shared = [op for op in order if not op.spec.has_own_workers]
    if shared:
        state.pools.append(Pool(shared, None, spec))
    for op in order:
        if op.spec.has_own_workers:
            state.pools.append(Pool([op], op.spec, spec))
    state.measuring = any(pool.balances for pool in state.pools)
    for pool in state.pools:
        for op in pool.inner + pool.sources:
            op.pool = pool
    for op in shared:
        if op.spec.cpus > 1:
            op.tracked = True
            op.max_seats = max(1, int(spec.shared_workers / op.spec.cpus))
    return state


def take_actions(state: State) -> list[AnyAction]:
    """Return the actions of this step. Payloads are released first, to make room for the rest."""
    actions = state.out
    if state.released:
        actions.insert(0, Release(tuple(state.released)))
        state.released.clear()
    state.out = []
    return actions


def finish_if_done(state: State) -> None:
    """End the run if everything is committed, or if it was stopped and no task or commit is in progress."""
    if state.stopping:
        if state.running or state.commits:
            return
    elif state.listing or state.unfinished:
        return
    state.over = True
    state.out.extend(StopWorker(worker_id) for worker_id in state.workers)
    state.out.append(Finish("stopped" if state.stopping else "finished"))


def find_running(state: State, task_id: int, worker_id: int) -> TaskState | None:
    """Return the task that a worker reports about; None if the worker is considered lost."""
    if worker_id not in state.workers:
        if not 0 < worker_id < state.next_worker:
            raise IllegalEvent(f"worker {worker_id} reports about task {task_id}, but was never started")
        return None
    task = state.tasks.get(task_id)
    if task is None:
        raise IllegalEvent(f"worker {worker_id} reports about task {task_id}, which neither waits nor runs")
    if task.state not in (RUNNING, VOID) or task.worker is None or task.worker.id != worker_id:
        raise IllegalEvent(f"worker {worker_id} reports about a task that it does not run: {task.describe()}")
    return task


def drop_outputs(state: State, task: TaskState, outputs: tuple[Emitted, ...]) -> None:
    """Free the outputs of a void task. Results are not payloads: the driver checks their epoch."""
    if task.op.emits:
        state.released.extend(output.task for output in outputs if output.task)


def on_units_listed(state: State, event: UnitsListed) -> None:
    for unit in event.units:
        add_unit(state, unit)
    state.listing = event.more
    state.listing_input = event.more and not event.input_ends


def on_task_emitted(state: State, event: TaskEmitted) -> None:
    task = find_running(state, event.task, event.worker)
    if task is None:
        return
    task.busy_s += event.busy_s
    if state.measuring:
        record_flow(task.op, event.busy_s, len(event.outputs), 0)
    if task.state == VOID:
        drop_outputs(state, task, event.outputs)
    else:
        emit(state, task, event.outputs)


def on_task_parked(state: State, event: TaskParked) -> None:
    task = find_running(state, event.task, event.worker)
    if task is None:
        return
    worker = state.workers[event.worker]
    task.busy_s += event.busy_s
    if state.measuring:
        record_flow(task.op, event.busy_s, len(event.outputs), 0)
    if task.state == VOID:
        drop_outputs(state, task, event.outputs)
        detach(state, worker, task)
        remove_void_task(state, task)
        state.out.append(Requeue(worker.id, (task.id,)))
        return
    emit(state, task, event.outputs)
    remove_from_queue(state, worker, task)
    return_reserve(state, task)
    task.state = PARKED
    task.op.parks = True
    worker.parked[task.id] = task
    if worker.draining:
        state.fleet.parked_draining[worker.id] = worker
    state.touched_workers.append(worker)
    requeue_behind_parked(state, worker, task)


def on_task_done(state: State, event: TaskDone) -> None:
    task = find_running(state, event.task, event.worker)
    if task is None:
        return
    worker = state.workers[event.worker]
    op, unit = task.op, task.unit
    worker.pool.losses = 0
    worker.done += 1
    record_task_time(state, task, event.busy_s)
    if state.measuring:
        record_flow(op, event.busy_s, len(event.outputs), 1)
    if task.state == VOID:
        detach(state, worker, task)
        drop_outputs(state, task, event.outputs)
        remove_void_task(state, task)
        return
    if event.outputs:
        emit(state, task, event.outputs)
    finish_task(state, worker, task)
    task.state = DONE
    task.worker = None
    op.live -= 1
    del state.tasks[task.id]
    if op.gathers:
        state.touched_units.append(unit)
    if op.ordered:
        del unit.sinking[task.id]
    elif task.first is None:
        unlink(task)
        if op.gated or unit.serial:
            state.touched_units.append(unit)
        if op.sink:
            unit.sink_worker = worker
            worker.units[unit.name] = unit
    if unit.first is None:
        commit_if_complete(state, unit)


def on_task_failed(state: State, event: TaskFailed) -> None:
    task = find_running(state, event.task, event.worker)
    if task is None:
        return
    worker = state.workers[event.worker]
    detach(state, worker, task)
    if not event.blamed:
        drain_worker(state, worker, "failure")
    if task.state == VOID:
        remove_void_task(state, task)
        return
    reason = f"{event.error}: {event.message}" if event.error else event.message
    op, unit = task.op, task.unit
    if event.fatal:
        fail(state, f"unit {unit.name!r} failed in {op.spec.name}: {reason}", unit, op)
    elif task.emitted or op.sink:
        remove_running(state, task)
        if event.blamed:
            blame_unit(state, unit, op, reason)
        restart(state, unit, blamed=event.blamed)
    else:
        retry_task(state, task, reason, blamed=event.blamed)


def on_payload_lost(state: State, event: PayloadLost) -> None:
    task = state.tasks.get(event.task)
    if task is not None and task.state != VOID:
        restart(state, task.unit)


def on_unit_committed(state: State, event: UnitCommitted) -> None:
    unit = state.units.get(event.unit)
    if unit is None:
        return
    if unit.is_stream:
        raise IllegalEvent(f"stream {unit.name!r} was committed; only the units that are cut from it are")
    if unit.state == OPEN:
        void(state, unit)
    finish_unit(state, unit)


def on_commit_failed(state: State, event: CommitFailed) -> None:
    unit = state.units.get(event.unit)
    if unit is None or unit.epoch != event.epoch:
        return
    op = chain(unit.entry)[-1]
    if not event.retryable:
        fail(state, f"unit {unit.name!r} could not be committed: {event.message}", unit, op)
        return
    blame_unit(state, unit, op, f"commit failed: {event.message}")
    restart(state, unit, blamed=True)


def on_stop_requested(state: State, event: StopRequested) -> None:
    state.stopping = True
    if event.at_once:
        state.over = True
        state.out.append(Finish("stopped"))


def on_tick(state: State, event: Tick) -> None:
    fleet = state.fleet
    fleet.now_s = max(fleet.now_s, event.t)
    if state.stopping:
        return
    if state.delayed:
        enqueue_due(state)
    recycle_old(state)
    if fleet.wanting:
        refill_wanting(state)
    rebalance(state)


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    UnitsListed: on_units_listed,
    WorkerReady: on_worker_ready,
    WorkerSetupFailed: on_worker_setup_failed,
    WorkerLost: on_worker_lost,
    NodeJoined: on_node_joined,
    NodeLost: on_node_lost,
    TaskEmitted: on_task_emitted,
    TaskParked: on_task_parked,
    TaskDone: on_task_done,
    TaskFailed: on_task_failed,
    PayloadLost: on_payload_lost,
    UnitCommitted: on_unit_committed,
    CommitFailed: on_commit_failed,
    MemorySample: on_memory_sample,
    WorkerMemory: on_worker_memory,
    Tick: on_tick,
    StopRequested: on_stop_requested,
}
