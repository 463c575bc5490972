# SPDX-License-Identifier: Apache-2.0
"""Columns of token ids: one list of whole numbers per document, in any form that a file or a stage may give them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from thresher.core.documents.batch import DocumentBatch
from thresher.models.token_lists import TokenLists


def token_lists(batch: DocumentBatch, field: str, limit: int) -> tuple[DocumentBatch, TokenLists]:
    """Return the batch without records whose `field` is not a list of ids below `limit`, and the lists of the others.

    `batch` has named records: those without such a list are set aside.
    """
    column = batch.column(field)
    if is_plain(column):
        found = TokenLists.of_column(column)
        if not len(found.ids) or (int(found.ids.min()) >= 0 and int(found.ids.max()) < limit):
            return batch, found
    values = batch.values(field)
    unfit = [row for row, value in enumerate(values) if not is_token_list(value, limit)]
    if unfit:
        messages = [_message(field, values[row], limit) for row in unfit]
        missing = [values[row] is None for row in unfit]
        batch = _without(batch, unfit, missing, messages)
        values = [value for row, value in enumerate(values) if row not in set(unfit)]
    nested = getattr(column.type, "value_type", None)
    kind = nested.to_pandas_dtype() if nested is not None and pa.types.is_integer(nested) else np.int64
    return batch, TokenLists.of(values, kind)


def without_empty(batch: DocumentBatch, lists: TokenLists) -> tuple[DocumentBatch, TokenLists]:
    """Return the batch without the documents that have no tokens, and the lists of the others."""
    empty = np.flatnonzero(lists.lengths == 0)
    if not len(empty):
        return batch, lists
    return batch.drop(empty, "no-tokens"), TokenLists(lists.ids, np.delete(lists.offsets, empty))


def is_plain(column: pa.ChunkedArray) -> bool:
    """Return True if a column has nothing but lists of integers."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        return False
    return not column.null_count and not any(chunk.values.null_count for chunk in column.chunks)


def is_token_list(value: Any, limit: int) -> bool:
    """Return True if a value is a list of ids below `limit`."""
    return isinstance(value, list) and all(type(one) is int and 0 <= one < limit for one in value)


def _message(field: str, value: Any, limit: int) -> str:
    wanted = f"a list of token ids from 0 to {limit - 1:,} is needed"
    if value is None:
        return f"field {field!r} is missing or null, {wanted}"
    if not isinstance(value, list):
        return f"field {field!r} holds {value!r:.60}, {wanted}"
    place, wrong = next((n, one) for n, one in enumerate(value) if not is_token_list([one], limit))
    return f"field {field!r} holds {wrong!r:.40} at position {place:,}, {wanted}"


def _without(batch: DocumentBatch, rows: list[int], missing: list[bool], messages: list[str]) -> DocumentBatch:
    """Return the batch without `rows`: those that lack the field, and those that hold something else."""
    lacking = [row for row, lacks in zip(rows, missing, strict=True) if lacks]
    others = [row for row, lacks in zip(rows, missing, strict=True) if not lacks]
    if others:
        kept = [message for message, lacks in zip(messages, missing, strict=True) if not lacks]
        batch = batch.set_aside(others, "not-token-ids", kept)
    if lacking:
        left = [row - sum(other < row for other in others) for row in lacking]
        kept = [message for message, lacks in zip(messages, missing, strict=True) if lacks]
        batch = batch.set_aside(left, "field-missing", kept)
    return batch
