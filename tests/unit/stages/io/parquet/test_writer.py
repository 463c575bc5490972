# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import datetime
import decimal
import hashlib
import io
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of_lines
from tests.unit.stages.io.written_files import JOURNEYS, cut, joined, json_lines, written
from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.records import RecordIds
from thresher.core.task import RawChunk
from thresher.stages.io import file_writer
from thresher.stages.io.jsonl.json_lines import parse_chunk
from thresher.stages.io.parquet import file_writer as parquet_file_writer
from thresher.stages.io.parquet.pieces import piece_table
from thresher.stages.io.parquet.writer import ParquetWriter


@pytest.fixture(autouse=True)
def _small_row_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few records fill a row group and the memory of the spool, so that a handful of them meets every border."""
    monkeypatch.setattr(file_writer, "sync_data", lambda descriptor: None)  # no waiting for the disk
    monkeypatch.setattr(parquet_file_writer, "ROW_GROUP_BYTES", 40)
    monkeypatch.setattr(parquet_file_writer, "ROW_GROUP_ROWS", 3)
    monkeypatch.setattr(parquet_file_writer, "SPOOL_BYTES", 2000)


def table_of(lines: list[bytes], cuts: int = 0) -> pa.Table:
    content, _ = written(ParquetWriter("out"), cut(lines, cuts))
    return pq.read_table(io.BytesIO(content))


def values_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows with JSON columns decoded."""
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = column.to_pylist()
        is_json = isinstance(column.type, pa.JsonType)
        columns[name] = [json.loads(t) if is_json and t is not None else t for t in texts]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


MIXED = [b'{"a": 1}', b'{"a": 2.50}', b'{"a": "\\u00e9"}', b'{"a": -0}', b'{"a": 9007199254740993}', b'{"a": 1e999}']


@settings(deadline=None, max_examples=100)
@given(json_lines(), st.integers(0), st.sampled_from(JOURNEYS))
@example(MIXED, 0b111110, JOURNEYS[0])
@example(MIXED[:2], 0b10, JOURNEYS[0])
@example([MIXED[1], MIXED[4]], 0b10, JOURNEYS[0])
def test_batch_borders_leave_no_trace_in_the_file(lines, cuts, journey):
    sink = ParquetWriter("out")

    assert written(sink, [journey(b) for b in cut(lines, cuts)]) == written(sink, cut(lines, 0))


@settings(deadline=None, max_examples=100)
@given(json_lines(), st.integers(0), st.integers(0))
@example(MIXED, 0b10, 0)
@example(MIXED, 0b111110, 0)
@example([MIXED[0], MIXED[1], MIXED[2]], 0b100, 0)
def test_joined_parts_are_the_file_that_would_have_been_written_at_once(lines, borders, cuts):
    sink = ParquetWriter("out")
    parts = [cut([bytes(line) for line in part.json_lines()], cuts) for part in cut(lines, borders)]

    if lines:
        assert joined(sink, parts) == written(sink, cut(lines, 0))


@settings(deadline=None, max_examples=60)
@given(json_lines(), st.integers(0))
def test_changed_and_added_columns_leave_no_trace_of_batch_borders_either(lines, cuts):
    def changed(batch: DocumentBatch) -> DocumentBatch:
        texts = [None if value is None else f"<{value}>" for value in batch.values("a")]
        lengths = [len(bytes(line)) for line in batch.raw_lines.lines()]
        return batch.replace("marked", texts).replace("b", lengths)

    sink = ParquetWriter("out")
    whole = written(sink, [changed(batch) for batch in cut(lines, 0)])

    assert written(sink, [changed(batch) for batch in cut(lines, cuts)]) == whole


@settings(deadline=None, max_examples=60)
@given(json_lines(), st.integers(0))
def test_every_value_survives(lines, cuts):
    records = [json.loads(line) for line in lines]
    rows = values_of(table_of(lines, cuts)) if lines else []

    assert len(rows) == len(records)
    for row, record in zip(rows, records, strict=True):
        assert {key: value for key, value in row.items() if value is not None} == {
            key: value for key, value in record.items() if value is not None
        }


