# SPDX-License-Identifier: Apache-2.0
"""Columns of token ids: one list of whole numbers per document, in any form that a file or a stage may give them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from thresher.core.documents.batch import DocumentBatch

Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class TokenLists:
    """The token ids of some documents."""

    ids: Numbers
    """All ids, one document after the other."""
    offsets: npt.NDArray[np.int64]
    """Where each document begins in `ids`, and where the last one ends."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each document."""
        return np.diff(self.offsets)

    def followed_by(self, end_id: int) -> TokenLists:
        """Return the lists with `end_id` after each of them."""
        ends = np.full(len(self), end_id, dtype=self.ids.dtype)
        return TokenLists(np.insert(self.ids, self.offsets[1:], ends), self.offsets + np.arange(len(self) + 1))

    def to_arrow(self, kind: str) -> pa.ListArray:
        """Return the lists as an Arrow array with ids of this type."""
        offsets = pa.array(self.offsets.astype(np.int32))
        return pa.ListArray.from_arrays(offsets, pa.array(self.ids.astype(kind, copy=False)))


def lists_of(array: pa.Array | pa.ChunkedArray) -> TokenLists:
    """Return the lists of an Arrow array that has no nulls; its type is a list of integers."""
    whole = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) and array.num_chunks else array
    if isinstance(whole, pa.ChunkedArray):  # no rows
        whole = pa.array([], whole.type)
    offsets = np.asarray(whole.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    return TokenLists(np.asarray(whole.values[first:last]), offsets - first)


def token_lists(batch: DocumentBatch, field: str, limit: int) -> tuple[DocumentBatch, TokenLists]:
    """Return the batch without records whose `field` is not a list of ids below `limit`, and the lists of the others.

    `batch` has named records: those without such a list are set aside.
    """
    column = batch.column(field)
    if _is_plain(column):
        found = lists_of(column)
        if not len(found.ids) or (int(found.ids.min()) >= 0 and int(found.ids.max()) < limit):
            return batch, found
    values = batch.values(field)
    unfit = [row for row, value in enumerate(values) if not _is_token_list(value, limit)]
    if unfit:
        messages = [_message(field, values[row], limit) for row in unfit]
        missing = [values[row] is None for row in unfit]
        batch = _without(batch, unfit, missing, messages)
        values = [value for row, value in enumerate(values) if row not in set(unfit)]
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    nested = getattr(column.type, "value_type", None)
    kind = nested.to_pandas_dtype() if nested is not None and pa.types.is_integer(nested) else np.int64
    ids = np.fromiter((one for value in values for one in value), kind, int(lengths.sum()))
    return batch, TokenLists(ids, np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))))


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Return True if a column has nothing but lists of integers."""
    kind = column.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)) or not pa.types.is_integer(kind.value_type):
        return False
    return not column.null_count and not any(chunk.values.null_count for chunk in column.chunks)


def _is_token_list(value: Any, limit: int) -> bool:
    return isinstance(value, list) and all(type(one) is int and 0 <= one < limit for one in value)


def _message(field: str, value: Any, limit: int) -> str:
    wanted = f"a list of token ids from 0 to {limit - 1:,} is needed"
    if value is None:
        return f"field {field!r} is missing or null, {wanted}"
    if not isinstance(value, list):
        return f"field {field!r} holds {value!r:.60}, {wanted}"
    place, wrong = next((n, one) for n, one in enumerate(value) if not _is_token_list([one], limit))
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
