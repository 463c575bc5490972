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
from thresher.scheduler.build import build
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
from thresher.scheduler.model import IllegalEvent, RunSpec
from thresher.scheduler.nodes.capacity import size_of
from thresher.scheduler.nodes.membership import on_node_joined, on_node_lost
from thresher.scheduler.nodes.placement import placement_errors
from thresher.scheduler.state import DONE, OPEN, PARKED, RUNNING, STARTING, UP, VOID, State, Task, Worker, chain
from thresher.scheduler.work.backoff import enqueue_due
from thresher.scheduler.work.backpressure import note_drained_worker, release, return_reserve
from thresher.scheduler.work.dispatch import dispatch
from thresher.scheduler.work.lineage import unlink
from thresher.scheduler.work.recovery import (
    blame_unit,
    detach,
    fail,
    remove_running,
    remove_void_task,
    requeue_behind_parked,
    restart,
    retry_task,
    setup_failed,
    void,
    worker_lost,
)
from thresher.scheduler.work.unblock import unblock
from thresher.scheduler.work.units import add_unit, commit_if_complete, emit, finish_unit
from thresher.scheduler.work.worker_queue import remove_from_queue, set_groups
from thresher.scheduler.workers.autoscale import rebalance, set_initial_targets
from thresher.scheduler.workers.pools import drain_worker, refill, refill_wanting, stop_drained
from thresher.scheduler.workers.rates import record_flow, record_task_time, set_credit, set_window
from thresher.scheduler.workers.recycle import on_memory_sample, on_worker_memory, recycle_old


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


def find_running(state: State, task_id: int, worker_id: int) -> Task | None:
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


def drop_outputs(state: State, task: Task, outputs: tuple[Emitted, ...]) -> None:
    """Free the outputs of a void task. Results are not payloads: the driver checks their epoch."""
    if task.op.emits:
        state.released.extend(output.task for output in outputs if output.task)


def on_units_listed(state: State, event: UnitsListed) -> None:
    for unit in event.units:
        add_unit(state, unit)
    state.listing = event.more
    state.listing_input = event.more and not event.input_ends


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


def live_worker(state: State, worker_id: int) -> Worker | None:
    """Return the worker; None if it is lost."""
    worker = state.workers.get(worker_id)
    if worker is None and not 0 < worker_id < state.next_worker:
        raise IllegalEvent(f"worker {worker_id} was never started; known are 1 to {state.next_worker - 1}")
    return worker


def on_worker_setup_failed(state: State, event: WorkerSetupFailed) -> None:
    worker = live_worker(state, event.worker)
    if worker is not None:
        setup_failed(state, worker, event.message)


def on_worker_lost(state: State, event: WorkerLost) -> None:
    worker = live_worker(state, event.worker)
    if worker is not None:
        worker_lost(state, worker, event.reason, blamed=event.blamed)


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
    detach(state, worker, task)
    release(state, task)
    if not worker.groups and worker.pool.dedicated is not None:
        note_drained_worker(state, op)
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
        drain_worker(state, worker)
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
