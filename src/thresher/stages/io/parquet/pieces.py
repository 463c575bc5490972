# SPDX-License-Identifier: Apache-2.0
"""Conversion of a batch to an Arrow table, preserving what later determines the type of a column.

The type of a column depends on all records of a file, and a batch holds only some of them. So integers and fractions
that occur in one batch stay JSON texts, marked as numbers, until all records are known; and scalars inside a JSON
column have a canonical spelling, so that their batch makes no difference.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.json_records import (
    column_array,
    encode_value,
    encoded_column,
    is_json,
    json_array,
    split_object,
)
from thresher.core.documents.records import FoundTexts
from thresher.stages.io.jsonl import lines as line_reading

MARK = b"thresher"
NUMBERS = b"numbers"
"""Marks a JSON column that holds only numbers, each of which a float represents as exactly as the text does."""
LARGE = b"large"
"""Marks an integer column with values that a float cannot represent."""
ABSENT = b"absent"
"""Marks a column that a stage added and that has no value in the batch."""
STAND_IN = b"stand-in"
"""Marks the only column of a part whose records have no fields at all."""

_SAFE_INT = 2**53
_NULL = b"null"
_DIGITS = frozenset(b"-0123456789")
_STRINGS = msgspec.json.Decoder(list[str | None])
_FLOAT = msgspec.json.Decoder(float)


class PieceColumn(NamedTuple):
    """One column of a batch."""

    first: tuple[int, int]
    """The first row that has it, and its index among the columns that stages added to that row; 0 for an input
    column."""
    array: pa.Array
    """Its values."""
    mark: bytes = b""
    """`NUMBERS`, `LARGE`, `ABSENT` or empty."""


def piece_table(batch: DocumentBatch, fields: Collection[str] | None) -> pa.Table:
    """Return the columns of a batch in the order in which its records introduce them; `fields` selects some."""
    raw = batch.raw_lines
    columns = _table_columns(batch.to_pyarrow()) if raw is None else _line_columns(batch, raw.lines())
    kept = [(name, column) for name, column in columns.items() if fields is None or name in fields]
    kept.sort(key=lambda entry: entry[1].first)  # stable: the keys of one record stay in order
    if not kept:
        return pa.table({"": pa.nulls(len(batch))}).select([])
    schema = pa.schema([_field(name, column) for name, column in kept])
    return pa.Table.from_arrays([column.array for _, column in kept], schema=schema)


def _field(name: str, column: PieceColumn) -> pa.Field:
    return pa.field(name, column.array.type, metadata={MARK: column.mark} if column.mark else None)


def _table_columns(table: pa.Table) -> dict[str, PieceColumn]:
    """Return the columns of a table. Of columns with one name the last counts, as with keys."""
    return {name: _typed((0, 0), column) for name, column in zip(table.column_names, table.columns, strict=True)}


def _line_columns(batch: DocumentBatch, lines: Sequence[memoryview]) -> dict[str, PieceColumn]:
    """Return the columns of the lines, overridden by the changes of stages."""
    firsts, raws = _values_by_key(lines)
    changed, removed = batch._changed, batch._removed
    columns: dict[str, PieceColumn] = {}
    found = None if batch.raw_lines is None else batch.raw_lines.found
    for key, values in raws.items():
        if key not in removed and key not in changed:
            texts = None if found is None or found.field != key else _found_array(found)
            made = raw_array(values) if texts is None else (texts, b"")
            columns[key] = PieceColumn((firsts[key], 0), *made)
    for index, (key, mask) in enumerate(changed.items(), start=1):
        if key not in removed:
            row = _first_change(mask, len(lines))
            here = (row, index) if key not in firsts else min((row, index), (firsts[key], 0))
            column = _typed(here, batch.column(key))
            columns[key] = column._replace(mark=ABSENT) if row == len(lines) and key not in firsts else column
    return {key: columns[key] for key in dict.fromkeys((*raws, *changed)) if key in columns}


def _first_change(mask: npt.NDArray[np.bool_] | None, rows: int) -> int:
    """Return the first row in which a value differs from the line; `rows` if none does."""
    if mask is None:
        return 0
    return int(mask.argmax()) if mask.any() else rows


def _values_by_key(lines: Sequence[memoryview]) -> tuple[dict[str, int], dict[str, list[msgspec.Raw | None]]]:
    """Return the first row of every key, and its raw value in each row."""
    firsts: dict[str, int] = {}
    raws: dict[str, list[msgspec.Raw | None]] = {}
    for row, line in enumerate(lines):
        for key, value in split_object(line).items():
            column = raws.get(key)
            if column is None:
                column = raws[key] = []
                firsts[key] = row
            if len(column) < row:
                column.extend([None] * (row - len(column)))
            column.append(value)
    for column in raws.values():
        column.extend([None] * (len(lines) - len(column)))
    return firsts, raws


# -- values from lines ------------------------------------------------------------------------------------------------


def raw_array(values: Sequence[msgspec.Raw | None]) -> tuple[pa.Array, bytes]:
    """Return raw JSON values as an array of a plain type if all have it, else of JSON; and its mark."""
    raws = [_NULL if value is None else bytes(value) for value in values]
    kinds = {raw[0] for raw in raws} - {_NULL[0]}
    if kinds == {ord('"')}:
        return pa.array(_STRINGS.decode(b"[" + b",".join(raws) + b"]"), type=pa.large_string()), b""
    if kinds and kinds <= _DIGITS:
        return _number_array(raws)
    if len(kinds) > 1 and not kinds <= set(b"tf"):
        return json_array([_canonical(raw) for raw in raws]), b""
    return column_array(values), b""


def _found_array(found: FoundTexts) -> pa.Array | None:
    """Return the texts that the reader extracted, without decoding them again; `None` if there are other values than
    texts and nulls."""
    kernels = line_reading.loaded_kernels()
    if kernels is None:
        return None
    is_text = found.statuses == kernels.OK
    if not is_text.any() or not (is_text | (found.statuses == kernels.ABSENT)).all():
        return None
    offsets = np.concatenate(([0], (found.ends - found.starts).cumsum()))
    view = found.data.data
    texts = b"".join([view[s:e] for s, e in zip(found.starts.tolist(), found.ends.tolist(), strict=True)])
    valid = None if is_text.all() else pa.py_buffer(np.packbits(is_text, bitorder="little"))
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(texts)]
    return pa.Array.from_buffers(pa.large_string(), len(is_text), buffers)


def _number_array(raws: list[bytes]) -> tuple[pa.Array, bytes]:
    whole = [raw for raw in raws if raw != _NULL and not _is_fraction(raw)]
    if not any(_is_fraction(raw) for raw in raws):
        array = column_array([msgspec.Raw(raw) for raw in raws])
        return array, _size_mark(array)
    floats = [None if raw == _NULL else _as_float(raw) for raw in raws]
    lost = any(number is None and raw != _NULL for number, raw in zip(floats, raws, strict=True))
    if lost or any(raw == b"-0" or abs(int(raw)) > _SAFE_INT for raw in whole):
        return json_array([_canonical(raw) for raw in raws]), b""
    if whole:
        return json_array([_canonical(raw) for raw in raws]), NUMBERS
    return pa.array(floats, type=pa.float64()), b""


def _is_fraction(raw: bytes) -> bool:
    return raw != _NULL and (b"." in raw or b"e" in raw or b"E" in raw)


def _as_float(raw: bytes) -> float | None:
    """Return the number as a float; `None` if it is out of range."""
    try:
        return _FLOAT.decode(raw)
    except msgspec.DecodeError:
        return None


def _canonical(raw: bytes) -> bytes:
    """Return the canonical spelling of strings and fractions, which is that of decoded values; other values are
    unchanged."""
    if raw[:1] == b'"':
        return encode_value(msgspec.json.decode(raw))
    if raw[0] in _DIGITS and _is_fraction(raw):
        number = _as_float(raw)
        return raw if number is None else encode_value(number)
    return raw


# -- values from tables -----------------------------------------------------------------------------------------------


def _typed(first: tuple[int, int], column: pa.ChunkedArray) -> PieceColumn:
    array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    if pa.types.is_dictionary(array.type):  # the contents of a dictionary differ from batch to batch
        array = array.cast(array.type.value_type)
    if is_json(array.type):  # numbers in JSON are numbers of the file, whatever else this batch holds
        raws = [None if raw == _NULL else msgspec.Raw(raw) for raw in encoded_column(array)]
        return PieceColumn(first, *raw_array(raws))
    return PieceColumn(first, array, _size_mark(array))


def _size_mark(array: pa.Array) -> bytes:
    if not pa.types.is_integer(array.type):
        return b""
    bounds = pc.min_max(array).as_py()
    beyond = (bounds["min"] or 0) < -_SAFE_INT or (bounds["max"] or 0) > _SAFE_INT
    return LARGE if beyond else b""
