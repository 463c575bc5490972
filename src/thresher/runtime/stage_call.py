# SPDX-License-Identifier: Apache-2.0
"""One stage on one task, whatever its code does: tried again, split by halves, and the record that fails set aside.

Never raises for a record. What can not be laid at a record's door (a generator that fails after it gave something)
raises `TaskAborted`, and the unit starts again.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator
from typing import Any

from thresher.core.batch import DocumentBatch, FailedRows, concat_batches
from thresher.core.stage import ProcessingStage, overrides
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.runtime.settle import Outcome, Settlement, settle, settle_many

Stage = ProcessingStage[Any, Any]
_RUNTIME = os.path.dirname(__file__)
Failure = (Exception, SystemExit)
"""What a stage's own code may raise; a crash of the process is the scheduler's business."""


class TaskAborted(Exception):
    """A stage failed after a part of its result had left: the unit must start again."""


def invoke(stage: Stage, task: Task) -> Any:
    """Call the method that the author wrote; one entry for one task."""
    if overrides(stage, "process_batch") and not overrides(stage, "process"):
        entries = list(stage.process_batch([task]))
        return entries[0] if len(entries) == 1 else entries
    return stage.process(task)


def run_stage(stage: Stage, task: Task, tally: StageTally, *, buffered: bool) -> Iterator[Outcome]:
    """Outcomes of one task, one by one where the stage is a generator (unless `buffered`), else just one."""
    try:
        made = invoke(stage, task)
        if not isinstance(made, Iterator):
            yield settle(task, made, stage.name)
            return
        if buffered:
            yield settle_many(task, list(made), stage.name)
            return
    except Failure as error:
        yield recover(stage, task, error, tally)
        return
    yield from _run_generator(stage, task, made, tally)


def _run_generator(stage: Stage, task: Task, made: Iterator[Any], tally: StageTally) -> Iterator[Outcome]:
    settlement = Settlement(task, stage.name)
    given_away = False
    while True:
        try:
            outcome = settlement.adopt(next(made))
        except StopIteration:
            yield settlement.close()
            return
        except Failure as error:
            if given_away:
                raise TaskAborted(f"{stage.name} failed in the middle of {task.task_id}: {error!r}") from error
            yield recover(stage, task, error, tally)
            return
        given_away = True
        yield outcome


def recover(stage: Stage, task: Task, error: BaseException, tally: StageTally) -> Outcome:
    """Try again as a whole, then by halves; what still fails is set aside."""
    if isinstance(task, DocumentBatch):
        # The stage may have set the data of the batch before it raised.
        task = _pristine(task)
    attempts = 1
    while attempts < stage.max_attempts and not isinstance(error, MemoryError):
        attempts += 1
        tally.retries += 1
        try:
            return _run_whole(stage, task)
        except Failure as again:
            error = again
    return _split_or_set_aside(stage, task, error, attempts, tally)


def _pristine(batch: DocumentBatch) -> DocumentBatch:
    from thresher.core.reconcile import pristine

    return pristine(batch)


def _run_whole(stage: Stage, task: Task) -> Outcome:
    return _settle_entry(stage, task, invoke(stage, task))


def _split_or_set_aside(stage: Stage, task: Task, error: BaseException, attempts: int, tally: StageTally) -> Outcome:
    if not (stage.row_wise and isinstance(task, DocumentBatch) and len(task) > 1):
        return Outcome(failed=[failed_task(task, error, attempts)])
    middle = len(task) // 2
    outcome = Outcome()
    for rows in (range(middle), range(middle, len(task))):
        piece = task.take(list(rows))
        tally.retries += 1
        try:
            outcome.add(_run_whole(stage, piece))
        except Failure as again:
            outcome.add(_split_or_set_aside(stage, piece, again, attempts + 1, tally))
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


def failed_task(task: Task, error: BaseException, attempts: int) -> FailedRows:
    """All records of a task, set aside because of `error`."""
    text = own_traceback(error)
    kind, message = type(error).__name__, str(error) or type(error).__name__
    if isinstance(task, DocumentBatch):
        return FailedRows(task, kind, [message] * len(task), text, attempts)
    return FailedRows(
        None, kind, [message], text, attempts, [repr(task.data)[:1000].encode()], extra={"id": task.task_id}
    )


def run_group(stage: Stage, tasks: list[Task], tally: StageTally) -> list[Outcome]:
    """Outcomes of several tasks that go through one call of `process_batch`; one entry per task."""
    try:
        entries = list(stage.process_batch(tasks))
        if len(entries) != len(tasks):
            raise ValueError(
                f"{stage.name}.process_batch got {len(tasks)} tasks and gave {len(entries)} entries; "
                "give one entry (task, list or None) per task, in order"
            )
        return [_settle_entry(stage, task, made) for task, made in zip(tasks, entries, strict=True)]
    except Failure:
        tally.retries += 1
    outcomes = []
    for task in tasks:
        try:
            outcomes.append(_run_whole(stage, task))
        except Failure as error:
            outcomes.append(recover(stage, task, error, tally))
    return outcomes


def _settle_entry(stage: Stage, task: Task, made: Any) -> Outcome:
    return settle_many(task, list(made), stage.name) if isinstance(made, Iterator) else settle(task, made, stage.name)
