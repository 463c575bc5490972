# SPDX-License-Identifier: Apache-2.0
"""The life cycle of units and streams: listing, emitted tasks, commit, rereading a stream; and the tree of their tasks.

A task stays in the tree until it is done and all its children are gone; a task that was sent to an ordered sink is
removed at once. So the first leaf, depth first, is always the earliest unfinished task of the unit: children come
before the rest of their parent. Where order matters, a task is held until no earlier one can come.

Some ops take consecutive tasks of one unit in a call: `batch_size` of them in lineage order, the last call the rest.
The result of such a call may depend on which tasks it takes, so this choice must not depend on timing. A task waits
until no earlier task of its unit can come and its call is full, or until the unit has no more tasks for the op.
A smaller call is made only if nothing else can run, because room for a full one is not guaranteed.

A task that failed waits for its backoff before it is queued. Time comes from Ticks; without them there is no delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

from thresher.scheduler.actions import Commit
from thresher.scheduler.events import Emitted
from thresher.scheduler.load import account, discard
from thresher.scheduler.model import IllegalEvent, UnitSpec
from thresher.scheduler.state import (
    COMMITTING,
    DELAYED,
    DONE,
    ENDED,
    HELD,
    LAST_BLOCK,
    OPEN,
    READY,
    Key,
    OpState,
    State,
    TaskState,
    UnitState,
    chain,
)


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


MAX_DELAY_S = 30.0  # longest delay before a retry


# -- the tree ----------------------------------------------------------------------------------------------------------


def link(state: State, parent: TaskState | UnitState, task: TaskState) -> None:
    """Append a new task to its siblings."""
    task.parent = parent
    last = parent.last
    task.prev = last
    if last is None:
        parent.first = task
    else:
        last.next = task
    parent.last = task
    unit = task.unit
    if not unit.listed:
        unit.listed = True
        heappush(state.oldest_units, (unit.key, unit))


def unlink(task: TaskState) -> None:
    """Remove a task without children from the tree, and each finished ancestor whose last child it was."""
    node = task
    while True:
        parent = node.parent
        before, after = node.prev, node.next
        if before is None:
            parent.first = after  # type: ignore[union-attr]  # a linked node has a parent
        else:
            before.next = after
        if after is None:
            parent.last = before  # type: ignore[union-attr]  # a linked node has a parent
        else:
            after.prev = before
        node.parent = node.prev = node.next = None
        if parent.__class__ is not TaskState or parent.first is not None or parent.state != DONE:
            return
        node = parent


def subtree(node: TaskState | UnitState) -> list[TaskState]:
    """Return every task below a node, in lineage order."""
    found: list[TaskState] = []
    stack = [node.first]
    while stack:
        task = stack.pop()
        if task is None:
            continue
        found.append(task)
        stack.append(task.next)
        stack.append(task.first)
    return found


# -- queues ------------------------------------------------------------------------------------------------------------


def enqueue(state: State, task: TaskState) -> None:
    """Queue a new task, or hold it back until it is the first of its unit where order matters."""
    if task.op.ordered or task.op.spec.by_unit or (task.unit.serial and task.op.emits):
        task.state, task.call = HELD, None
        state.touched_units.append(task.unit)
    else:
        make_ready(task)


def make_ready(task: TaskState) -> None:
    """Put a task into its op's queue."""
    op = task.op
    task.state = READY
    op.nready += 1
    heappush(op.ready, (task.key, task))


def delay_of(state: State, failures: int) -> float:
    """Return the delay after the given number of failures: doubled with each of them."""
    if not failures or not state.fleet.now_s:
        return 0.0
    return min(MAX_DELAY_S, state.spec.backoff_s * 2.0 ** (failures - 1))


def enqueue_after(state: State, task: TaskState, failures: int) -> None:
    """Queue a task after the delay for the given number of failures."""
    delay_s = delay_of(state, failures)
    if not delay_s:
        enqueue(state, task)
        return
    task.state = DELAYED
    heappush(state.delayed, (state.fleet.now_s + delay_s, task.id, task))


def enqueue_due(state: State) -> None:
    """Queue the tasks whose delay has passed."""
    while state.delayed and state.delayed[0][0] <= state.fleet.now_s:
        task = heappop(state.delayed)[2]
        if task.state == DELAYED:  # its unit may have restarted in the meantime
            enqueue(state, task)


# -- calls by unit -----------------------------------------------------------------------------------------------------


def queue_calls(state: State, unit: UnitState, *, flush: bool = False) -> None:
    """Queue the full calls of a unit and its last ones; `flush`: also those that wait for more tasks."""
    for op in chain(unit.entry):
        if op.spec.by_unit:
            queue_calls_of_op(unit, op, flush=flush)


def queue_calls_of_op(unit: UnitState, op: OpState, *, flush: bool) -> None:
    """Queue the calls of one op."""
    waiting: list[TaskState] = []
    complete = unit.closed
    for task in unfinished(unit):
        if task.op.index < op.index or (task.op is op and task.state == DELAYED):
            complete = False  # an earlier task than the following ones may still come
            break
        if task.op is op and task.state == HELD and task.call is None:
            waiting.append(task)
            if len(waiting) == op.spec.batch_size:
                queue_call(op, waiting)
                waiting = []
    if waiting and (complete or flush):
        queue_call(op, waiting)


def unfinished(node: TaskState | UnitState) -> Iterator[TaskState]:
    """Yield every unfinished task below a node in lineage order: children come before the rest of their parent."""
    child = node.first
    while child is not None:
        yield from unfinished(child)
        if child.state != DONE:
            yield child
        child = child.next


def queue_call(op: OpState, tasks: list[TaskState]) -> None:
    """Queue a call under its first task; the other tasks stay held until the call starts."""
    for task in tasks:
        task.call = tasks
    tasks[0].state = READY
    op.nready += 1
    heappush(op.ready, (tasks[0].key, tasks[0]))


def take_call(first: TaskState) -> list[TaskState]:
    """Return the tasks of a call that starts now. A task that fails is assigned to a new call."""
    tasks = first.call
    assert tasks is not None, first.describe()
    for task in tasks:
        task.call = None
    return tasks
