# SPDX-License-Identifier: Apache-2.0
"""Parsing a chunk where memory may run out: less at a time, and the line that does not fit alone is set aside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thresher.core.batch import DocumentBatch, FailedRows
from thresher.core.out_of_memory import OUT_OF_MEMORY, is_out_of_memory
from thresher.core.stage import SourceStage
from thresher.core.task import RawChunk, Task
from thresher.runtime.memory_split import HEAD_BYTES, give_memory_back

Source = SourceStage[Any]


def parse_within_memory(source: Source, task: Task) -> Iterator[DocumentBatch]:
    """The records of a chunk: one batch, or several where memory ran out. Raises for a task that may not be cut."""
    batch = _try(source, task)
    if batch is not None:
        yield batch
        return
    give_memory_back()
    pieces = _halves(task) if isinstance(task, RawChunk) else []
    for piece in pieces:
        yield from parse_within_memory(source, piece)
    if pieces:
        return
    batch = _try(source, task)
    if batch is None and not isinstance(task, RawChunk):
        raise MemoryError(f"memory ran out twice while {source.name} parsed {task!r}")
    yield batch if batch is not None else _set_aside(task)


def _try(source: Source, task: Task) -> DocumentBatch | None:
    """`None` where memory ran out; the error has gone then, with all that it held."""
    try:
        batch: DocumentBatch = source.parse(task)
        return batch
    except Exception as error:  # libraries say in many ways that memory ran out
        if not is_out_of_memory(error):
            raise
        return None


def _halves(chunk: RawChunk) -> list[RawChunk]:
    """The chunk cut at the line end nearest before its middle, or else after it; empty for a single line."""
    view = memoryview(chunk.data).cast("B")
    middle = _line_end(view)
    if not 0 < middle < view.nbytes:
        return []
    cuts = ((0, view[:middle]), (middle, view[middle:]))
    return [RawChunk(part, chunk.offset + start, chunk.source, chunk.dataset_name) for start, part in cuts]


def _line_end(view: memoryview, stretch: int = 2**16) -> int:
    """Where the second half begins; looked for by stretches, because there is no memory for copies."""
    middle = view.nbytes // 2
    for end in range(middle, 0, -stretch):
        start = max(0, end - stretch)
        found = bytes(view[start:end]).rfind(b"\n")
        if found >= 0:
            return start + found + 1
    for start in range(middle, view.nbytes, stretch):
        found = bytes(view[start : start + stretch]).find(b"\n")
        if found >= 0:
            return start + found + 1
    return 0


def _set_aside(task: Task) -> DocumentBatch:
    import numpy as np

    from thresher.core.records import RawLines, RecordIds

    assert isinstance(task, RawChunk)
    view = memoryview(task.data).cast("B")
    message = (
        f"{task.source[1]}, byte {task.offset}: memory ran out twice while the line was parsed; "
        "give the run more memory, or leave the record out"
    )
    ids = RecordIds((task.source,), np.array([task.offset], dtype=np.int64))
    none: Any = np.zeros(0, dtype=np.int64)
    batch = DocumentBatch.from_lines(RawLines(b"", none, none), RecordIds((task.source,), none))
    head = bytes(view[:HEAD_BYTES])
    batch._failed.append(FailedRows(None, OUT_OF_MEMORY, [message], attempts=2, lines=[head], ids=ids))
    return batch
