# SPDX-License-Identifier: Apache-2.0
"""Run a stage on one task or on several, whatever its code does: try again, split by halves, and quarantine the record
that fails.

Where memory ran out the same is not tried again: memory is given back, and the stage gets half as much at a time.
Never raises for a record. A failure that no record can be blamed for (a generator that fails after it gave something)
raises `TaskAborted`, and the unit starts again.

A call of `process_batch` for several tasks may give a list of another length, which is made of all of them together.
Units are committed one by one, so where a call held tasks of several, the stage is called again for those of each.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any, cast

from thresher.core.records.record_task import FailedRows, RecordTask
from thresher.core.stage import ProcessingStage
from thresher.core.tally import StageTally
from thresher.core.task import EmptyTask, Task, items_before
from thresher.credentials import error_line, redacted
from thresher.errors import RunFailedError
from thresher.runtime.crashes import isolation
from thresher.runtime.crashes.crash_notes import notes
from thresher.runtime.memory import split as memory_split
from thresher.runtime.worker.call import Fault, SpansUnits, attempt, prepare, spans_units, unit_of
from thresher.runtime.worker.settle import Outcome, Settlement
from thresher.runtime.worker.sidecar import is_carrier
from thresher.stage_errors import ControlSignal, is_out_of_memory

Stage = ProcessingStage[Any, Any]
BY_UNIT = "_by_unit"
"""Set on a stage that was seen to return another number of entries than it got tasks of several units."""
GATHERED = 256
"""Results of single records that are put together before they go on."""
PAUSE_S = 0.25
"""Time before a call that failed for something that passes is made again; doubled with each failure."""
MOST_PAUSE_S = 10.0


ABORTED = "aborted"
"""The kind of error of a call that ended with `TaskAborted`."""


class TaskAborted(Exception):
    """Raised if a stage fails after a part of its result was handed on: the unit must start again."""


def run_stage(stage: Stage, task: Task, tally: StageTally, *, buffered: bool, evidence: int = 0) -> Iterator[Outcome]:
    """Return the outcomes of one task: one by one if the stage is a generator (unless `buffered`), else one per piece.

    A task is one piece unless memory ran out or workers crashed. `evidence`: against a larger task it was cut from.
    """
    if isolation.is_needed():
        cut = isolation.cut(stage, task, evidence)
        if not cut.is_whole:
            return _run_cut(cut, tally, buffered=buffered)
    if memory_split.sizes_of(stage) is None:
        return _run_piece(stage, task, tally, buffered=buffered)
    return _run_pieces(stage, task, tally, buffered=buffered)


def _run_pieces(stage: Stage, task: Task, tally: StageTally, *, buffered: bool) -> Iterator[Outcome]:
    for piece in memory_split.pieces_that_fit(stage, task):
        yield from _run_piece(stage, piece, tally, buffered=buffered)


def _run_cut(cut: isolation.Cut, tally: StageTally, *, buffered: bool) -> Iterator[Outcome]:
    """Run the parts of a task that workers crashed on, or on a similar one."""
    gathered = Outcome()
    for part in cut.parts:
        if part.charge is not None:
            fault = Fault(part.charge.error, part.charge.message, "", memory=False)
            gathered.add(set_aside(cut.stage, part.task, fault, part.charge.deaths))
        elif part.is_record:
            gathered.add(_run_record(cut.stage, part.task, tally, part.evidence))
        else:
            yield from _take_gathered(gathered)
            gathered = Outcome()
            yield from run_stage(cut.stage, part.task, tally, buffered=buffered, evidence=part.evidence)
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


def _run_record(stage: Stage, record: Task, tally: StageTally, evidence: int) -> Outcome:
    """Run one record alone."""
    outcome = Outcome()
    for part in _run_piece(stage, record, tally, buffered=True, evidence=evidence):
        outcome.add(part)
    return outcome


def _run_piece(
    stage: Stage, task: Task, tally: StageTally, *, buffered: bool, last_try: bool = False, evidence: int = 0
) -> Iterator[Outcome]:
    made = attempt(prepare(stage, [task], evidence), buffered=buffered)
    if isinstance(made, list):
        memory_split.call_worked(stage, task)
        return iter(made)
    return go_on(stage, task, tally, made, buffered=buffered, last_try=last_try)


def go_on(
    stage: Stage, task: Task, tally: StageTally, made: Fault | Iterator[Any], *, buffered: bool, last_try: bool = False
) -> Iterator[Outcome]:
    """Yield the outcomes after a call that gave a generator, or failed."""
    fault = made if isinstance(made, Fault) else (yield from _run_generator(stage, task, made))
    if fault is None:
        memory_split.call_worked(stage, task)
        return
    task = pristine_task(task)
    if not fault.memory:
        yield recover(stage, task, fault, tally)
        return
    memory_split.give_memory_back()
    if memory_split.can_be_cut(stage, task):
        assert isinstance(task, RecordTask)
        for half in memory_split.halves_after_failure(stage, task):
            yield from run_stage(stage, half, tally, buffered=buffered)
    elif last_try:
        yield set_aside(stage, task, fault, 2)
    else:
        tally.retries += 1
        yield from _run_piece(stage, task, tally, buffered=buffered, last_try=True)


def _run_generator(stage: Stage, task: Task, made: Iterator[Any]) -> Generator[Outcome, None, Fault | None]:
    """Yield what a generator gives, as it gives it; return what went wrong before its first result."""
    settlement = Settlement(task, stage.name)
    note = isolation.note_of(stage, [task])
    given_away = False
    while True:
        notes().begin(note, stage.timeout_s)
        try:
            outcome = settlement.adopt(next(made))
        except StopIteration:
            yield settlement.close()
            return None
        except ControlSignal:
            raise
        except BaseException as error:
            if not given_away:
                return Fault.of(error)
            if is_out_of_memory(error) and memory_split.can_be_cut(stage, task):
                memory_split.remember_sizes(stage).nbytes.ran_out(task.nbytes)
            raise TaskAborted(f"{stage.name} failed in the middle of {task.task_id}: {error_line(error)}") from error
        finally:
            notes().end()
        given_away = True
        yield outcome


def recover(stage: Stage, task: Task, fault: Fault, tally: StageTally) -> Outcome:
    """Try again as a whole, then by halves; quarantine what still fails."""
    attempts = 1
    while attempts < stage.max_attempts and not fault.memory:
        if fault.passes:
            time.sleep(pause_s(attempts))
        attempts += 1
        tally.retries += 1
        made = _run_whole(stage, task, tally)
        if isinstance(made, Outcome):
            return made
        fault = made
    return _split_or_set_aside(stage, task, fault, attempts, tally)


def pause_s(attempts: int) -> float:
    """Return how long to wait before a call that failed for something that passes is made again."""
    return float(min(MOST_PAUSE_S, PAUSE_S * 2 ** (attempts - 1)))


def pristine_task(task: Task) -> Task:
    """Return the task as it was given: a stage may have changed its data before it raised."""
    return task.restored() if isinstance(task, RecordTask) else task


def _run_whole(stage: Stage, task: Task, tally: StageTally) -> Outcome | Fault:
    if isolation.is_needed():
        cut = isolation.cut(stage, task)
        if not cut.is_whole:
            outcome = Outcome()
            for part in _run_cut(cut, tally, buffered=True):
                outcome.add(part)
            return outcome
    made = _attempt(stage, [task])
    return made if isinstance(made, Fault) else made[0]


def _split_or_set_aside(stage: Stage, task: Task, fault: Fault, attempts: int, tally: StageTally) -> Outcome:
    if not memory_split.can_be_cut(stage, task):
        return set_aside(stage, task, fault, attempts)
    assert isinstance(task, RecordTask)
    outcome = Outcome()
    for piece in task.halves():
        tally.retries += 1
        made = _run_whole(stage, piece, tally)
        outcome.add(made if isinstance(made, Outcome) else _split_or_set_aside(stage, piece, made, attempts + 1, tally))
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


def run_group(stage: Stage, tasks: list[Task], tally: StageTally) -> list[Outcome]:
    """Return the outcomes of several tasks of one call of `process_batch`, one for each task."""
    if any(map(is_carrier, tasks)):
        made = iter(run_group(stage, [task for task in tasks if not is_carrier(task)], tally))
        return [Outcome() if is_carrier(task) else next(made) for task in tasks]
    if len(tasks) < 2:
        return [_run_alone(stage, task, tally) for task in tasks]
    outcomes: list[Outcome] = []
    if BY_UNIT in stage.__dict__ and spans_units(tasks):
        return _run_by_unit(stage, tasks, tally)
    if isolation.is_needed() and isolation.wants_tasks_alone(stage, tasks):
        memory_split.begin_alone(stage)
        return [_run_alone(stage, task, tally) for task in tasks]
    for group in memory_split.groups_that_fit(stage, tasks):
        outcomes.extend(after_group(stage, group, tally, _attempt(stage, group)))
    return outcomes


def _attempt(stage: Stage, tasks: list[Task]) -> list[Outcome] | Fault:
    made = attempt(prepare(stage, tasks), buffered=True)
    assert isinstance(made, list | Fault), "a buffered call gives no generator"
    return made


def after_group(stage: Stage, tasks: list[Task], tally: StageTally, made: list[Outcome] | Fault) -> list[Outcome]:
    """Return the outcomes after a call for several tasks."""
    attempts = 1
    while isinstance(made, Fault) and made.passes and attempts < stage.max_attempts:
        time.sleep(pause_s(attempts))
        attempts += 1
        tally.retries += 1
        tasks = [pristine_task(task) for task in tasks]
        made = _attempt(stage, tasks)
    if not isinstance(made, Fault):
        memory_split.group_worked(stage, tasks)
        return made
    tasks = [pristine_task(task) for task in tasks]
    if made.kind == SpansUnits.__name__:
        stage.__dict__[BY_UNIT] = True
        return _run_by_unit(stage, tasks, tally)
    if made.memory:
        memory_split.give_memory_back()
        if len(tasks) > 1:
            first, second = memory_split.group_halves_after_failure(stage, tasks)
            return [*run_group(stage, first, tally), *run_group(stage, second, tally)]
    tally.retries += 1
    return [_run_alone(stage, task, tally) for task in tasks]


def _run_by_unit(stage: Stage, tasks: list[Task], tally: StageTally) -> list[Outcome]:
    """Call the stage once for the tasks of each unit, with which the records that are made of them are committed."""
    outcomes: dict[int, Outcome] = {}
    for unit in dict.fromkeys(map(unit_of, tasks)):
        places = [place for place, task in enumerate(tasks) if unit_of(task) == unit]
        made = run_group(stage, [tasks[place] for place in places], tally)
        outcomes.update(zip(places, made, strict=True))
    return [outcomes[place] for place in range(len(tasks))]


def _run_alone(stage: Stage, task: Task, tally: StageTally) -> Outcome:
    outcome = Outcome()
    for part in run_stage(stage, task, tally, buffered=True):
        outcome.add(part)
    return outcome
