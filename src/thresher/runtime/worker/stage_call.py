# SPDX-License-Identifier: Apache-2.0
"""Run a stage on one task or on several, whatever its code does: try again, split by halves, and quarantine the record
that fails.

If memory runs out, the same call is not tried again: memory is returned, and the stage gets half as much at a time.
No function here raises for a record. A failure that no record can be blamed for (a generator that fails after it
yielded something) raises `TaskAborted`, and the unit starts again.

A call of `process_batch` for several tasks may return a list of another length, which is made of all of them together.
Units are committed one by one, so if a call held tasks of several, the stage is called again for those of each.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, cast

from thresher.core.records.record_task import FailedRows, RecordTask
from thresher.core.stage import ProcessingStage
from thresher.core.tally import StageContext
from thresher.core.task import EmptyTask, Task, items_before
from thresher.credentials import error_line, redacted
from thresher.errors import RunFailedError
from thresher.runtime.crashes import isolation
from thresher.runtime.crashes.evidence import KNOWN
from thresher.runtime.memory import split as memory_split
from thresher.runtime.worker.call import (
    Fault,
    SpansUnits,
    StageCall,
    attempt,
    begin_note,
    end_note,
    spans_units,
    unit_of,
)
from thresher.runtime.worker.settle import Outcome, Settlement
from thresher.stage_errors import ControlSignal, is_out_of_memory

Stage = ProcessingStage[Any, Any]
GATHERED = 256
"""Results of single records that are put together before they go on."""
PAUSE_S = 0.25
"""Time before a call that failed for something that passes is made again; doubled with each failure."""
MOST_PAUSE_S = 10.0


ABORTED = "aborted"
"""The kind of error of a call that ended with `TaskAborted`."""


class TaskAborted(Exception):
    """Raised if a stage fails after a part of its result was handed on: the unit must start again."""


def run_stage(context: StageContext, task: Task, *, buffered: bool, evidence: int = 0) -> Iterator[Outcome]:
    """Return the outcomes of one task: one by one if the stage is a generator (unless `buffered`), else one per piece.

    A task is one piece unless memory ran out or workers crashed. `evidence`: against a larger task it was cut from.
    """
    if KNOWN.charges:
        cut = isolation.cut(context, task, evidence)
        if not cut.is_whole:
            return _run_cut(cut, buffered=buffered)
    if context.sizes is None:
        return _run_piece(context, task, buffered=buffered)
    return _run_pieces(context, task, buffered=buffered)


def _run_pieces(context: StageContext, task: Task, *, buffered: bool) -> Iterator[Outcome]:
    for piece in memory_split.pieces_that_fit(context, task):
        yield from _run_piece(context, piece, buffered=buffered)


def _run_cut(cut: isolation.Cut, *, buffered: bool) -> Iterator[Outcome]:
    """Run the parts of a task that workers crashed on, or on a similar one."""
    gathered = Outcome()
    for part in cut.parts:
        if part.charge is not None:
            fault = Fault(part.charge.error, part.charge.message, "", memory=False)
            gathered.add(set_aside(cut.context.stage, part.task, fault, part.charge.deaths))
        elif part.is_record:
            gathered.add(_run_record(cut.context, part.task, part.evidence))
        else:
            yield from _take_gathered(gathered)
            gathered = Outcome()
            yield from run_stage(cut.context, part.task, buffered=buffered, evidence=part.evidence)
        if len(gathered.tasks) >= GATHERED:
            yield from _take_gathered(gathered)
            gathered = Outcome()
    yield from _take_gathered(gathered)
    cut.came_to_its_end()


def _take_gathered(gathered: Outcome) -> Iterator[Outcome]:
    """Yield the outcomes of single records as one, so that later stages get batches again."""
    if gathered != Outcome():
        gathered.tasks = _put_together(gathered.tasks)
        yield gathered


def _run_record(context: StageContext, record: Task, evidence: int) -> Outcome:
    """Run one record alone."""
    outcome = Outcome()
    for part in _run_piece(context, record, buffered=True, evidence=evidence):
        outcome.add(part)
    return outcome


def _run_piece(
    context: StageContext, task: Task, *, buffered: bool, last_try: bool = False, evidence: int = 0
) -> Iterator[Outcome]:
    one = attempt(context, [task], buffered=buffered, evidence=evidence)
    if one.outcomes is not None:
        _worked(context, task)
        return iter(one.outcomes)
    return go_on(one, buffered=buffered, last_try=last_try)


def go_on(one: StageCall, *, buffered: bool, last_try: bool = False) -> Iterator[Outcome]:
    """Yield the outcomes after a call for one task that gave a generator, or failed."""
    context, (task,) = one.context, one.tasks
    fault = one.fault or (yield from _run_generator(one))
    if fault is None:
        _worked(context, task)
        return
    task = pristine_task(task)
    if not fault.memory:
        yield recover(context, task, fault)
        return
    memory_split.give_memory_back()
    if memory_split.can_be_cut(context.stage, task):
        assert isinstance(task, RecordTask)
        for half in memory_split.halves_after_failure(context, task):
            yield from run_stage(context, half, buffered=buffered)
    elif last_try:
        yield set_aside(context.stage, task, fault, 2)
    else:
        context.noted.retries += 1
        yield from _run_piece(context, task, buffered=buffered, last_try=True)


def _worked(context: StageContext, task: Task) -> None:
    """Record that a call for one task succeeded; used only if one ran out of memory before."""
    if context.sizes is not None:
        context.sizes.nbytes.worked(task.nbytes)


def _run_generator(one: StageCall) -> Generator[Outcome, None, Fault | None]:
    """Yield what a generator gives, as it gives it; return what went wrong before its first result."""
    stage, (task,) = one.context.stage, one.tasks
    settlement = Settlement(task, stage.name)
    given_away = False
    while True:
        if one.note is not None:
            begin_note(one)
        try:
            outcome = settlement.adopt(next(one.made))
        except StopIteration:
            yield settlement.close()
            return None
        except (ControlSignal, RunFailedError):
            raise
        except BaseException as error:
            if not given_away:
                return Fault.of(error)
            if is_out_of_memory(error) and memory_split.can_be_cut(stage, task):
                memory_split.remember_sizes(one.context).nbytes.ran_out(task.nbytes)
            raise TaskAborted(f"{stage.name} failed in the middle of {task.task_id}: {error_line(error)}") from error
        finally:
            if one.note is not None:
                end_note()
        given_away = True
        yield outcome


def recover(context: StageContext, task: Task, fault: Fault) -> Outcome:
    """Try again as a whole, then by halves; quarantine what still fails."""
    attempts = 1
    while attempts < context.stage.max_attempts and not fault.memory:
        if fault.passes:
            time.sleep(pause_s(attempts))
        attempts += 1
        context.noted.retries += 1
        made = _run_whole(context, task)
        if isinstance(made, Outcome):
            return made
        fault = made
    return _split_or_set_aside(context, task, fault, attempts)


def pause_s(attempts: int) -> float:
    """Return how long to wait before a call that failed for something that passes is made again."""
    return float(min(MOST_PAUSE_S, PAUSE_S * 2 ** (attempts - 1)))


def pristine_task(task: Task) -> Task:
    """Return the task as it was given: a stage may have changed its data before it raised."""
    return task.restored() if isinstance(task, RecordTask) else task


def _run_whole(context: StageContext, task: Task) -> Outcome | Fault:
    if KNOWN.charges:
        cut = isolation.cut(context, task)
        if not cut.is_whole:
            outcome = Outcome()
            for part in _run_cut(cut, buffered=True):
                outcome.add(part)
            return outcome
    one = attempt(context, [task])
    if one.outcomes is not None:
        return one.outcomes[0]
    assert one.fault is not None, "a buffered call has outcomes or fails"
    return one.fault


def _split_or_set_aside(context: StageContext, task: Task, fault: Fault, attempts: int) -> Outcome:
    if not memory_split.can_be_cut(context.stage, task):
        return set_aside(context.stage, task, fault, attempts)
    assert isinstance(task, RecordTask)
    outcome = Outcome()
    for piece in task.halves():
        context.noted.retries += 1
        made = _run_whole(context, piece)
        outcome.add(made if isinstance(made, Outcome) else _split_or_set_aside(context, piece, made, attempts + 1))
    outcome.tasks = _put_together(outcome.tasks)
    return outcome


def _put_together(tasks: list[Task]) -> list[Task]:
    """Return the records of tasks of one type as one task, other tasks as they are."""
    first, others = next(iter(tasks), None), tasks[1:]
    if others and isinstance(first, RecordTask) and all(isinstance(task, type(first)) for task in others):
        return [first.joined(cast(list[RecordTask], others))]
    return tasks


def set_aside(stage: Stage, task: Task, fault: Fault, attempts: int) -> Outcome:
    """Quarantine all records of a task because of `fault`. Where a pipeline begins with a stage that makes its own
    input, there is no record to set aside: then the run fails."""
    if isinstance(task, RecordTask):
        return Outcome(
            failed=[FailedRows(task, fault.kind, [fault.message] * task.num_items, fault.traceback, attempts)]
        )
    if isinstance(task, EmptyTask):
        said = fault.traceback or f"{fault.kind}: {fault.message}"
        raise RunFailedError(f"{stage.name} failed {attempts} times and gave no input to go on with:\n{said}")
    items = items_before(task)
    failed = FailedRows(
        None,
        fault.kind,
        [fault.message],
        fault.traceback,
        attempts,
        [_shown_data(task)],
        extra={"id": task.task_id},
        counts=(max(1, items),),
    )
    return Outcome(created=0 if items else 1, failed=[failed])


def _shown_data(task: Task) -> bytes:
    try:
        return redacted(repr(task.data))[:1000].encode("utf-8", "backslashreplace")
    except Exception as error:  # a user's own type may raise anything here
        return f"(its repr raised {type(error).__name__})".encode()


# -- several tasks in one call -----------------------------------------------------------------------------------------


def run_group(context: StageContext, tasks: list[Task]) -> list[Outcome]:
    """Return the outcomes of several tasks of one call of `process_batch`, one for each task."""
    if any(map(is_carrier, tasks)):
        made = iter(run_group(context, [task for task in tasks if not is_carrier(task)]))
        return [Outcome() if is_carrier(task) else next(made) for task in tasks]
    if len(tasks) < 2:
        return [_run_alone(context, task) for task in tasks]
    if context.by_unit and spans_units(tasks):
        return _run_by_unit(context, tasks)
    if KNOWN.charges and isolation.wants_tasks_alone(context.stage, tasks):
        memory_split.begin_alone(context)
        return [_run_alone(context, task) for task in tasks]
    outcomes: list[Outcome] = []
    for group in memory_split.groups_that_fit(context, tasks):
        outcomes.extend(after_group(attempt(context, group)))
    return outcomes


def is_carrier(task: Task) -> bool:
    """Return True if a task has no records and only carries lines about others."""
    return isinstance(task, RecordTask) and not task.num_items


def after_group(one: StageCall) -> list[Outcome]:
    """Return the outcomes of a call for several tasks that was made; the stage may be called again for them."""
    context, tasks, attempts = one.context, one.tasks, 1
    while one.fault is not None and one.fault.passes and attempts < context.stage.max_attempts:
        time.sleep(pause_s(attempts))
        attempts += 1
        context.noted.retries += 1
        tasks = [pristine_task(task) for task in tasks]
        one = attempt(context, tasks)
    if one.outcomes is not None:
        if context.sizes is not None:
            context.sizes.tasks.worked(len(tasks))
        return one.outcomes
    assert one.fault is not None, "what a stage gives for several tasks is settled at once"
    tasks = [pristine_task(task) for task in tasks]
    if one.fault.kind == SpansUnits.__name__:
        context.by_unit = True
        return _run_by_unit(context, tasks)
    if one.fault.memory:
        memory_split.give_memory_back()
        if len(tasks) > 1:
            first, second = memory_split.group_halves_after_failure(context, tasks)
            return [*run_group(context, first), *run_group(context, second)]
    context.noted.retries += 1
    return [_run_alone(context, task) for task in tasks]


def _run_by_unit(context: StageContext, tasks: list[Task]) -> list[Outcome]:
    """Call the stage once for the tasks of each unit, with which the records that are made of them are committed."""
    outcomes: dict[int, Outcome] = {}
    for unit in dict.fromkeys(map(unit_of, tasks)):
        places = [place for place, task in enumerate(tasks) if unit_of(task) == unit]
        made = run_group(context, [tasks[place] for place in places])
        outcomes.update(zip(places, made, strict=True))
    return [outcomes[place] for place in range(len(tasks))]


def _run_alone(context: StageContext, task: Task) -> Outcome:
    outcome = Outcome()
    for part in run_stage(context, task, buffered=True):
        outcome.add(part)
    return outcome
