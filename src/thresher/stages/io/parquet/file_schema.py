# SPDX-License-Identifier: Apache-2.0
"""The type of each column of a file, from its types in the pieces of the file.

    null + T                      T
    integers of several widths    the widest, or JSON where none holds all
    integers + fractions          float64 where it holds every integer, else JSON
    texts, binaries               the large variant
    timestamps, lists, …          the type that Arrow unifies them to
    anything else together        JSON (Arrow's `json` type; also a logical type of Parquet)

The result does not depend on how records are distributed over pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thresher.core.documents.json_records import encode_value, encoded_column, is_json, json_array, json_type
from thresher.stages.io.parquet.pieces import ABSENT, LARGE, MARK, NUMBERS, STAND_IN

_NO_COLUMN = "_"
"""The name of the only column of a file whose records are all empty."""
_FLOATS = msgspec.json.Decoder(list[float | None])


class ColumnTypes:
    """The known types of one column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.types: list[pa.DataType] = []
        """Distinct types in order of appearance, without null."""
        self.has_numbers = False
        """True if a piece holds integers and fractions, as marked JSON."""
        self.has_large = False
        """True if there are integers that a float cannot represent."""

    def note(self, field: pa.Field) -> None:
        """Add the type of the column in a piece."""
        mark = (field.metadata or {}).get(MARK, b"")
        self.has_numbers |= mark == NUMBERS
        self.has_large |= mark == LARGE
        if mark != NUMBERS and not pa.types.is_null(field.type) and field.type not in self.types:
            self.types.append(field.type)

    def resolve(self, *, part: bool) -> pa.Field:
        """Return the column of the file. In a part, mixed numbers stay marked texts: the other parts decide."""
        if part and self._is_open():
            return pa.field(self.name, json_type(), metadata={MARK: NUMBERS})
        found = self._resolved()
        mark = {MARK: LARGE} if part and self.has_large and pa.types.is_integer(found) else None
        return pa.field(self.name, found, metadata=mark)

    def _is_open(self) -> bool:
        """Return True if the column has integers and fractions so far: a float64, unless another part has other
        values."""
        both = _any(pa.types.is_integer, self.types) and _any(pa.types.is_floating, self.types)
        return (both or self.has_numbers) and not self.has_large and all(is_number(kind) for kind in self.types)

    def _resolved(self) -> pa.DataType:
        types = self.types
        if any(is_json(kind) for kind in types):
            return json_type()
        if not types and not self.has_numbers:
            return pa.null()
        if all(is_number(kind) for kind in types):
            return self._number_type()
        if self.has_numbers:
            return json_type()
        found = types[0] if len(types) == 1 else _unified(types)
        return plain_names(found) if _parquet_supports(found) else json_type()

    def _number_type(self) -> pa.DataType:
        types = self.types
        if len(types) == 1 and not self.has_numbers:
            return types[0]
        if self.has_numbers or _any(pa.types.is_floating, types):
            whole = self.has_numbers or _any(pa.types.is_integer, types)
            return json_type() if whole and self.has_large else pa.float64()
        widest = max(kind.bit_width for kind in types)
        if not _any(pa.types.is_signed_integer, types):
            return {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[widest]
        if not _any(pa.types.is_unsigned_integer, types):
            return {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[widest]
        return json_type() if pa.uint64() in types and self.has_large else pa.int64()


class FileSchema:
    """The columns of a file, in the order in which its records introduce them."""

    def __init__(self) -> None:
        self._columns: dict[str, ColumnTypes] = {}
        self._absent: dict[str, None] = {}
        """Columns without a value so far; they come last."""

    def note(self, schema: pa.Schema) -> None:
        """Add the columns of a piece."""
        for field in schema:
            mark = (field.metadata or {}).get(MARK)
            if mark in (ABSENT, STAND_IN):
                self._absent.update({field.name: None} if mark == ABSENT else {})
                continue
            found = self._columns.get(field.name)
            if found is None:
                found = self._columns[field.name] = ColumnTypes(field.name)
            found.note(field)

    def resolve(self, *, part: bool = False) -> pa.Schema:
        """Return the schema of the file. Parquet cannot count rows without columns, so there is at least one,
        of nulls."""
        fields = [column.resolve(part=part) for column in self._columns.values()]
        mark = {MARK: ABSENT} if part else None
        fields += [pa.field(name, pa.null(), metadata=mark) for name in self._absent if name not in self._columns]
        stand_in = pa.field(_NO_COLUMN, pa.null(), metadata={MARK: STAND_IN} if part else None)
        return pa.schema(fields or [stand_in])


def convert_table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a piece in the schema of its file."""
    known = set(table.column_names)
    columns = [
        _convert_column(table.column(field.name), table.field(field.name), field.type)
        if field.name in known
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _convert_column(column: pa.ChunkedArray, field: pa.Field, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if column.type.equals(kind):
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), kind)
    if is_json(kind):
        return json_column(column)
    if (field.metadata or {}).get(MARK) == NUMBERS:
        return pa.array(_FLOATS.decode(b"[" + b",".join(encoded_column(column)) + b"]"), type=kind)
    return column.cast(kind)


def json_column(column: pa.ChunkedArray) -> pa.Array:
    if is_json(column.type):
        return json_array(encoded_column(column))
    if pa.types.is_floating(column.type):  # a narrow float keeps its value, not its short spelling
        return json_array([encode_value(value) for value in column.cast(pa.float64()).to_pylist()])
    return json_array(encoded_column(column))


def _any(test: Callable[[pa.DataType], bool], types: Sequence[pa.DataType]) -> bool:
    return any(test(kind) for kind in types)


def is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind))


def _unified(types: Sequence[pa.DataType]) -> pa.DataType:
    if all(is_text(kind) for kind in types):
        return pa.large_string()
    if all(is_binary(kind) for kind in types):
        return pa.large_binary()
    if _any(is_text, types) or _any(is_binary, types) or _any(is_number, types) or _any(pa.types.is_boolean, types):
        return json_type()
    try:
        schemas = [pa.schema([pa.field("_", kind)]) for kind in types]
        return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return json_type()


def plain_names(kind: pa.DataType) -> pa.DataType:
    """Return a type whose list items are named as in Parquet, so that it is the same before and after writing a
    part."""
    if pa.types.is_list(kind):
        return pa.list_(_plain_field(kind.value_field, "element"))
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain_field(kind.value_field, "element"))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field, "element"), kind.list_size)
    if pa.types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(index)) for index in range(kind.num_fields)])
    return kind


def _plain_field(field: pa.Field, name: str | None = None) -> pa.Field:
    return pa.field(name or field.name, plain_names(field.type), field.nullable)


def _parquet_supports(kind: pa.DataType) -> bool:
    """Return True if Parquet can represent a type; a few Arrow types have no equivalent."""
    if is_json(kind) or pa.types.is_primitive(kind) or is_text(kind) or is_binary(kind):
        return True
    try:
        with pq.ParquetWriter(pa.BufferOutputStream(), pa.schema([pa.field("_", kind)])) as writer:
            writer.write_table(pa.table({"_": pa.nulls(1, kind)}))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        return False
    return True
