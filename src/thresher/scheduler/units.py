# SPDX-License-Identifier: Apache-2.0
"""The life cycle of units and streams: listing, emitted tasks, commit, rereading a stream."""

from __future__ import annotations

from thresher.scheduler.actions import Commit
from thresher.scheduler.events import Emitted
from thresher.scheduler.lineage import enqueue, enqueue_after, link
from thresher.scheduler.load import account, discard
from thresher.scheduler.model import IllegalEvent, UnitSpec
from thresher.scheduler.state import COMMITTING, ENDED, LAST_BLOCK, OPEN, Key, OpState, State, TaskState, UnitState


def new_key(state: State, file_index: int, block: int) -> Key:
    """Return the sort key of a unit in lineage order; the last number makes it unique for each epoch."""
    state.serial_number += 1
    return (file_index, block, state.serial_number)


def add_unit(state: State, spec: UnitSpec) -> None:
    """Add a listed unit and queue its root task."""
    if spec.unit in state.units or spec.unit in state.committed:
        raise IllegalEvent(f"unit {spec.unit!r} is listed twice; list every unit once")
    if not 0 <= spec.entry < len(state.ops) or not state.ops[spec.entry].source:
        raise IllegalEvent(f"unit {spec.unit!r} enters at op {spec.entry}, which is not a source")
    entry = state.ops[spec.entry]
    if spec.stream and entry.next is None:
        raise IllegalEvent(f"stream {spec.unit!r} enters at op {spec.entry}, which emits nothing to cut into units")
    block = LAST_BLOCK if spec.stream else spec.order[1]
    unit = UnitState(spec.unit, new_key(state, spec.order[0], block), entry)
    unit.is_stream = spec.stream
    state.units[unit.name] = unit
    state.unfinished += 1
    add_root(state, unit)


def add_root(state: State, unit: UnitState, failures: int = 0) -> None:
    """Queue the task that reads a unit (or a stream) from its beginning, after the backoff for its failures."""
    task = TaskState(state.next_root, unit, unit.entry, unit.key, 0)
    state.next_root -= 1
    unit.closed = True
    add_task(state, unit, task, failures)


def add_task(state: State, parent: TaskState | UnitState, task: TaskState, failures: int = 0) -> None:
    """Add a new task to the tree and to the queues."""
    state.tasks[task.id] = task
    task.op.live += 1
    link(state, parent, task)
    if failures:
        enqueue_after(state, task, failures)
    else:
        enqueue(state, task)


def emit(state: State, emitter: TaskState, outputs: tuple[Emitted, ...]) -> None:
    """Add a task for each output of a task."""
    emitter.emitted = True
    target = emitter.op.next
    if target is None:
        return
    if emitter.unit.is_stream:
        for output in outputs:
            emit_from_stream(state, emitter, target, output)
        return
    unit = emitter.unit
    for output in outputs:
        if output.unit and output.unit != unit.name:
            raise IllegalEvent(f"{emitter.describe()} emitted a task of unit {output.unit!r}; only streams may do that")
        if output.task:
            add_child(state, emitter, emitter, TaskState(output.task, unit, target, (), output.nbytes))


def emit_from_stream(state: State, stream_task: TaskState, target: OpState, output: Emitted) -> None:
    """Add a task to the unit that a stream's output names, and close the unit if this was its last output."""
    unit = unit_of_stream(state, stream_task.unit, output)
    if unit is None:
        if output.task:
            discard(state, stream_task, output.nbytes)
            state.released.append(output.task)
        return
    if output.task:
        add_child(state, stream_task, unit, TaskState(output.task, unit, target, (), output.nbytes))
    if output.closes:
        close_unit(state, unit)


def add_child(state: State, emitter: TaskState, parent: TaskState | UnitState, child: TaskState) -> None:
    """Account a new payload and queue its task."""
    if child.id in state.tasks or child.id < 0:
        raise IllegalEvent(f"{emitter.describe()} emitted task {child.id}; ids must be positive and new")
    child.key = (*parent.key, parent.ordinal)
    parent.ordinal += 1
    if state.fleet.is_wide and emitter.worker is not None:
        child.home = emitter.worker.node
    account(state, emitter, child)
    add_task(state, parent, child)


