# SPDX-License-Identifier: Apache-2.0
"""Split batches and chunks after a stage runs out of memory: freed memory is returned, and the input is cut.

The size that succeeded is kept in the context of the stage: later batches are cut to it before the call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from thresher.core.batching import CallSizes, release_accelerator_memory
from thresher.core.records.record_task import FailedRows, RecordTask
from thresher.core.stage import ProcessingStage
from thresher.core.tally import StageContext
from thresher.core.task import Task

Stage = ProcessingStage[Any, Any]
HEAD_BYTES = 1000
"""Bytes that are kept of a record that cannot be kept whole."""


def remember_sizes(context: StageContext) -> CallSizes:
    """Return the sizes of a stage; create them when it runs out of memory for the first time."""
    if context.sizes is None:
        context.sizes = CallSizes()
    return context.sizes


def give_memory_back() -> None:
    """Return all freed memory to the system, so that the retry has as much as possible. Raise in a worker that has
    retained too much from earlier calls: its task goes to another worker instead of being retried."""
    from thresher.runtime.memory.usage import raise_if_full, release_freed

    gc.collect()
    release_accelerator_memory()
    release_freed()
    raise_if_full()


def only_heads(failed: FailedRows) -> FailedRows:
    """Return failed records with only the beginning of each, if there is no memory to write them whole."""
    lines = [bytes(line[:HEAD_BYTES]) for line in failed.lines]
    heads = lines if failed.batch is None else failed.batch.record_heads(HEAD_BYTES)
    return replace(failed, batch=None, lines=heads, ids=failed.record_ids)


def can_be_cut(stage: Stage, task: Task) -> bool:
    """Return True if the stage may be called with a part of the task."""
    return stage.row_wise and isinstance(task, RecordTask) and task.num_items > 1


def pieces_that_fit(context: StageContext, task: Task) -> Iterator[Task]:
    """Yield the task, cut in halves until every piece is as small as the size that last succeeded."""
    limit = None if context.sizes is None else context.sizes.nbytes.limit
    if limit is None:
        yield task
        return
    for piece in _cut(context.stage, task, limit + limit // 8):  # halves of a table are a little more than half of it
        if piece is not task:
            context.noted.note_splits(0, piece.num_items)
        yield piece


def _cut(stage: Stage, task: Task, limit: int) -> Iterator[Task]:
    if task.nbytes <= limit or not can_be_cut(stage, task):
        yield task
        return
    assert isinstance(task, RecordTask)
    for piece in task.halves():
        yield from _cut(stage, piece, limit)


def halves_after_failure(context: StageContext, batch: RecordTask) -> tuple[RecordTask, RecordTask]:
    """Record that a batch was too large, and return its halves."""
    remember_sizes(context).nbytes.ran_out(batch.nbytes)
    first, second = batch.halves()
    context.noted.note_splits(1, first.num_items)
    return first, second


def begin_alone(context: StageContext) -> None:
    """Start with one task per call, after a worker was killed while it processed several."""
    if context.sizes is None:
        remember_sizes(context).tasks.ran_out(2)


def groups_that_fit(context: StageContext, tasks: list[Task]) -> Iterator[list[Task]]:
    """Yield the tasks of a group, as many at a time as last succeeded."""
    limit = (None if context.sizes is None else context.sizes.tasks.limit) or len(tasks)
    for start in range(0, len(tasks), limit):
        yield tasks[start : start + limit]


def group_halves_after_failure(context: StageContext, tasks: list[Task]) -> tuple[list[Task], list[Task]]:
    """Record that a group was too large, and return its halves."""
    remember_sizes(context).tasks.ran_out(len(tasks))
    middle = len(tasks) // 2
    context.noted.note_splits(1, sum(task.num_items for task in tasks[:middle]))
    return tasks[:middle], tasks[middle:]
