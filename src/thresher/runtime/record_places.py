# SPDX-License-Identifier: Apache-2.0
"""Where records come from, as people are told."""

from __future__ import annotations

from thresher.core.batch import DocumentBatch, FailedRows
from thresher.core.task import RawChunk, Task
from thresher.runtime.death_notes import short_name

EXAMPLE_CHARACTERS = 200


def place_of(task: Task) -> str:
    """Where something was read."""
    if isinstance(task, RawChunk):
        return short_name(f"{task.source[1]} from byte {task.offset} on")
    ids = task.ids if isinstance(task, DocumentBatch) else None
    if ids is None or not len(ids):
        return short_name(task.task_id)
    return short_name(f"records from {ids.at(0)} on, of {ids.source_at(0)[1]} at {int(ids.positions[0])}")


def example_of(failed: FailedRows) -> str:
    """The first of some records that failed, and why."""
    ids = failed.batch.ids if failed.batch is not None else failed.ids
    text = f"{ids.at(0) if ids is not None and len(ids) else ''} {next(iter(failed.messages), '')}".strip()
    return "".join(c if c.isprintable() else " " for c in text[:EXAMPLE_CHARACTERS])