def test_the_facts_are_those_of_the_file():
    content, facts = written(ParquetWriter("out"), cut([b'{"a": 1}', b'{"a": 2}'], 0b10))

    assert facts.records == 2
    assert facts.nbytes == len(content)
    assert facts.sha256 == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "2"], pa.int64()),
        (["1", "null"], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["9007199254740993", "2"], pa.int64()),
        (["9007199254740993", "2.5"], pa.json_(pa.large_string())),
        (["9223372036854775808", "1"], pa.json_(pa.large_string())),
        (["true", "false"], pa.bool_()),
        (["true", "1"], pa.json_(pa.large_string())),
        (['"00123"', '"x"'], pa.large_string()),
        (['"00123"', "123"], pa.json_(pa.large_string())),
        (['{"b": 1}', "null"], pa.json_(pa.large_string())),
        (["[1]", "[2]"], pa.json_(pa.large_string())),
        (["null", "null"], pa.null()),
    ],
)
@pytest.mark.parametrize("cuts", [0, 0b10])
def test_the_type_of_a_column_follows_from_all_its_values(values, kind, cuts):
    lines = [f'{{"a": {value}}}'.encode() for value in values]

    table = table_of(lines, cuts)

    assert table.schema.field("a").type == kind
    assert values_of(table) == [json.loads(line) for line in lines]


def test_columns_come_in_the_order_in_which_records_bring_them_up():
    lines = [b'{"b": 1}', b'{"a": 1, "b": 1}', b'{"c": 1, "a": 1}']

    assert table_of(lines).column_names == ["b", "a", "c"]


def test_a_column_that_a_stage_added_comes_behind_the_fields_of_its_first_record():
    batches = [b.replace("score", [None if k == 0 else 1.0 for k in range(len(b))]) for b in cut([b'{"a":1}'] * 3, 0)]
    content, _ = written(ParquetWriter("out"), [*batches, batch_of_lines([b'{"z": 1}'])])

    assert pq.read_schema(io.BytesIO(content)).names == ["a", "score", "z"]


def test_a_column_without_any_value_comes_last():
    first = batch_of_lines([b'{"a": 1}']).replace("score", [None])
    content, _ = written(ParquetWriter("out"), [first, batch_of_lines([b'{"z": 1}'])])

    assert pq.read_schema(io.BytesIO(content)).names == ["a", "z", "score"]


TYPED = pa.table(
    {
        "when": pa.array(
            [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC), None, None], pa.timestamp("us", tz="UTC")
        ),
        "day": pa.array([datetime.date(2024, 1, 1)] * 3, pa.date32()),
        "price": pa.array([decimal.Decimal("1.50"), None, None], pa.decimal128(9, 2)),
        "bytes": pa.array([b"\xff\0", b"", None], pa.binary()),
        "embedding": pa.array([[1.0, 2.0], [], None], pa.list_(pa.float32())),
        "place": pa.array([{"x": 1, "tags": ["a"]}, None, {"x": None, "tags": None}]),
        "small": pa.array([1, 2, None], pa.int8()),
        "name": pa.array(["a", None, "b"], pa.string()),
    }
)


def typed_batches(cuts: list[int]) -> list[DocumentBatch]:
    borders = [0, *cuts, TYPED.num_rows]
    return [
        DocumentBatch.from_table(
            TYPED.slice(start, end - start), RecordIds((("0:r", "x"),), np.arange(start, end, dtype=np.int64))
        )
        for start, end in itertools.pairwise(borders)
    ]


@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2]])
def test_types_that_came_with_the_input_are_kept(cuts):
    content, _ = written(ParquetWriter("out"), typed_batches(cuts))

    assert pq.read_table(io.BytesIO(content)).equals(TYPED)
    assert content == written(ParquetWriter("out"), typed_batches([]))[0]
    assert content == joined(ParquetWriter("out"), [[batch] for batch in typed_batches(cuts)])[0]


def test_a_type_that_parquet_has_no_form_for_becomes_json():
    union = pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["x"])]
    )
    content, _ = written(ParquetWriter("out"), [DocumentBatch(pa.table({"u": union, "e": pa.array([{}, {}])}))])

    assert values_of(pq.read_table(io.BytesIO(content))) == [{"u": 1, "e": {}}, {"u": "x", "e": {}}]


