# SPDX-License-Identifier: Apache-2.0
"""One stage on one task, whatever its code does: tried again, split by halves, and the record that fails set aside.

Where memory ran out the same is not tried again: memory is given back, and the stage gets half as much at a time.
Never raises for a record. What can not be laid at a record's door (a generator that fails after it gave something)
raises `TaskAborted`, and the unit starts again.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from thresher.core.batch import DocumentBatch, FailedRows, concat_batches
from thresher.core.out_of_memory import OUT_OF_MEMORY, is_out_of_memory
from thresher.core.passing_errors import may_pass
from thresher.core.scores import JudgingStage
from thresher.core.stage import ProcessingStage, overrides
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.runtime import isolation, memory_split
from thresher.runtime.attendant import call_stage
from thresher.runtime.death_notes import Note, notes
from thresher.runtime.settle import Outcome, Settlement, settle, settle_judged, settle_many

Stage = ProcessingStage[Any, Any]
_RUNTIME = os.path.dirname(__file__)
Failure = (Exception, SystemExit)
"""What a stage's own code may raise; a crash of the process is the scheduler's business."""
GATHERED = 256
"""Results of single records that are put together before they go on."""
PAUSE_S = 0.25
"""Time before a call that failed for something that passes is made again; doubled with each failure."""
MOST_PAUSE_S = 10.0


class TaskAborted(Exception):
    """A stage failed after a part of its result had left: the unit must start again."""


@dataclass(frozen=True)
class Fault:
    """What is kept of an error. The error itself would keep everything alive that the frames it went through held."""

    kind: str
    """The name of its type, or `out-of-memory`."""
    message: str
    """What it says."""
    traceback: str
    """Where a stage's code raised."""
    memory: bool
    """Whether memory ran out."""
    passes: bool = False
    """Whether the same call may work a little later."""

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """What there is to say of `error`; the frames that it went through let go of what they held."""
        traceback.clear_frames(error.__traceback__)
        name = type(error).__name__
        text = str(error) or name
        if not is_out_of_memory(error):
            return cls(name, text, own_traceback(error), memory=False, passes=may_pass(error))
        advice = "give the run more memory, or let the stage need less"
        return cls(OUT_OF_MEMORY, f"memory ran out ({name}: {text}); {advice}", own_traceback(error), memory=True)


def invoke(stage: Stage, task: Task) -> Any:
    """Call the method that the author wrote; one entry for one task."""
    if overrides(stage, "process_batch") and not overrides(stage, "process"):
        entries = list(call_stage(stage.process_batch, [task]))
        return entries[0] if len(entries) == 1 else entries
    return call_stage(stage.process, task)


def run_stage(stage: Stage, task: Task, tally: StageTally, *, buffered: bool, evidence: int = 0) -> Iterator[Outcome]:
    """Outcomes of one task: one by one where the stage is a generator (unless `buffered`), else one for each piece that
    memory allows, or that the deaths of other workers advise; which is mostly the whole. `evidence`: what is known
    against a larger task that this one was cut from."""
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
    """The parts of a task that workers died on, or on one like it."""
    gathered = Outcome()
    for part in cut.parts:
        if part.charge is not None:
            fault = Fault(part.charge.error, part.charge.message, "", memory=False)
            gathered.add(Outcome(failed=[failed_task(part.task, fault, part.charge.deaths)]))
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
    """The outcomes of single records as one, so that later stages get batches again."""
    if gathered != Outcome():
        gathered.tasks = _put_together(gathered.tasks)
        yield gathered


def _run_record(stage: Stage, record: Task, tally: StageTally, evidence: int) -> Outcome:
    """One record in isolation: what it does is noted before the call."""
    outcome = Outcome()
    for part in _run_piece(stage, record, tally, buffered=True, evidence=evidence):
        outcome.add(part)
    return outcome


def _run_piece(
    stage: Stage, task: Task, tally: StageTally, *, buffered: bool, last_try: bool = False, evidence: int = 0
) -> Iterator[Outcome]:
    made = _attempt(stage, task, buffered=buffered, evidence=evidence)
    if isinstance(made, Outcome):
        memory_split.call_worked(stage, task)
        return iter((made,))
    return go_on(stage, task, tally, made, buffered=buffered, last_try=last_try)


