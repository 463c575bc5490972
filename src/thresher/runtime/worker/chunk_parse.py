# SPDX-License-Identifier: Apache-2.0
"""Parsing a chunk where memory may run out: less at a time, and a record that does not fit alone is set aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thresher.core.records.record_task import RecordTask
from thresher.core.source import failed_record
from thresher.core.stage import SourceStage
from thresher.core.task import RawChunk, Task
from thresher.runtime.memory.split import HEAD_BYTES, give_memory_back
from thresher.stage_errors import OUT_OF_MEMORY, is_out_of_memory

Source = SourceStage[Any]


def parse_within_memory(source: Source, task: Task) -> Iterator[RecordTask]:
    """The records of a chunk: one batch, or several where memory ran out. Raises for a task that may not be cut."""
    batch = _try(source, task)
    if batch is not None:
        yield batch
        return
    give_memory_back()
    pieces = task.halves() if isinstance(task, RawChunk) else []
    for piece in pieces:
        yield from parse_within_memory(source, piece)
    if pieces:
        return
    batch = _try(source, task)
    if batch is None:
        if not isinstance(task, RawChunk):
            raise MemoryError(f"memory ran out twice while {source.name} parsed {task!r}")
        message = "memory ran out twice while the record was parsed; give the run more memory, or leave the record out"
        head = bytes(memoryview(task.data).cast("B")[:HEAD_BYTES])
        batch = failed_record(task.source, task.offset, OUT_OF_MEMORY, message, head, attempts=2)
    yield batch


def _try(source: Source, task: Task) -> RecordTask | None:
    """`None` where memory ran out; the error has gone then, with all that it held."""
    try:
        batch: RecordTask = source.parse(task)
        return batch
    except Exception as error:  # libraries say in many ways that memory ran out
        if not is_out_of_memory(error):
            raise
        return None
