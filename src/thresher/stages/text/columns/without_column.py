# SPDX-License-Identifier: Apache-2.0
"""Remove a field from documents."""

from __future__ import annotations

from thresher.core.documents.batch import DocumentBatch


def without_column(batch: DocumentBatch, name: str) -> DocumentBatch:
    """Return the records without one of their fields."""
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