def go_on(
    stage: Stage, task: Task, tally: StageTally, made: Fault | Iterator[Any], *, buffered: bool, last_try: bool = False
) -> Iterator[Outcome]:
    """After a call that gave a generator, or failed."""
    fault = made if isinstance(made, Fault) else (yield from _run_generator(stage, task, made))
    if fault is None:
        memory_split.call_worked(stage, task)
        return
    task = _pristine(task)
    if not fault.memory:
        yield recover(stage, task, fault, tally)
        return
    memory_split.give_memory_back()
    if memory_split.can_be_cut(stage, task):
        assert isinstance(task, DocumentBatch)
        for half in memory_split.halves_after_failure(stage, task):
            yield from run_stage(stage, half, tally, buffered=buffered)
    elif last_try:
        yield Outcome(failed=[failed_task(task, fault, 2)])
    else:
        tally.retries += 1
        yield from _run_piece(stage, task, tally, buffered=buffered, last_try=True)


def _attempt(stage: Stage, task: Task, *, buffered: bool, evidence: int = 0) -> Outcome | Fault | Iterator[Any]:
    """The outcome of a call, what went wrong in it, or the generator that it gave."""
    note = isolation.note_of(stage, [task], evidence)
    notes().begin(note, stage.timeout_s)
    try:
        made: Any = invoke(stage, task)
        if isinstance(made, Task) or not isinstance(made, Iterator):
            return settled(stage, task, made)
        return settle_many(task, _drained(stage, note, made), stage.name) if buffered else made
    except Failure as error:
        return Fault.of(error)
    finally:
        notes().end()


def settled(stage: Stage, task: Task, made: Any) -> Outcome:
    """The outcome of a call that gave `made`."""
    if isinstance(stage, JudgingStage) and isinstance(task, DocumentBatch) and stage.only_judges:
        assert isinstance(made, DocumentBatch)
        if task._before is None:
            return settle_judged(task, made)
    return settle(task, made, stage.name)


def _drained(stage: Stage, note: Note, made: Iterator[Any]) -> list[Any]:
    """Everything that a generator gives; each of its steps has the time of a call."""
    given = []
    for result in made:
        given.append(result)
        notes().begin(note, stage.timeout_s)
    return given


def _run_generator(stage: Stage, task: Task, made: Iterator[Any]) -> Generator[Outcome, None, Fault | None]:
    """What a generator gives, as it gives it; the result is what went wrong before it gave anything."""
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
        except Failure as error:
            if not given_away:
                return Fault.of(error)
            if is_out_of_memory(error) and memory_split.can_be_cut(stage, task):
                memory_split.remember_sizes(stage).nbytes.ran_out(task.nbytes)
            raise TaskAborted(f"{stage.name} failed in the middle of {task.task_id}: {error!r}") from error
        finally:
            notes().end()
        given_away = True
        yield outcome


def recover(stage: Stage, task: Task, fault: Fault, tally: StageTally) -> Outcome:
    """Try again as a whole, then by halves; what still fails is set aside."""
    attempts = 1
    while attempts < stage.max_attempts and not fault.memory:
        if fault.passes:
            time.sleep(min(MOST_PAUSE_S, PAUSE_S * 2 ** (attempts - 1)))
        attempts += 1
        tally.retries += 1
        made = _run_whole(stage, task, tally)
        if isinstance(made, Outcome):
            return made
        fault = made
    return _split_or_set_aside(stage, task, fault, attempts, tally)


def _pristine(task: Task) -> Task:
    """The task as it was given: a stage may have set the data of a batch before it raised."""
    if not isinstance(task, DocumentBatch):
        return task
    from thresher.core.reconcile import pristine

    return pristine(task)


def _run_whole(stage: Stage, task: Task, tally: StageTally) -> Outcome | Fault:
    if isolation.is_needed():
        cut = isolation.cut(stage, task)
        if not cut.is_whole:
            outcome = Outcome()
            for part in _run_cut(cut, tally, buffered=True):
                outcome.add(part)
            return outcome
    made = _attempt(stage, task, buffered=True)
    assert isinstance(made, Outcome | Fault), "a buffered call gives no generator"
    return made


