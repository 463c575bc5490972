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
from thresher.scheduler.backpressure import release, return_reserve
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
    WorkerReady,
    WorkerSetupFailed,
)
from thresher.scheduler.lineage import unlink
from thresher.scheduler.model import IllegalEvent, RunSpec
from thresher.scheduler.placement import let_go, set_groups
from thresher.scheduler.rates import saw_time, set_credit, set_window
from thresher.scheduler.recovery import (
    blame_unit,
    detach,
    fail,
    forget,
    forget_running,
    give_way,
    restart,
    setup_failed,
    start_worker,
    try_again,
    void,
    worker_lost,
)
from thresher.scheduler.state import DONE, OPEN, PARKED, RUNNING, STARTING, UP, VOID, State, Task, Worker, build, chain
from thresher.scheduler.unblock import unblock
from thresher.scheduler.units import add_unit, emit, finish_unit, settle


class Scheduler:
    """Decides dispatch, backpressure, retries and commits of one run. `state` is for reading only."""

    def __init__(self, spec: RunSpec) -> None:
        self.spec = spec
        self.state = build(spec)
        for op in self.state.ops:
            set_credit(op)
        set_window(self.state)

    def start(self) -> list[AnyAction]:
        """The first actions, before any event: start the workers."""
        for pool in self.state.pools:
            wanted = self.spec.shared_workers
            if pool.dedicated is not None:
                wanted = self.spec.ops[pool.dedicated].dedicated_workers or 1
            for _ in range(wanted):
                start_worker(self.state, pool)
        return take_actions(self.state)

    def step(self, event: AnyEvent) -> list[AnyAction]:
        """Take one event and decide what to do. After Finish or Fail there is nothing more to do."""
        state = self.state
        if state.over:
            return []
        HANDLERS[event.__class__](state, event)
        if not state.over:
            dispatch(state)
            if not state.running and state.unfinished:
                unblock(state)
            conclude(state)
        return take_actions(state)


def take_actions(state: State) -> list[AnyAction]:
    """The actions of this step; payloads are freed first, so that there is room for what follows."""
    actions = state.out
    if state.released:
        actions.insert(0, Release(tuple(state.released)))
        state.released.clear()
    state.out = []
    return actions


def conclude(state: State) -> None:
    """End the run when everything is committed, or when it was stopped and nothing is under way."""
    if state.stopping:
        if state.running or state.commits:
            return
    elif state.listing or state.unfinished:
        return
    state.over = True
    state.out.extend(StopWorker(worker_id) for worker_id in state.workers)
    state.out.append(Finish("stopped" if state.stopping else "finished"))


def find_running(state: State, task_id: int, worker_id: int) -> Task | None:
    """The task a worker reports about; None if the worker counts as lost."""
    if worker_id not in state.workers:
        if not 0 < worker_id < state.next_worker:
            raise IllegalEvent(f"worker {worker_id} reports about task {task_id}, but was never started")
        return None
    task = state.tasks.get(task_id)
    if task is None:
        raise IllegalEvent(f"worker {worker_id} reports about task {task_id}, which waits nowhere and runs nowhere")
    if task.state not in (RUNNING, VOID) or task.worker is None or task.worker.id != worker_id:
        raise IllegalEvent(f"worker {worker_id} reports about a task that it does not run: {task.story()}")
    return task


def drop_outputs(state: State, task: Task, outputs: tuple[Emitted, ...]) -> None:
    """Free what a task of an old epoch emitted. Results are no payloads: the driver knows their epoch."""
    if task.op.emits:
        state.released.extend(output.task for output in outputs if output.task)


def on_units_listed(state: State, event: UnitsListed) -> None:
    for unit in event.units:
        add_unit(state, unit)
    state.listing = event.more
    state.listing_input = event.more and not event.input_ends


def on_worker_ready(state: State, event: WorkerReady) -> None:
    worker = known_worker(state, event.worker)
    if worker is None:
        return
    if worker.state != STARTING:
        raise IllegalEvent(f"worker {worker.id} is ready for the second time")
    worker.state = UP
    worker.node = event.node
    worker.pool.setup_failures = 0
    set_groups(worker, 0)


