# SPDX-License-Identifier: Apache-2.0
"""Splitting of batches after a stage runs out of memory: freed memory is returned, and the input is cut.

The size that succeeded is kept per stage and worker: later batches are cut to it before the call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from thresher.core.batching import FittingSize, note_split, release_accelerator_memory
from thresher.core.records.record_task import FailedRows, RecordTask
from thresher.core.stage import ProcessingStage
from thresher.core.task import Task

Stage = ProcessingStage[Any, Any]
HEAD_BYTES = 1000
"""Bytes that are kept of a record that cannot be kept whole."""


class CallSizes:
    """Input sizes that calls of one stage handle in this worker."""

    def __init__(self) -> None:
        self.nbytes = FittingSize()
        """Bytes of a batch."""
        self.tasks = FittingSize()
        """Tasks of a group (`batch_size`)."""


def sizes_of(stage: Stage) -> CallSizes | None:
    """Return the sizes of a stage that ran out of memory before; `None` for others."""
    found: CallSizes | None = stage.__dict__.get("_call_sizes")
    return found


def remember_sizes(stage: Stage) -> CallSizes:
    """Return the sizes of a stage; create them when it runs out of memory for the first time."""
    sizes: CallSizes = stage.__dict__.setdefault("_call_sizes", CallSizes())
    return sizes


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


def pieces_that_fit(stage: Stage, task: Task) -> Iterator[Task]:
    """Yield the task, cut in halves until every piece is as small as the size that last succeeded."""
    sizes = sizes_of(stage)
    limit = None if sizes is None else sizes.nbytes.limit
    if limit is None:
        yield task
        return
    for piece in _cut(stage, task, limit + limit // 8):  # the halves of a table are a little more than half of it
        if piece is not task:
            note_split(stage, piece.num_items, failed=False)
        yield piece


def _cut(stage: Stage, task: Task, limit: int) -> Iterator[Task]:
    if task.nbytes <= limit or not can_be_cut(stage, task):
        yield task
        return
    assert isinstance(task, RecordTask)
    for piece in task.halves():
        yield from _cut(stage, piece, limit)


def halves_after_failure(stage: Stage, batch: RecordTask) -> tuple[RecordTask, RecordTask]:
    """Record that a batch was too large, and return its halves."""
    remember_sizes(stage).nbytes.ran_out(batch.nbytes)
    first, second = batch.halves()
    note_split(stage, first.num_items)
    return first, second


def begin_alone(stage: Stage) -> None:
    """Start with one task per call, after a worker was killed while it processed several."""
    if sizes_of(stage) is None:
        remember_sizes(stage).tasks.ran_out(2)


def groups_that_fit(stage: Stage, tasks: list[Task]) -> Iterator[list[Task]]:
    """Yield the tasks of a group, as many at a time as last succeeded."""
    sizes = sizes_of(stage)
    limit = (None if sizes is None else sizes.tasks.limit) or len(tasks)
    for start in range(0, len(tasks), limit):
        yield tasks[start : start + limit]


def group_halves_after_failure(stage: Stage, tasks: list[Task]) -> tuple[list[Task], list[Task]]:
    """Record that a group was too large, and return its halves."""
    remember_sizes(stage).tasks.ran_out(len(tasks))
    middle = len(tasks) // 2
    note_split(stage, sum(task.num_items for task in tasks[:middle]))
    return tasks[:middle], tasks[middle:]


def call_worked(stage: Stage, task: Task) -> None:
    """Record that a call for one task succeeded; used only if one failed before."""
    sizes = sizes_of(stage)
    if sizes is not None:
        sizes.nbytes.worked(task.nbytes)


def group_worked(stage: Stage, tasks: list[Task]) -> None:
    """Record that a call for a group succeeded."""
    sizes = sizes_of(stage)
    if sizes is not None:
        sizes.tasks.worked(len(tasks))