def _split_or_set_aside(stage: Stage, task: Task, fault: Fault, attempts: int, tally: StageTally) -> Outcome:
    if not memory_split.can_be_cut(stage, task):
        return Outcome(failed=[failed_task(task, fault, attempts)])
    assert isinstance(task, DocumentBatch)
    outcome = Outcome()
    for piece in memory_split.halves(task):
        tally.retries += 1
        made = _run_whole(stage, piece, tally)
        outcome.add(made if isinstance(made, Outcome) else _split_or_set_aside(stage, piece, made, attempts + 1, tally))
    outcome.tasks = _put_together(outcome.tasks)
    return outcome


def _put_together(tasks: list[Task]) -> list[Task]:
    batches = [task for task in tasks if isinstance(task, DocumentBatch)]
    if len(batches) == len(tasks) > 1:
        return [concat_batches(batches)]
    return tasks


def own_traceback(error: BaseException) -> str:
    """Where a stage's code raised; the frames of the framework above it say nothing to its author."""
    frames = traceback.extract_tb(error.__traceback__)
    while len(frames) > 1 and frames[0].filename.startswith(_RUNTIME):
        del frames[0]
    lines = traceback.format_list(frames) + traceback.format_exception_only(error)
    return "Traceback (most recent call last):\n" + "".join(lines).rstrip()


def failed_task(task: Task, fault: Fault, attempts: int) -> FailedRows:
    """All records of a task, set aside because of `fault`."""
    if isinstance(task, DocumentBatch):
        return FailedRows(task, fault.kind, [fault.message] * len(task), fault.traceback, attempts)
    line = repr(task.data)[:1000].encode()
    return FailedRows(None, fault.kind, [fault.message], fault.traceback, attempts, [line], extra={"id": task.task_id})


# -- several tasks in one call ----------------------------------------------------------------------------------------


def run_group(stage: Stage, tasks: list[Task], tally: StageTally) -> list[Outcome]:
    """Outcomes of several tasks that go through one call of `process_batch`; one entry per task."""
    outcomes: list[Outcome] = []
    if isolation.is_needed() and isolation.wants_tasks_alone(stage, tasks):
        memory_split.begin_alone(stage)
        return [_run_alone(stage, task, tally) for task in tasks]
    for group in memory_split.groups_that_fit(stage, tasks):
        outcomes.extend(_run_one_group(stage, group, tally))
    return outcomes


def _run_one_group(stage: Stage, tasks: list[Task], tally: StageTally) -> list[Outcome]:
    return after_group(stage, tasks, tally, _attempt_group(stage, tasks))


def after_group(stage: Stage, tasks: list[Task], tally: StageTally, made: list[Outcome] | Fault) -> list[Outcome]:
    """After a call for several tasks."""
    if not isinstance(made, Fault):
        memory_split.group_worked(stage, tasks)
        return made
    tasks = [_pristine(task) for task in tasks]
    if made.memory:
        memory_split.give_memory_back()
        if len(tasks) > 1:
            first, second = memory_split.group_halves_after_failure(stage, tasks)
            return [*run_group(stage, first, tally), *run_group(stage, second, tally)]
    tally.retries += 1
    return [_run_alone(stage, task, tally) for task in tasks]


def _attempt_group(stage: Stage, tasks: list[Task]) -> list[Outcome] | Fault:
    notes().begin(isolation.note_of(stage, tasks), stage.timeout_s)
    try:
        return settled_entries(stage, tasks, list(call_stage(stage.process_batch, tasks)))
    except Failure as error:
        return Fault.of(error)
    finally:
        notes().end()


def settled_entries(stage: Stage, tasks: list[Task], entries: list[Any]) -> list[Outcome]:
    """The outcomes of a call for several tasks that gave `entries`."""
    if len(entries) != len(tasks):
        raise ValueError(
            f"{stage.name}.process_batch got {len(tasks)} tasks and gave {len(entries)} entries; "
            "give one entry (task, list or None) per task, in order"
        )
    return [_settle_entry(stage, task, made) for task, made in zip(tasks, entries, strict=True)]


def _run_alone(stage: Stage, task: Task, tally: StageTally) -> Outcome:
    outcome = Outcome()
    for part in run_stage(stage, task, tally, buffered=True):
        outcome.add(part)
    return outcome


def _settle_entry(stage: Stage, task: Task, made: Any) -> Outcome:
    return settle_many(task, list(made), stage.name) if isinstance(made, Iterator) else settle(task, made, stage.name)
