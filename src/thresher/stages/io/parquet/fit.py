# SPDX-License-Identifier: Apache-2.0
"""Conversion of records to the schema of a run. Whether a value fits depends on the value alone.

A value fits a column if the type of the column represents exactly that value. Values that do not fit, and values of
columns that the schema lacks, are collected in a JSON object per record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thresher.core.documents.json_records import encode_value, encoded_column, is_json, json_array, split_object
from thresher.stages.io.parquet.file_schema import is_binary, is_number, is_text, json_column
from thresher.stages.io.parquet.pieces import ABSENT, MARK, STAND_IN

EXTRA = "_extra"
"""The overflow column; where the input has a column of that name that is not JSON, `_` is appended."""
_NULL = b"null"
_MISFIT: Any = object()

Misfits = dict[int, dict[str, bytes]]
"""Values that fit no column, as JSON, by row and column name."""


def extra_column(schema: pa.Schema) -> str | None:
    """Return the name of the overflow column; `None` if the schema has none."""
    found = [field.name for field in schema if field.name.rstrip("_") == EXTRA and is_json(field.type)]
    return found[-1] if found else None


def fit_table(table: pa.Table, schema: pa.Schema, extras: Counter[str] | None = None) -> tuple[pa.Table, Misfits]:
    """Return a piece in the columns and types of a schema, and the values that did not fit.

    `extras` counts the values that go to the overflow column, by field.
    """
    extra = extra_column(schema)
    misfits: Misfits = {}
    arrays = {}
    for name in table.column_names:
        field = table.field(name)
        if (field.metadata or {}).get(MARK) in (ABSENT, STAND_IN):
            continue
        index = schema.get_field_index(name)
        if index < 0:
            _leave_out(misfits, name, table.column(name), None)
        else:
            arrays[name], fits = fit_column(table.column(name), schema.field(index).type)
            fits = _without_nulls(arrays[name], fits, schema.field(index).nullable)
            if fits is not None:
                _leave_out(misfits, name, table.column(name), fits)
    for field in schema:
        if field.name not in arrays:
            arrays[field.name] = pa.nulls(table.num_rows, field.type)
            if not field.nullable:
                for row in range(table.num_rows):
                    misfits.setdefault(row, {})[field.name] = _NULL
    if extra is not None and misfits:
        arrays[extra] = _with_extras(arrays[extra], misfits)
        if extras is not None:
            extras.update(name for values in misfits.values() for name in values)
        misfits = {}
    columns = [arrays[field.name] for field in schema]
    return pa.Table.from_arrays(columns, schema=schema.remove_metadata() if misfits else schema), misfits


def _without_nulls(array: Any, fits: Any, nullable: bool) -> Any:
    """Treat a null as a misfit in a column that must have values."""
    if nullable or array.null_count == 0:
        return fits
    there = np.asarray(
        array.is_valid().to_numpy(zero_copy_only=False) if isinstance(array, pa.Array) else array.is_valid().to_numpy()
    )
    return there if fits is None else fits & there


def _leave_out(misfits: Misfits, name: str, column: pa.ChunkedArray, fits: Any) -> None:
    rows = range(len(column)) if fits is None else np.flatnonzero(~fits).tolist()
    if not len(rows):
        return
    values = encoded_column(column if fits is None else column.take(pa.array(rows, pa.int64())))
    for row, value in zip(rows, values, strict=True):
        if value != _NULL or fits is not None:
            misfits.setdefault(row, {})[name] = value


def _with_extras(column: Any, misfits: Misfits) -> pa.Array:
    """Add values to the overflow column. Names are sorted, because the order of columns may differ from batch
    to batch."""
    texts: list[bytes] = encoded_column(column)
    for row, values in misfits.items():
        kept = {} if texts[row] == _NULL else {key: bytes(raw) for key, raw in _object(texts[row]).items()}
        members = sorted((kept | values).items())
        texts[row] = b"{" + b", ".join(encode_value(key) + b": " + value for key, value in members) + b"}"
    return json_array(texts)


def _object(text: bytes) -> dict[str, Any]:
    try:
        return dict(split_object(text))
    except msgspec.DecodeError:
        return {EXTRA: text}


def fit_column(column: pa.ChunkedArray, kind: pa.DataType) -> tuple[Any, Any]:
    """Return the values of a column in another type, and a mask of those that fit; `None` if all do."""
    if column.type.equals(kind):
        return column, None
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind), None
    if is_json(kind):
        return json_column(column), None
    if not is_json(column.type) and _is_simple(column.type) and _is_simple(kind):
        if not _are_alike(column.type, kind):
            return pa.nulls(len(column), kind), _is_null(column)
        cast = _exact_cast(column, kind)
        if cast is not None:
            return cast, None
    values = _decoded(column) if is_json(column.type) else column.to_pylist()
    test = _test_for(kind)
    tested = [None if value is None else test(value) for value in values]
    fits = np.array([value is not _MISFIT for value in tested], dtype=bool)
    array = pa.array([None if value is _MISFIT else value for value in tested], type=kind)
    return array, None if fits.all() else fits


def _is_null(column: pa.ChunkedArray) -> Any:
    found = np.asarray(column.is_null().to_numpy(), dtype=bool)
    return None if found.all() else found


def _decoded(column: pa.ChunkedArray) -> list[Any]:
    """Decode JSON texts; a number that Python cannot represent fits nowhere."""
    values = []
    for raw in encoded_column(column):
        try:
            values.append(msgspec.json.decode(raw))
        except msgspec.DecodeError:
            values.append(_MISFIT)
    return values


def _is_simple(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or is_text(kind) or is_binary(kind) or pa.types.is_decimal(kind))


_TIMES: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_timestamp,
    pa.types.is_date,
    pa.types.is_time,
    pa.types.is_duration,
)


def _are_alike(one: pa.DataType, other: pa.DataType) -> bool:
    """Return True if two types are of one kind: a text never becomes a number, nor a number a time."""
    tests = (is_number, is_text, is_binary, pa.types.is_boolean, pa.types.is_decimal, *_TIMES)
    return any(test(one) and test(other) for test in tests)


def _exact_cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """Return the column in another type, if that represents all its values exactly."""
    try:
        cast = column.cast(kind)
        if pa.types.is_floating(kind) or pa.types.is_timestamp(kind):
            back = cast.cast(column.type)
            same = pc.fill_null(pc.equal(back, column), True)
            if pa.types.is_floating(column.type):
                same = pc.or_(same, pc.fill_null(pc.is_nan(column), True))
            return cast if pc.all(same).as_py() in (True, None) else None
        return cast
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _test_for(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that converts a value to the type, or returns `_MISFIT`."""
    if pa.types.is_integer(kind):
        return lambda value: _as_integer(value, kind)
    if pa.types.is_floating(kind):
        single = pa.types.is_float32(kind) or pa.types.is_float16(kind)
        return lambda value: _as_float(value, np.dtype(kind.to_pandas_dtype()) if single else None)
    plain = {pa.types.is_boolean: bool, is_text: str, is_binary: bytes}
    for test, wanted in plain.items():
        if test(kind):
            return lambda value, wanted=wanted: value if isinstance(value, wanted) else _MISFIT  # type: ignore[misc]  # mypy cannot type the default
    return lambda value: _as_other(value, kind)


