# SPDX-License-Identifier: Apache-2.0
"""The schema that all Parquet files of a run share: given, or derived once from the first records and the source.

A derived schema is extensible: columns without a value yet are JSON, and values that fit no column go to `_extra`. It
is stored as text, so that a driver without Arrow can pass it on and people can read it.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from thresher.core.documents.json_records import is_json, json_type
from thresher.stages.io.parquet.file_schema import FileSchema, is_number, plain_names
from thresher.stages.io.parquet.fit import EXTRA, extra_column
from thresher.stages.io.parquet.type_names import parse_type


def schema_text(schema: pa.Schema) -> str:
    """Return a schema as text, in readable and in exact form."""
    columns = {field.name: "json" if is_json(field.type) else str(field.type) for field in schema}
    arrow = base64.b64encode(schema.serialize().to_pybytes()).decode("ascii")
    return msgspec.json.format(msgspec.json.encode({"columns": columns, "arrow": arrow}), indent=1).decode("utf-8")


def read_schema(text: str | bytes) -> pa.Schema:
    """Parse the result of `schema_text`."""
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(msgspec.json.decode(text)["arrow"])))


def given_schema(given: dict[str, str] | str) -> pa.Schema:
    """Return the schema passed to a writer: names and types, or the text of an Arrow schema."""
    if isinstance(given, str):
        return read_schema(given)
    return pa.schema([pa.field(name, parse_type(kind)) for name, kind in given.items()])


def derive_schema(proposal: str, source: SourceColumns | None, fields: Collection[str] | None) -> str:
    """Return the schema of a run: the columns of the first unit with output, unified with those of all source files."""
    proposed = read_schema(proposal)
    known: dict[str, pa.DataType] = {} if source is None else source.types()
    columns = {field.name: _widened(field, known, source) for field in proposed}
    for name in () if source is None else _names_of_later_files(source, columns, fields):
        columns.setdefault(name, known[name])
    made = pa.schema(
        [pa.field(name, json_type() if pa.types.is_null(kind) else kind) for name, kind in columns.items()]
    )
    is_source_alone = source is not None and not source.is_sample and columns.keys() <= known.keys()
    if extra_column(made) is None and not is_source_alone:
        made = made.append(pa.field(_free_name(made.names), json_type()))
    return schema_text(made)


def _widened(field: pa.Field, known: dict[str, pa.DataType], source: SourceColumns | None) -> pa.DataType:
    """Return the type of a column at the writer: one that also holds the values of the source, if they are in it."""
    if source is None or field.name not in known:
        return field.type
    first = source.first.get(field.name, pa.null())
    are_alike = field.type == first or (is_number(field.type) and is_number(first))
    if source.is_sample and not (are_alike or pa.types.is_null(field.type) or pa.types.is_null(first)):
        return field.type  # a stage changed its values
    return _common_type(field.type, known[field.name])


def _names_of_later_files(source: SourceColumns, columns: Collection[str], fields: Collection[str] | None) -> list[str]:
    """Return the columns that only later files have.

    In a sample they count only if every column of the first file reached the writer: a stage that removes some columns
    may remove these, too, and values that it keeps still have `_extra`.
    """
    wanted = [name for name in source.types() if fields is None or name in fields]
    if source.is_sample and any(name in source.first and name not in columns for name in wanted):
        return []
    return [name for name in wanted if name not in source.first]


def _free_name(names: Collection[str]) -> str:
    name = EXTRA
    while name in names:
        name += "_"
    return name


def _common_type(here: pa.DataType, source: pa.DataType) -> pa.DataType:
    """Return the common type of a column at the writer and in the source; the type at the writer, if a stage changed
    it."""
    schema = FileSchema()
    schema.note(pa.schema([pa.field("_", here)]))
    schema.note(pa.schema([pa.field("_", source)]))
    both = schema.resolve().field(0).type
    return both if not is_json(both) or is_json(here) or is_json(source) else here


class SourceColumns:
    """The columns of the input files: of all Parquet files, or of a sample of others."""

    def __init__(self, fields: Sequence[str] | None, *, is_sample: bool = False) -> None:
        """`is_sample`: records outside the sample may have other columns and types."""
        self._fields = None if fields is None else frozenset(fields)
        self._schema = FileSchema()
        self._is_empty = True
        self.is_sample = is_sample
        self.first: dict[str, pa.DataType] = {}
        """The columns of the first file; those that are missing at the writer were removed by a stage."""

    def note(self, schema: Any) -> None:
        """Add the columns of a file."""
        fields = [field for field in schema if self._fields is None or field.name in self._fields]
        marks = [field.metadata if self.is_sample else None for field in fields]
        noted = pa.schema(
            [
                pa.field(field.name, _values(field.type), metadata=mark)
                for field, mark in zip(fields, marks, strict=True)
            ]
        )
        self._schema.note(noted)
        if self._is_empty:
            self._is_empty = False
            self.first = {field.name: field.type for field in self._schema.resolve()} if fields else {}

    def schema(self) -> pa.Schema:
        """Return the columns of all files."""
        return pa.schema(list(self.types().items()))

    def types(self) -> dict[str, pa.DataType]:
        """Return one type for each column, over all files."""
        if self._is_empty:
            return {}
        return {field.name: field.type for field in self._schema.resolve() if self.first or field.name != "_"}


def _values(kind: pa.DataType) -> pa.DataType:
    return plain_names(kind.value_type if pa.types.is_dictionary(kind) else kind)