def unit_of_stream(state: State, stream: UnitState, output: Emitted) -> UnitState | None:
    """Return the unit of an output; None if it is committed, or complete from an earlier run of the stream."""
    name = output.unit
    if not name:
        raise IllegalEvent(f"stream {stream.name!r} emitted task {output.task} without naming its unit")
    if name in state.committed:
        return None
    unit = state.units.get(name)
    if unit is None:
        unit = UnitState(name, new_key(state, *output.order), stream.entry, stream)
        state.units[name] = unit
        stream.children[name] = unit
        state.unfinished += 1
        return unit
    if unit.stream is not stream:
        raise IllegalEvent(f"stream {stream.name!r} emitted task {output.task} of unit {name!r} of another source")
    return None if unit.closed or unit.accept_run > stream.run else unit


def close_unit(state: State, unit: UnitState) -> None:
    """Close a unit of a stream: no further output comes for it."""
    unit.closed = True
    if unit.entry.gathers:
        state.touched_units.append(unit)
    commit_if_complete(state, unit)


def commit_if_complete(state: State, unit: UnitState) -> None:
    """Commit a unit that has no unfinished tasks; end it if it is a stream."""
    if unit.first is not None or unit.sinking or not unit.closed or unit.state != OPEN:
        return
    if unit.is_stream:
        end_stream(state, unit)
        return
    unit.state = COMMITTING
    state.commits += 1
    worker = unit.sink_worker
    if worker is not None:
        worker.queue[unit] = None
    state.out.append(Commit(unit.name, unit.epoch, None if worker is None else worker.id))


def end_stream(state: State, stream: UnitState) -> None:
    """Close the units of a stream that was read to its end, and read it again if one of them restarted."""
    for unit in list(stream.children.values()):
        if not unit.closed and unit.accept_run <= stream.run:
            close_unit(state, unit)
    if stream.rerun:
        start_run(state, stream)
    else:
        stream.state = ENDED
        state.unfinished -= 1
        remove_finished_stream(state, stream)


def start_run(state: State, stream: UnitState, failures: int = 0) -> None:
    """Read a stream again. The runtime skips committed units, `unit_of_stream` skips complete ones."""
    stream.rerun = False
    stream.run += 1
    stream.epoch += 1
    stream.ordinal = 0
    add_root(state, stream, failures)


def request_rerun(state: State, stream: UnitState) -> None:
    """Read a stream again for a unit that restarts: now, or when the current run has ended."""
    if stream.state == OPEN:
        stream.rerun = True
    else:
        stream.state = OPEN
        state.unfinished += 1
        start_run(state, stream)


def reset_commit(state: State, unit: UnitState) -> None:
    """Reset the commit of a unit that was answered or whose worker is gone."""
    if unit.state == COMMITTING:
        unit.state = OPEN
        state.commits -= 1
        if unit.sink_worker is not None:
            unit.sink_worker.queue.pop(unit, None)


def finish_unit(state: State, unit: UnitState) -> None:
    """Remove a committed unit."""
    reset_commit(state, unit)
    unit.state = ENDED
    worker = unit.sink_worker
    if worker is not None:
        worker.units.pop(unit.name, None)
        unit.sink_worker = None
        if worker.draining:
            state.fleet.draining.append(worker)
    del state.units[unit.name]
    state.committed.add(unit.name)
    state.unfinished -= 1
    if unit.stream is not None:
        del unit.stream.children[unit.name]
        remove_finished_stream(state, unit.stream)


def remove_finished_stream(state: State, stream: UnitState) -> None:
    """Remove a stream that was read to its end and has no units left."""
    if stream.state == ENDED and not stream.children:
        state.units.pop(stream.name, None)
        state.committed.add(stream.name)