def known_worker(state: State, worker_id: int) -> Worker | None:
    """A worker that is not lost; None if it is."""
    worker = state.workers.get(worker_id)
    if worker is None and not 0 < worker_id < state.next_worker:
        raise IllegalEvent(f"worker {worker_id} was never started; known are 1 to {state.next_worker - 1}")
    return worker


def on_worker_setup_failed(state: State, event: WorkerSetupFailed) -> None:
    worker = known_worker(state, event.worker)
    if worker is not None:
        setup_failed(state, worker, event.message)


def on_worker_lost(state: State, event: WorkerLost) -> None:
    worker = known_worker(state, event.worker)
    if worker is not None:
        worker_lost(state, worker, event.reason)


def on_node_lost(state: State, event: NodeLost) -> None:
    for worker in [w for w in state.workers.values() if w.node == event.node and w.state == UP]:
        worker_lost(state, worker, event.reason or f"node {event.node} was lost")


def on_task_emitted(state: State, event: TaskEmitted) -> None:
    task = find_running(state, event.task, event.worker)
    if task is None:
        return
    task.busy_s += event.busy_s
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
    if task.state == VOID:
        drop_outputs(state, task, event.outputs)
        detach(state, worker, task)
        forget(state, task)
        state.out.append(Requeue(worker.id, (task.id,)))
        return
    emit(state, task, event.outputs)
    let_go(state, worker, task)
    return_reserve(state, task)
    task.state = PARKED
    task.op.parks = True
    worker.parked[task.id] = task
    state.touched_workers.append(worker)
    give_way(state, worker, task)


def on_task_done(state: State, event: TaskDone) -> None:
    task = find_running(state, event.task, event.worker)
    if task is None:
        return
    worker = state.workers[event.worker]
    op, unit = task.op, task.unit
    worker.pool.losses = 0
    saw_time(state, task, event.busy_s)
    if task.state == VOID:
        detach(state, worker, task)
        drop_outputs(state, task, event.outputs)
        forget(state, task)
        return
    if event.outputs:
        emit(state, task, event.outputs)
    detach(state, worker, task)
    release(state, task)
    task.state = DONE
    task.worker = None
    op.live -= 1
    del state.tasks[task.id]
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
        settle(state, unit)


def on_task_failed(state: State, event: TaskFailed) -> None:
    task = find_running(state, event.task, event.worker)
    if task is None:
        return
    worker = state.workers[event.worker]
    detach(state, worker, task)
    if task.state == VOID:
        forget(state, task)
        return
    reason = f"{event.error}: {event.message}" if event.error else event.message
    op, unit = task.op, task.unit
    if event.fatal:
        fail(state, f"unit {unit.name!r} failed in op {op.index} {op.spec.name!r}: {reason}", unit, op)
    elif task.emitted or op.sink:
        forget_running(state, task)
        blame_unit(state, unit, op, reason)
        restart(state, unit)
    else:
        try_again(state, task, reason, blamed=True)


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
    restart(state, unit)


def on_memory_sample(state: State, event: MemorySample) -> None:
    share = event.used_bytes / event.limit_bytes if event.limit_bytes else 0.0
    if share >= state.spec.memory_high:
        state.pressure = True
    elif share < state.spec.memory_low:
        state.pressure = False


def on_stop_requested(state: State, event: StopRequested) -> None:
    state.stopping = True


def on_nothing(state: State, event: Tick | NodeJoined) -> None:
    """Recorded in the log; nothing is decided yet from the passing of time or from new machines."""


HANDLERS: dict[type, Callable[[State, Any], None]] = {
    UnitsListed: on_units_listed,
    WorkerReady: on_worker_ready,
    WorkerSetupFailed: on_worker_setup_failed,
    WorkerLost: on_worker_lost,
    NodeJoined: on_nothing,
    NodeLost: on_node_lost,
    TaskEmitted: on_task_emitted,
    TaskParked: on_task_parked,
    TaskDone: on_task_done,
    TaskFailed: on_task_failed,
    PayloadLost: on_payload_lost,
    UnitCommitted: on_unit_committed,
    CommitFailed: on_commit_failed,
    MemorySample: on_memory_sample,
    Tick: on_nothing,
    StopRequested: on_stop_requested,
}
