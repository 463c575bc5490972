# SPDX-License-Identifier: Apache-2.0
"""Values in the schema of a run: each fits or goes to `_extra`, whatever batch it came with."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.stages.io.written_files import cut, json_lines
from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.json_records import json_type
from thresher.stages.io import file_writer
from thresher.stages.io.parquet.file_writer import ParquetFile
from thresher.stages.io.parquet.fit import fit_column
from thresher.stages.io.parquet.run_schema import SourceColumns, derive_schema, read_schema, schema_text
from thresher.stages.io.parquet.type_names import TYPE_NAMES, is_type_name, parse_type


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writer, "sync_data", lambda descriptor: None)


def settled_from(folder: Any, lines: list[bytes]) -> str:
    writer = ParquetFile(str(folder / "first.parquet"), "zstd", None)
    for batch in cut(lines, 0):
        writer.write(batch)
    try:
        return derive_schema(writer.proposed_schema(), None, None)
    finally:
        writer.abort()


def file_with(folder: Any, batches: list[DocumentBatch], schema: str) -> bytes:
    path = folder / "file.parquet"
    writer = ParquetFile(str(path), "zstd", None)
    for batch in batches:
        writer.write(batch)
    writer.settle(schema)
    writer.close()
    return path.read_bytes() if path.exists() else b""


def restored(content: bytes) -> list[dict[str, Any]]:
    table = pq.read_table(io.BytesIO(content))
    rows = []
    for row in table.to_pylist():
        values = {
            name: json.loads(value)
            if value is not None and isinstance(table.schema.field(name).type, pa.JsonType)
            else value
            for name, value in row.items()
        }
        rows.append({key: value for key, value in (values | (values.pop("_extra") or {})).items() if value is not None})
    return rows


@settings(deadline=None, max_examples=80)
@given(json_lines(), json_lines(), st.integers(0))
def test_records_of_any_kind_survive_a_schema_of_others_and_batches_leave_no_trace(
    tmp_path_factory: pytest.TempPathFactory, first: list[bytes], lines: list[bytes], cuts: int
) -> None:
    folder = tmp_path_factory.mktemp("files")
    schema = settled_from(folder, first)
    content = file_with(folder, cut(lines, 0), schema)
    assert file_with(folder, cut(lines, cuts), schema) == content
    if lines:
        assert pq.read_schema(io.BytesIO(content)).equals(read_schema(schema))
        records = [{key: value for key, value in json.loads(line).items() if value is not None} for line in lines]
        assert restored(content) == records


@pytest.mark.parametrize(
    ("values", "kind", "expected", "fits"),
    [
        (pa.array([1, 2**53 + 1, 2**60]), pa.float64(), [1.0, None, 2.0**60], [True, False, True]),
        (pa.array([1.0, 1.5, math.inf, None]), pa.int64(), [1, None, None, None], [True, False, False, True]),
        (pa.array([300, 5]), pa.int8(), [None, 5], [False, True]),
        (pa.array([0.5, 0.1, math.nan]), pa.float32(), [0.5, None, math.nan], [True, False, True]),
        (pa.array(["1", None]), pa.int64(), [None, None], [False, True]),
        (pa.array([True, None]), pa.int64(), [None, None], [False, True]),
        (pa.array([1]), pa.large_string(), [None], [False]),
        (pa.array(["a"]), pa.large_string(), ["a"], None),
        (pa.array([b"a"]), pa.string(), [None], [False]),
        (pa.array([[1], [2**40]]), pa.list_(pa.int32()), [[1], None], [True, False]),
        (pa.array([{"a": 1}, {"a": 1, "b": 2}]), pa.struct([("a", pa.int64())]), [{"a": 1}, None], [True, False]),
        (pa.nulls(2), pa.int64(), [None, None], None),
    ],
)
def test_a_value_fits_if_the_type_holds_exactly_that_value(
    values: pa.Array, kind: pa.DataType, expected: list[Any], fits: list[bool] | None
) -> None:
    array, found = fit_column(pa.chunked_array([values]), kind)
    assert array.type == kind
    assert str(array.to_pylist()) == str(expected)
    assert (None if found is None else found.tolist()) == fits


def text_of(**kinds: pa.DataType) -> str:
    return schema_text(pa.schema(list(kinds.items())))


def types_of(text: str) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in read_schema(text)}


def source_of(*schemas: pa.Schema, fields: list[str] | None = None) -> SourceColumns:
    source = SourceColumns(fields)
    for schema in schemas:
        source.note(schema)
    return source


def test_a_settled_schema_has_room_for_what_is_not_known() -> None:
    assert types_of(derive_schema(text_of(a=pa.null(), b=pa.int64()), None, None)) == {
        "a": json_type(),
        "b": pa.int64(),
        "_extra": json_type(),
    }
    assert "_extra_" in types_of(derive_schema(text_of(_extra=pa.int64()), None, None))
    assert list(types_of(derive_schema(text_of(_extra=json_type()), None, None))) == ["_extra"]


def test_columns_of_the_source_keep_their_types_and_stages_may_change_them() -> None:
    source = source_of(
        pa.schema([("a", pa.int16()), ("b", pa.string()), ("gone", pa.int8())]), pa.schema([("c", pa.int8())])
    )
    assert types_of(derive_schema(text_of(a=pa.int16(), b=pa.string()), source, None)) == {
        "a": pa.int16(),
        "b": pa.string(),
        "c": pa.int8(),
    }
    changed = types_of(
        derive_schema(text_of(a=pa.string(), b=pa.string(), new=pa.float64()), source, ["a", "b", "new"])
    )
    assert changed == {"a": pa.string(), "b": pa.string(), "new": pa.float64(), "_extra": json_type()}


def test_categories_count_as_their_values_and_fields_leave_columns_out() -> None:
    schema = pa.schema([("a", pa.dictionary(pa.int32(), pa.string())), ("b", pa.int64())])
    assert source_of(schema, fields=["a"]).types() == {"a": pa.string()}


@pytest.mark.parametrize("name", [*sorted(TYPE_NAMES), "list<string>", "list<list<int64>>"])
def test_every_name_of_a_type_means_one(name: str) -> None:
    assert is_type_name(name)
    assert isinstance(parse_type(name), pa.DataType)


@pytest.mark.parametrize("name", ["", "int", "text", "list<>", "list<json>", "list<int64", "struct<a: int64>"])
def test_other_names_of_types_are_refused(name: str) -> None:
    assert not is_type_name(name)