def test_categories_are_written_as_their_values():
    column = pa.array(["x", "y", "x"]).dictionary_encode()
    content, _ = written(ParquetWriter("out"), [DocumentBatch(pa.table({"c": column}))])

    assert pq.read_table(io.BytesIO(content)).column("c").to_pylist() == ["x", "y", "x"]


def test_records_without_fields_are_still_counted():
    content, facts = written(ParquetWriter("out"), [batch_of_lines([b"{}", b"{}"])])

    assert facts.records == 2
    assert pq.read_table(io.BytesIO(content)).num_rows == 2


def test_fields_keeps_these_columns_in_the_order_of_the_records():
    content, _ = written(ParquetWriter("out", fields=["c", "a"]), cut([b'{"a": 1, "b": 2, "c": 3}'], 0))

    assert pq.read_table(io.BytesIO(content)).to_pylist() == [{"a": 1, "c": 3}]


def test_row_groups_end_at_a_number_of_rows_or_bytes(monkeypatch: pytest.MonkeyPatch):
    by_rows, _ = written(ParquetWriter("out"), cut([b'{"a": 1}'] * 7, 0b1010))
    by_bytes, _ = written(ParquetWriter("out"), cut([json.dumps({"a": "x" * 20}).encode()] * 5, 0b1010))

    def rows(content: bytes) -> list[int]:
        facts = pq.ParquetFile(io.BytesIO(content)).metadata
        return [facts.row_group(k).num_rows for k in range(facts.num_row_groups)]

    assert rows(by_rows) == [3, 3, 1]
    assert rows(by_bytes) == [2, 2, 1]


def test_neither_ids_nor_marks_of_ours_nor_pandas_notes_are_in_the_file():
    frame = TYPED.select(["small"]).to_pandas()
    content, _ = written(ParquetWriter("out"), [DocumentBatch(pa.Table.from_pandas(frame))])

    schema = pq.read_schema(io.BytesIO(content))
    assert schema.names == ["small"]
    assert not schema.metadata
    assert all(not schema.field(name).metadata for name in schema.names)


def test_a_unit_without_records_has_no_file(tmp_path: Path):
    writer = ParquetWriter("out").open_writer(str(tmp_path / "file"))
    writer.write(batch_of_lines([]))

    assert writer.close().records == 0
    assert list(tmp_path.iterdir()) == []


def test_an_aborted_file_is_gone(tmp_path: Path):
    writer = ParquetWriter("out").open_writer(str(tmp_path / "file"))
    writer.write(batch_of_lines([b'{"a": "0123456789"}'] * 1000))
    assert list(tmp_path.iterdir()), "so much is set aside in a file"
    writer.abort()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("compression", "codec"), [("zstd", "ZSTD"), ("gz", "GZIP"), ("snappy", "SNAPPY"), (None, "UNCOMPRESSED")]
)
def test_pages_are_compressed_as_asked(compression, codec):
    content, _ = written(ParquetWriter("out", compression=compression), cut([b'{"a": 1}'], 0))

    assert pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0).compression == codec


@pytest.mark.parametrize(
    "lines",
    [
        [b'{"text": "a", "n": 1}', b'{"n": 2, "text": "\\u00e9\\n"}', b'{"text": ""}'],
        [b'{"text": "a"}', b'{"text": null}', b"{}", b'{"text": "b"}'],
        [b'{"text": null}', b"{}"],
        [b'{"text": "a"}', b'{"text": 1}'],
        [b'{"text": "a"}', b'{"te\\u0078t": "b"}'],
    ],
)
def test_texts_that_the_reader_found_are_the_values_of_the_lines(lines: list[bytes]) -> None:
    from thresher.kernels.json.text import extract_texts

    extract_texts(np.frombuffer(b"{}", dtype=np.uint8), np.array([0]), np.array([2]), "text")  # stages ask for it
    batch = parse_chunk(RawChunk(b"\n".join(lines) + b"\n", 0, ("file:", "path")))
    assert batch.raw_lines is not None
    assert batch.raw_lines.found is not None
    rows = np.arange(len(lines))[::-1]
    for made in (batch, batch.take(rows)):
        found = piece_table(made, None)
        found.validate(full=True)
        made.raw_lines.found = None
        assert found.equals(piece_table(made, None), check_metadata=True)