def _as_integer(value: Any, kind: pa.DataType) -> Any:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return _MISFIT
    signed = pa.types.is_signed_integer(kind)
    most = 2 ** (kind.bit_width - 1) if signed else 2**kind.bit_width
    return value if (-most if signed else 0) <= value < most else _MISFIT


def _as_float(value: Any, narrow: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _MISFIT
    try:
        made = float(value)
    except OverflowError:
        return _MISFIT
    if isinstance(value, int) and (not math.isfinite(made) or int(made) != value):
        return _MISFIT
    if narrow is not None and math.isfinite(made) and float(narrow.type(made)) != made:
        return _MISFIT
    return made


def _as_other(value: Any, kind: pa.DataType) -> Any:
    """Test lists, structs and rare types: a value fits if it survives a round trip."""
    if value is _MISFIT:
        return _MISFIT
    try:
        back = pa.array([value], type=kind).to_pylist()[0]
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError, OverflowError):
        return _MISFIT
    return value if _equal(back, value) else _MISFIT


def _equal(back: Any, value: Any) -> bool:
    """Return True if two values are equal; a missing field of a struct equals null."""
    if isinstance(value, dict):
        keys = value.keys() | (back.keys() if isinstance(back, dict) else set())
        return isinstance(back, dict) and all(_equal(back.get(key), value.get(key)) for key in keys)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return isinstance(back, list) and len(back) == len(value) and all(map(_equal, back, value))
    return bool(back == value or (back != back and value != value)) and isinstance(back, bool) == isinstance(
        value, bool
    )
