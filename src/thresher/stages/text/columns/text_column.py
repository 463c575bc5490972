# SPDX-License-Identifier: Apache-2.0
"""The texts of a batch for rules: as bytes for kernels, as Python strings for user code.

Both are created once per batch and cached in it. Batches derived from another by dropping records share the same texts
and counts: only the indices of their records are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import MOST_REMEMBERED, VALUE, DocumentBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.documents.records import RawLines
    from thresher.kernels.counts.text_counts import Texts

Rows = npt.NDArray[np.int64]
COLUMN = "text-column"
"""The key under which a batch caches its `TextColumn`."""
NO_TEXT = -1


class RecordTexts(Protocol):
    """The interface of a batch's texts for rules."""

    def has_text(self, records: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of the records that have a string in the column."""
        ...

    def strings(self, records: Rows) -> list[str]:
        """Return the texts of records that have one."""
        ...


class PlainTexts:
    """Texts as Python strings, where no kernel is used."""

    def __init__(self, values: list[Any]) -> None:
        """`values`: all values of the column, strings and others."""
        self._values = values

    def has_text(self, records: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of the records that have a string in the column."""
        values = self._values
        return np.array([isinstance(values[record], str) for record in records.tolist()], dtype=np.bool_)

    def strings(self, records: Rows) -> list[str]:
        """Return the texts of records that have one."""
        values = self._values
        return [values[record] for record in records.tolist()]


class TextColumn:
    """Texts as bytes, and their counts. Columns of derived batches share everything but `rows`."""

    __slots__ = ("_strings", "counts", "rows", "texts")

    def __init__(self, texts: Texts, rows: Rows, like: TextColumn | None = None) -> None:
        """`like`: a column of the same texts."""
        from thresher.kernels.counts.text_counts import Counts

        self.texts = texts
        self.rows = rows
        """Index of each record's text; `NO_TEXT` if the column holds no string."""
        self.counts: Counts = Counts(texts) if like is None else like.counts
        """The counts, by the index of the text."""
        self._strings: dict[int, str] = {} if like is None else like._strings
        """Decoded texts by index."""

    def take(self, index: Rows) -> TextColumn:
        """Return the column of some of the records, without copying texts."""
        return TextColumn(self.texts, self.rows[index], self)

    def has_text(self, records: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of the records that have a string in the column."""
        has: npt.NDArray[np.bool_] = self.rows[records] != NO_TEXT
        return has

    def strings(self, records: Rows) -> list[str]:
        """Return the texts of records that have one; each is decoded once."""
        known, texts = self._strings, self.texts
        data = texts.data.data
        found = []
        for row in self.rows[records].tolist():
            text = known.get(row)
            if text is None:
                text = known[row] = str(data[texts.starts[row] : texts.ends[row]], "utf-8", "surrogatepass")
            found.append(text)
        return found


def plain_texts(batch: DocumentBatch, field: str, records: Rows | None = None) -> RecordTexts:
    """Return the texts of a column as Python strings; if `records` is given, only those records are decoded."""
    column: TextColumn | None = batch._memo.get((COLUMN, field))
    if column is not None:
        return column
    if records is not None and len(records) < len(batch) and (VALUE, field) not in batch._memo:
        values: list[Any] = [None] * len(batch)
        for record, value in zip(records.tolist(), batch.pick(records).values(field), strict=True):
            values[record] = value
        return PlainTexts(values)
    values = batch.values(field)
    if batch.nbytes <= MOST_REMEMBERED:
        batch._memo[VALUE, field] = values
    return PlainTexts(values)


def text_column(batch: DocumentBatch, field: str, records: Rows | None = None) -> TextColumn:
    """Return the texts of a column for kernels; if `records` is given, only those records have a text."""
    column: TextColumn | None = batch._memo.get((COLUMN, field))
    if column is not None:
        return column
    if records is not None and len(records) < len(batch):
        some = _column_of(batch.pick(records), field)
        rows = np.full(len(batch), NO_TEXT, dtype=np.int64)
        rows[records] = some.rows
        return TextColumn(some.texts, rows, some)
    column = _column_of(batch, field)
    if batch.nbytes <= MOST_REMEMBERED:
        batch._memo[COLUMN, field] = column
    return column


def column_of_texts(texts: Texts) -> TextColumn:
    """Return a column of texts that a stage has created, one per record."""
    return TextColumn(texts, np.arange(len(texts.starts), dtype=np.int64))


# -- conversion of texts to bytes -------------------------------------------------------------------------------------


class _WritableView:
    """A read-only buffer that is presented to numpy as writable: kernels are compiled for writable arrays, and
    read-only arrays are another type."""

    def __init__(self, array: npt.NDArray[np.uint8]) -> None:
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}
        self.array = array


def bytes_of(buffer: Any) -> npt.NDArray[np.uint8]:
    """Return the bytes of a buffer as an array for kernels, without a copy."""
    array = np.frombuffer(buffer, dtype=np.uint8)
    return array if array.flags.writeable else np.asarray(_WritableView(array))


def _column_of(batch: DocumentBatch, field: str) -> TextColumn:
    raw = batch.lines_with(field)
    if raw is not None:
        return _from_lines(raw, field)
    import pyarrow as pa

    column = batch.column(field)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_large_string(kind) or pa.types.is_string(kind) or pa.types.is_string_view(kind):
        return _from_arrow(column)
    return _from_values(batch.values(field))


def _from_lines(raw: RawLines, field: str) -> TextColumn:
    """Extract the texts from JSON lines; lines that the kernel cannot handle are decoded in Python."""
    from thresher.core.documents.json_records import field_values
    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.json.text import OK, SLOW, extract_texts, with_decoded

    known = raw.found
    if known is not None and known.field == field:  # found by the reader when it checked the lines
        texts, statuses = Texts(known.data, known.starts, known.ends), known.statuses
    else:
        texts, statuses = extract_texts(bytes_of(raw.buffer), raw.starts, raw.ends, field)
    is_text = statuses == OK
    slow = np.flatnonzero(statuses == SLOW)
    if len(slow):
        values = field_values(raw.take(slow).lines(), field)
        found = [index for index, value in enumerate(values) if isinstance(value, str)]
        if found:
            texts = with_decoded(texts, slow[found], [values[index] for index in found])
            is_text[slow[found]] = True
    return TextColumn(texts, np.where(is_text, np.arange(len(raw), dtype=np.int64), NO_TEXT))


def _from_arrow(column: pa.ChunkedArray) -> TextColumn:
    """Extract the texts from a column of strings; its buffer is reused if it has padding after the last text."""
    import pyarrow as pa

    from thresher.kernels.counts.text_counts import PADDING, Texts

    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if isinstance(array, pa.ChunkedArray):  # no rows
        array = pa.array([], pa.large_string())
    if not (pa.types.is_large_string(array.type) or pa.types.is_string(array.type)):
        array = array.cast(pa.large_string())
    _, offsets_buffer, data_buffer = array.buffers()
    count, offset = len(array), array.offset
    kind = np.int64 if pa.types.is_large_string(array.type) else np.int32
    offsets = np.zeros(1, dtype=np.int64)
    if count:
        offsets = np.frombuffer(offsets_buffer, dtype=kind)[offset : offset + count + 1].astype(np.int64)
    data = bytes_of(data_buffer) if data_buffer is not None else np.zeros(0, dtype=np.uint8)
    if len(data) - int(offsets[-1]) < PADDING:
        first = int(offsets[0])
        data = np.concatenate((data[first : offsets[-1]], np.zeros(PADDING, dtype=np.uint8)))
        offsets = offsets - first
    rows = np.arange(count, dtype=np.int64)
    if array.null_count:
        rows = np.where(array.is_valid().to_numpy(zero_copy_only=False), rows, NO_TEXT)
    return TextColumn(Texts(data, offsets[:-1], offsets[1:]), rows)


def _from_values(values: list[Any]) -> TextColumn:
    """Encode Python strings. A lone surrogate is encoded as three bytes."""
    encoded = [value.encode("utf-8", "surrogatepass") if isinstance(value, str) else None for value in values]
    is_text = np.array([text is not None for text in encoded], dtype=np.bool_)
    rows = np.where(is_text, np.arange(len(values), dtype=np.int64), NO_TEXT)
    return TextColumn(as_texts([text or b"" for text in encoded]), rows)


def as_texts(encoded: Sequence[bytes]) -> Texts:
    """Pack encoded texts for kernels."""
    from thresher.kernels.counts.text_counts import PADDING, Texts

    lengths = np.array([len(text) for text in encoded], dtype=np.int64)
    ends = np.cumsum(lengths)
    return Texts(bytes_of(b"".join([*encoded, bytes(PADDING)])), ends - lengths, ends)
