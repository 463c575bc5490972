# SPDX-License-Identifier: Apache-2.0
"""Between what users hand over (data frames, lists of dicts, arrays) and Arrow tables, without loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from thresher.core.arguments.sizes import counted
from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.json_records import (
    column_array,
    encode_value,
    encoded_column,
    is_json,
    json_array,
    json_objects,
    patch_lines,
    rows_without_columns,
)
from thresher.core.documents.records import Packet, RawLines
from thresher.core.records.record_task import score_list
from thresher.core.registry import missing_package
from thresher.core.scores import SCORE
from thresher.errors import with_article

if TYPE_CHECKING:
    import pandas as pd

Batch = TypeVar("Batch", bound=DocumentBatch)


def to_frame(table: pa.Table) -> pd.DataFrame:
    """A data frame with the index 0..n-1. Integers and truth values with gaps keep their type."""
    try:
        import pandas as pd
    except ModuleNotFoundError as error:
        raise missing_package("pandas", "to_pandas()") from error

    series: dict[str, Any] = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if is_json(column.type):
            series[name] = pd.Series(json_objects(column), dtype=object)
        elif column.null_count and (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
            series[name] = column.to_pandas(types_mapper=_type_with_gaps)
        else:
            series[name] = column.to_pandas()
    return pd.DataFrame(series, index=pd.RangeIndex(table.num_rows), columns=list(table.column_names))


def _type_with_gaps(kind: pa.DataType) -> Any:
    import pandas as pd

    name = "boolean" if pa.types.is_boolean(kind) else str(kind).replace("int", "Int").replace("u", "U")
    return pd.api.types.pandas_dtype(name)


def to_table(given: Any) -> pa.Table:
    """An Arrow table from a table, record batch, data frame, dict of columns, or list of dicts."""
    if isinstance(given, pa.Table | pa.RecordBatch):
        _check_names(given.schema.names)
        return given if isinstance(given, pa.Table) else pa.Table.from_batches([given])
    if isinstance(given, list):
        return _table_of_dicts(given)
    if isinstance(given, dict):
        return pa.table({name: _named_column(name, values) for name, values in given.items()})
    if hasattr(given, "columns") and hasattr(given, "index"):
        _check_names([str(name) for name in given.columns])
        columns = {str(name): _named_column(str(name), given[name]) for name in given.columns}
        return pa.table(columns) if columns else rows_without_columns(len(given))
    raise TypeError(
        f"DocumentBatch cannot hold {with_article(type(given))}; "
        "give a pyarrow.Table, a pandas DataFrame or a list of dicts"
    )


def _check_names(names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"DocumentBatch: the columns {', '.join(map(repr, twice))} come twice; rename or remove one")


def _table_of_dicts(rows: list[dict[str, Any]]) -> pa.Table:
    names: dict[str, None] = {}
    for row in rows:
        if not isinstance(row, dict):
            raise TypeError(f"DocumentBatch: a list must hold dicts, this one holds {with_article(type(row))}")
        names.update(dict.fromkeys(row))
    if not names:
        return rows_without_columns(len(rows))
    return pa.table({name: _named_column(name, [row.get(name) for row in rows]) for name in names})


def _named_column(name: Any, values: Any) -> pa.ChunkedArray:
    """As `to_column`; an error names the column."""
    if not isinstance(name, str):
        raise TypeError(f"DocumentBatch: the name of a column is {name!r}, which is not a text")
    try:
        return to_column(values)
    except (TypeError, ValueError) as error:  # Arrow's own errors are of these
        raise TypeError(f"column {name!r}: {error}") from error


def to_column(values: Any) -> pa.ChunkedArray:
    """One column; values that fit no single Arrow type are carried as JSON."""
    if isinstance(values, pa.ChunkedArray):
        return values
    if isinstance(values, pa.Array):
        return pa.chunked_array([values])
    if getattr(getattr(values, "dtype", None), "kind", "") == "O":
        values = [None if _is_missing(value) else value for value in values]
    if isinstance(values, list | tuple):
        return pa.chunked_array([_array_of_values(values)])
    try:
        array = pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        array = _array_of_values(list(values))
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def new_column(values: Any, rows: int) -> pa.ChunkedArray:
    """One column for so many records."""
    if len(made := to_column(values)) != rows:
        raise ValueError(
            f"the new column has {counted(len(made), 'value')} for {counted(rows, 'record')}; give one value per record"
        )
    return made


def set_column(table: pa.Table | None, name: str, column: pa.ChunkedArray) -> pa.Table:
    """`table` with `column` set or added under `name`."""
    if table is None or table.num_columns == 0:
        return pa.table({name: column})
    place = table.schema.get_field_index(name)
    return table.append_column(name, column) if place < 0 else table.set_column(place, name, column)


def _is_missing(value: Any) -> bool:
    return (
        value is None or (isinstance(value, float) and value != value) or type(value).__name__ in ("NAType", "NaTType")
    )


def _array_of_values(values: Sequence[Any]) -> pa.Array:
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {str}:
        return pa.array(values, type=pa.large_string()) if kinds else pa.nulls(len(values))
    if kinds == {int, float}:
        # As floats, 1 would be written as 1.0 or as 1 depending on its neighbours in the batch.
        return json_array([None if value is None else encode_value(value) for value in values])
    if kinds & {dict, list, tuple} or len(kinds) > 1:
        return _array_by_json(values, kinds)
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return json_array([None if value is None else encode_value(value) for value in values])


def _array_by_json(values: Sequence[Any], kinds: set[type]) -> pa.Array:
    if kinds & {bytes, bytearray}:
        return pa.array(values)
    return column_array([None if value is None else msgspec.Raw(encode_value(value)) for value in values])


def differing_rows(old: pa.ChunkedArray, new: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """In which rows two columns hold different JSON values; a null equals only a null, 1 equals 1.0 but not true."""
    if pa.types.is_null(old.type) or pa.types.is_null(new.type):
        return _mask(pc.not_equal(pc.is_valid(old), pc.is_valid(new)))
    if not old.type.equals(new.type):
        if not _comparable(old.type, new.type):
            return _differing_objects(old, new)
        try:
            new = new.cast(old.type)
        except pa.ArrowInvalid:
            return _differing_objects(old, new)
    elif _family(old.type) == "other":
        return _differing_objects(old, new)
    unequal = pc.fill_null(pc.not_equal(old, new), False)
    return _mask(pc.or_(unequal, pc.not_equal(pc.is_valid(old), pc.is_valid(new))))


def _mask(flags: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    return np.asarray(flags.to_numpy(), dtype=bool)


def same_kind(one: pa.DataType, other: pa.DataType) -> bool:
    """Return True if two types differ in width alone, so that a column may take the other type when its values fit."""
    return _family(one) == _family(other) != "other"


def _comparable(one: pa.DataType, other: pa.DataType) -> bool:
    families = {_family(one), _family(other)}
    return "other" not in families and (len(families) == 1 or families == {"integer", "float"})


def _family(kind: pa.DataType) -> str:
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return "text"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytes"
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_floating(kind):
        return "float"
    return "bool" if pa.types.is_boolean(kind) else "other"


def _differing_objects(old: pa.ChunkedArray, new: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    pairs = zip(json_objects(old), json_objects(new), strict=True)
    return np.array([not same_value(a, b) for a, b in pairs], dtype=bool)


def same_value(one: Any, other: Any) -> bool:
    """Return True if two JSON values are equal: numbers by value, a truth value is no number, dicts in any order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return len(one) == len(other) and all(key in other and same_value(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(same_value(a, b) for a, b in zip(one, other, strict=True))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def changed_rows(
    batch: DocumentBatch, name: str, new: Any, changed: Sequence[bool] | npt.NDArray[Any] | None = None
) -> npt.NDArray[Any] | None:
    """Return in which rows `new` differs from the line, `None` for all; rows that were changed before stay changed."""
    if (name in batch._changed and batch._changed[name] is None) or name in batch._removed:
        return None
    mask = differing_rows(batch.column(name), new) if changed is None else np.asarray(changed, dtype=bool)
    before = batch._changed.get(name)
    return mask if before is None else mask | before


def join_batches(batches: Sequence[Batch]) -> Batch:
    """Several batches as one, with ids; lines and masks are kept where every part has them."""
    first = batches[0]
    joined = first._with_notes_of(batches, first._like())
    for key in first._memo:
        if key[0].startswith(SCORE) and all(key in batch._memo for batch in batches):
            joined._memo[key] = [score for batch in batches for score in score_list(batch._memo[key])]
    if all(batch.raw_lines is not None for batch in batches):
        _join_lines(joined, batches)
        return joined
    joined._table = join_tables([batch.to_pyarrow() for batch in batches])
    joined._whole, joined._removed = True, frozenset()
    return joined


def _join_lines(joined: DocumentBatch, batches: Sequence[DocumentBatch]) -> None:
    """Join the lines with what changed in them; columns whose values have no form in JSON stay beside the lines."""
    changed = dict.fromkeys(name for batch in batches for name in batch._changed if name not in batch._removed)
    beside = [name for name in changed if not all(_is_json_kind(batch.column(name).type) for batch in batches)]
    lines = [line for batch in batches for line in _lines_without(batch, beside)]
    joined._raw, joined._whole, joined._removed = RawLines.join(lines), False, frozenset()
    for name in beside:
        joined._table = set_column(joined._table, name, _join_columns([batch.column(name) for batch in batches]))
        joined._changed[name] = np.concatenate([_mask_of(batch, name) for batch in batches])


def _lines_without(batch: DocumentBatch, beside: Sequence[str]) -> list[bytes | memoryview]:
    """The lines of a batch with all changes but those of some columns."""
    if not any(name in batch._changed for name in beside):
        return batch.json_lines()
    assert batch._raw is not None
    changed = {name: (batch.column(name), mask) for name, mask in batch._changed.items() if name not in beside}
    lines: list[bytes | memoryview] = list(batch._raw.lines())
    return patch_lines(lines, {n: c for n, c in changed.items() if n not in batch._removed}, batch._removed)


def _is_json_kind(kind: pa.DataType) -> bool:
    """Return True if values of a type are the same after they were written as JSON and read."""
    if pa.types.is_struct(kind):
        return all(_is_json_kind(kind.field(place).type) for place in range(kind.num_fields))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_json_kind(kind.value_type)
    return pa.types.is_null(kind) or is_json(kind) or _family(kind) in ("text", "integer", "float", "bool")


def _mask_of(batch: DocumentBatch, name: str) -> npt.NDArray[np.bool_]:
    """In which rows a column differs from the lines."""
    mask = batch._changed.get(name, np.zeros(len(batch), dtype=bool))
    return np.ones(len(batch), dtype=bool) if mask is None else mask


def frozen(batch: Batch) -> Batch:
    """Another batch object with the same content, which no change to what was handed over reaches."""
    trace = None
    if batch._raw is None and not hasattr(batch._given, "schema"):
        batch.to_pyarrow()
        trace = None if batch._given is None else batch._frame_trace()
    other = type(batch).__new__(type(batch))
    other.__dict__.update(batch.__dict__)
    other._lent = ()
    if trace is not None:
        other._given, other._trace = None, trace
    return other


def changed_frame(lent: Sequence[pd.DataFrame], table: pa.Table) -> pd.DataFrame | None:
    """Return the last data frame that no longer says what the table says; `None` if all of them do."""
    fresh = to_frame(table)
    return next((frame for frame in reversed(lent) if not same_frame(frame, fresh)), None)


def same_frame(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Return True if two data frames are certain to hold the same."""
    if not one.columns.equals(other.columns) or not one.index.equals(other.index):
        return False
    try:
        return bool(one.equals(other))
    except (TypeError, ValueError):  # nested values that cannot be compared
        return False


def join_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one below the other; a column that is missing in one has nulls there, its type is one that fits all."""
    names = list(dict.fromkeys(name for table in tables for name in table.column_names))
    if not names:
        return rows_without_columns(sum(table.num_rows for table in tables))
    return pa.table({name: _join_columns([_column_or_nulls(table, name) for table in tables]) for name in names})


def _column_or_nulls(table: pa.Table, name: str) -> pa.ChunkedArray:
    return table.column(name) if name in table.column_names else pa.chunked_array([pa.nulls(table.num_rows)])


def _join_columns(columns: Sequence[pa.ChunkedArray]) -> pa.ChunkedArray:
    kinds = {column.type for column in columns if not pa.types.is_null(column.type)}
    if not kinds:
        return pa.chunked_array([pa.nulls(sum(len(column) for column in columns))])
    try:
        if len(kinds) == 1 or all(same_kind(one, other) for one in kinds for other in kinds):
            kind = max(kinds, key=_width)
            return pa.chunked_array([chunk for column in columns for chunk in column.cast(kind).chunks], type=kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        pass
    return pa.chunked_array([column_array([msgspec.Raw(raw) for column in columns for raw in encoded_column(column)])])


def _width(kind: pa.DataType) -> int:
    if _family(kind) in ("text", "bytes"):
        return int(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
    return int(kind.bit_width) if _family(kind) != "other" else 0


_PICKLED_BYTES = 2**20
"""A smaller table is sent as one buffer, which costs less than many."""


def pack_table(table: pa.Table) -> Packet | pa.Table:
    """A table for a pickle: of a slice only its own rows. A large one whose buffers hold nothing else stays as it is,
    because a pickle takes the buffers of Arrow without a copy."""
    if table.nbytes > _PICKLED_BYTES and table.get_total_buffer_size() <= 1.05 * table.nbytes:
        return table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Packet(sink.getvalue())


def unpack_table(packet: Packet | pa.Table) -> pa.Table:
    """The table of `pack_table`."""
    if not isinstance(packet, Packet):
        return packet
    return pa.ipc.open_stream(pa.py_buffer(packet.buffer)).read_all()
