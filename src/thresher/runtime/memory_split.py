# SPDX-License-Identifier: Apache-2.0
"""What a worker does where memory runs out in a stage: it gives memory back and cuts what the stage is given.

The size that worked is kept for the stage in this worker: later batches are cut to it before the call.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from thresher.core.batch import DocumentBatch, FailedRows
from thresher.core.batching import FittingSize, note_split
from thresher.core.out_of_memory import release_accelerator_memory
from thresher.core.stage import ProcessingStage
from thresher.core.task import Task

Stage = ProcessingStage[Any, Any]
HEAD_BYTES = 1000
"""How much is kept of a record that cannot be kept whole."""


class CallSizes:
    """What calls of one stage may take in this worker."""

    def __init__(self) -> None:
        self.nbytes = FittingSize()
        """Bytes of a batch."""
        self.tasks = FittingSize()
        """Tasks of a group (`batch_size`)."""


def sizes_of(stage: Stage) -> CallSizes | None:
    """The sizes of a stage that ran out of memory before; `None` for one that never did."""
    found: CallSizes | None = stage.__dict__.get("_call_sizes")
    return found


def remember_sizes(stage: Stage) -> CallSizes:
    """The sizes of a stage, made where it runs out of memory for the first time."""
    sizes: CallSizes = stage.__dict__.setdefault("_call_sizes", CallSizes())
    return sizes


def give_memory_back() -> None:
    """Everything that is free goes back to the system, so that the next try finds as much as there is. In a worker that
    has kept too much from earlier calls there is no next try: what it works on goes to another one."""
    from thresher.runtime.memory import raise_if_full, release_freed

    gc.collect()
    release_accelerator_memory()
    release_freed()
    raise_if_full()


def only_heads(failed: FailedRows) -> FailedRows:
    """Failed records with no more than the beginning of each, where there is no memory to write them down whole."""
    raw = None if failed.batch is None else failed.batch.raw_lines
    heads = [bytes(line[:HEAD_BYTES]) for line in (failed.lines if raw is None else raw.lines())]
    ids = failed.ids if failed.batch is None else failed.batch.ids
    return replace(failed, batch=None, lines=heads, ids=ids)


def can_be_cut(stage: Stage, task: Task) -> bool:
    """Whether a part of the task may be given to the stage."""
    return stage.row_wise and isinstance(task, DocumentBatch) and len(task) > 1


def pieces_that_fit(stage: Stage, task: Task) -> Iterator[Task]:
    """The task, cut by halves until every piece is as small as what worked last."""
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
    assert isinstance(task, DocumentBatch)
    for piece in halves(task):
        yield from _cut(stage, piece, limit)


def halves(batch: DocumentBatch) -> tuple[DocumentBatch, DocumentBatch]:
    """The first and the second half of the records."""
    middle = len(batch) // 2
    return batch.take(range(middle)), batch.take(range(middle, len(batch)))


def halves_after_failure(stage: Stage, batch: DocumentBatch) -> tuple[DocumentBatch, DocumentBatch]:
    """The halves of a batch that was too much; that it was is remembered and shown in the report."""
    remember_sizes(stage).nbytes.ran_out(batch.nbytes)
    first, second = halves(batch)
    note_split(stage, len(first))
    return first, second


def begin_alone(stage: Stage) -> None:
    """A worker was killed while it worked on several tasks at once: this one begins with one at a time."""
    if sizes_of(stage) is None:
        remember_sizes(stage).tasks.ran_out(2)


def groups_that_fit(stage: Stage, tasks: list[Task]) -> Iterator[list[Task]]:
    """The tasks of a group, as many at a time as worked last."""
    sizes = sizes_of(stage)
    limit = (None if sizes is None else sizes.tasks.limit) or len(tasks)
    for start in range(0, len(tasks), limit):
        yield tasks[start : start + limit]


def group_halves_after_failure(stage: Stage, tasks: list[Task]) -> tuple[list[Task], list[Task]]:
    """The halves of a group that was too much."""
    remember_sizes(stage).tasks.ran_out(len(tasks))
    middle = len(tasks) // 2
    note_split(stage, sum(task.num_items for task in tasks[:middle]))
    return tasks[:middle], tasks[middle:]


def call_worked(stage: Stage, task: Task) -> None:
    """A call for one task went well; only of interest where one went badly before."""
    sizes = sizes_of(stage)
    if sizes is not None:
        sizes.nbytes.worked(task.nbytes)


def group_worked(stage: Stage, tasks: list[Task]) -> None:
    """A call for a group went well."""
    sizes = sizes_of(stage)
    if sizes is not None:
        sizes.tasks.worked(len(tasks))
