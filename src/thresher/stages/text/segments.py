# SPDX-License-Identifier: Apache-2.0
"""Segments of documents, and batches of them, put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from thresher.core.batch import DocumentBatch


class Segment(NamedTuple):
    """A segment, or several that are joined."""

    row: int
    """Where it, or the first of them, stands in its batch."""
    text: str
    """What it says."""
    length: Any
    """How long it is, in whatever unit the user counts."""


def joined_pieces(segments: Sequence[Segment], separator: str, max_length: int | None) -> Iterator[Segment]:
    """Segments joined, in order, as far as the limit allows; a separator counts its characters."""
    first = 0
    length = segments[0].length
    for place in range(1, len(segments) + 1):
        if place < len(segments):
            longer = length + segments[place].length + len(separator)
            if max_length is None or longer <= max_length:
                length = longer
                continue
        text = separator.join([segment.text for segment in segments[first:place]])
        yield Segment(segments[first].row, text, length)
        if place < len(segments):
            first, length = place, segments[place].length


def own_copy(batch: DocumentBatch) -> DocumentBatch:
    """The same records in memory of their own: what a batch came in may be used again."""
    from thresher.core.records import RawLines

    if batch.raw_lines is None:
        return batch.take(range(len(batch)))
    ids = batch.take(range(len(batch))).ids
    assert ids is not None, "records that have lines have ids"
    return DocumentBatch.from_lines(RawLines.join(batch.json_lines()), ids, batch.dataset_name)


def without_column(batch: DocumentBatch, name: str) -> DocumentBatch:
    """The records without one of their fields."""
    other = batch.take(range(len(batch)))
    other._changed.pop(name, None)
    other._late = {late: column for late, column in other._late.items() if late != name}
    other._memo = {key: known for key, known in other._memo.items() if key[1] != name}
    table = other._table
    if table is not None and name in table.column_names:
        table = table.drop_columns([name])
        other._table = table if table.num_columns or other.raw_lines is None else None
        other._whole = other._whole and other._table is not None
    if other.raw_lines is not None:
        other._removed = other._removed | {name}
    return other
