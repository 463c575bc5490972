# SPDX-License-Identifier: Apache-2.0
"""Parquet: every row exactly once, in order, with the same ids, whatever the sizes; damage costs what is damaged."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.stages.io.reading import read_all, read_units
from thresher.core.source import ReadContext
from thresher.core.unit import file12, unit_id
from thresher.errors import InputError
from thresher.stages.io.jsonl import lines as line_reading
from thresher.stages.io.parquet.file import find_invalid_rows
from thresher.stages.io.parquet.reader import ParquetReader


def write(path: Path, rows: int, group_rows: int = 10, **columns: pa.Array) -> None:
    table = pa.table({"n": range(rows), "text": [f"text {n}" for n in range(rows)]} | columns)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group_rows)


def numbers(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["n"] for line in lines]


@settings(max_examples=40)
@given(st.integers(0, 60), st.integers(1, 25), st.integers(1, 3000), st.integers(1, 2000))
def test_every_row_once_in_order_whatever_the_sizes(
    rows: int, group_rows: int, blocksize: int, chunk_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "data.parquet", rows, group_rows)
        reader = ParquetReader(folder, blocksize=blocksize)
        found = read_all(reader, ReadContext(chunk_bytes=chunk_bytes))
    assert numbers(found.lines) == list(range(rows))
    assert found.ids == [f"{file12('data.parquet')}:r{n}" for n in range(rows)]
    assert list(found.units) == [unit_id("data.parquet", block) for block in range(len(found.units))]


@settings(max_examples=30)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.integers(1, 100), st.integers(1, 20_000))
def test_a_limit_gives_the_first_rows(sizes: list[int], limit: int, blocksize: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for n, rows in enumerate(sizes):
            write(Path(folder) / f"{n}.parquet", rows)
        whole = read_all(ParquetReader(folder, blocksize=blocksize))
        first = read_all(ParquetReader(folder, blocksize=blocksize, limit=limit))
    assert first.records == whole.records[:limit]


def test_row_groups_make_units_up_to_the_block_size(tmp_path: Path) -> None:
    write(tmp_path / "data.parquet", 100)
    size = pq.read_metadata(tmp_path / "data.parquet").row_group(0).total_byte_size
    units = list(ParquetReader(str(tmp_path), blocksize=3 * size + 50).list_units())
    assert [(unit.pieces[0].start, unit.pieces[0].end, unit.pieces[0].row) for unit in units] == [
        (0, 3, 0),
        (3, 6, 30),
        (6, 9, 60),
        (9, 10, 90),
    ]


def test_small_files_share_a_unit(tmp_path: Path) -> None:
    for n in range(10):
        write(tmp_path / f"{n}.parquet", n)
    (unit,) = ParquetReader(str(tmp_path)).list_units()
    assert len(unit.pieces) == 9  # a file without rows has nothing to read
    assert unit.id == unit_id("1.parquet", 0)
    assert len(read_all(ParquetReader(str(tmp_path))).records) == 45


def test_files_per_partition_takes_exactly_so_many_whole_files(tmp_path: Path) -> None:
    for n in range(5):
        write(tmp_path / f"{n}.parquet", 50)
    units = list(ParquetReader(str(tmp_path), files_per_partition=2, blocksize=1).list_units())
    assert [len(unit.pieces) for unit in units] == [2, 2, 1]


def test_fields_reads_only_these_columns(tmp_path: Path) -> None:
    write(tmp_path / "data.parquet", 3)
    assert read_all(ParquetReader(str(tmp_path), fields=["text", "other"])).lines == [
        b'{"text": "text 0"}',
        b'{"text": "text 1"}',
        b'{"text": "text 2"}',
    ]


def test_a_file_with_none_of_the_fields_is_set_aside_and_its_columns_are_named(tmp_path: Path) -> None:
    write(tmp_path / "data.parquet", 3)
    found = read_all(ParquetReader(str(tmp_path), fields=["txet"]))
    assert (found.lines, found.errors) == ([], ["field-missing"])
    assert "'txet'; it has 'n', 'text'" in found.failed[0][3]


def test_columns_are_known_before_reading_where_the_files_are_few(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 1)
    write(tmp_path / "b.parquet", 1, extra=pa.array([1]))
    assert ParquetReader(str(tmp_path)).known_columns() == ["n", "text", "extra"]
    assert ParquetReader(str(tmp_path), fields=["text", "no"]).known_columns() == ["text"]
    (tmp_path / "c.parquet").write_bytes(b"damaged")
    assert ParquetReader(str(tmp_path)).known_columns() is None
    (tmp_path / "c.parquet").unlink()
    for n in range(10):
        write(tmp_path / f"{n}.parquet", 1)
    assert ParquetReader(str(tmp_path)).known_columns() is None


def test_files_with_different_columns_are_read_each_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", 1)
    write(tmp_path / "b.parquet", 1, extra=pa.array([[1, 2]]))
    assert [json.loads(line).keys() for line in read_all(ParquetReader(str(tmp_path))).lines] == [
        {"n", "text"},
        {"n", "text", "extra"},
    ]


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1PAR1", b"x" * 100])
def test_a_file_that_is_no_parquet_is_one_failure_and_the_others_are_read(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "a.parquet", 5)
    (tmp_path / "b.parquet").write_bytes(content)
    write(tmp_path / "c.parquet", 5)
    found = read_all(ParquetReader(str(tmp_path)))
    assert len(found.records) == 10
    ((error, record_id, _, message),) = found.failed
    assert error == "unreadable-parquet"
    assert record_id == f"{file12('b.parquet')}:r0"
    assert message.startswith(f"{tmp_path}/b.parquet, row 0: the file cannot be read as Parquet (")


@settings(max_examples=25)
@given(st.data())
def test_a_file_cut_or_damaged_anywhere_never_stops_the_reader(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.parquet"
        write(path, 60)
        content = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        else:
            content[data.draw(st.integers(4, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        found = read_all(ParquetReader(folder, blocksize=500))
    assert len(found.records) + len(found.failed) >= 1


def test_a_damaged_page_costs_its_row_group_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    texts = pa.array([f"{n:05d}" * 200 for n in range(30)])
    pq.write_table(pa.table({"n": range(30), "text": texts}), path, row_group_size=10, write_page_checksum=True)
    column = pq.read_metadata(path).row_group(1).column(1)
    content = bytearray(path.read_bytes())
    content[(column.dictionary_page_offset + column.data_page_offset) // 2] ^= 1
    path.write_bytes(content)
    found = read_all(ParquetReader(str(path)))
    assert numbers(found.lines) == [*range(10), *range(20, 30)]
    ((error, record_id, _, message),) = found.failed
    assert (error, record_id) == ("corrupt-page", f"{file12('data.parquet')}:r10")
    assert "rows 10 to 19 of row group 1 cannot be read" in message


def test_a_text_that_is_not_utf8_costs_its_row(tmp_path: Path) -> None:
    good = pa.array([b"a", b"b", b"\xff!", b"d", None]).cast(pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 5, good.buffers())
    shared = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, 0, 0]), pa.array(["x", "y"]))
    pq.write_table(pa.table({"n": range(5), "text": texts, "kind": shared}), tmp_path / "data.parquet")
    found = read_all(ParquetReader(str(tmp_path)))
    assert numbers(found.lines) == [0, 1, 3, 4]
    assert found.ids == [f"{file12('data.parquet')}:r{n}" for n in (0, 1, 3, 4)]
    ((error, record_id, line, _),) = found.failed
    assert (error, record_id) == ("invalid-utf8", f"{file12('data.parquet')}:r2")
    assert line == b'{"text": "\xff!"}'


def test_rows_that_unpack_to_far_more_than_the_file_says_come_in_small_batches(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array(["x" * 4_000] * 20_000)}), tmp_path / "data.parquet")
    reader = ParquetReader(str(tmp_path))
    (unit,) = reader.list_units()
    sizes = [len(item.task) for item in reader.read(unit, ReadContext(chunk_bytes=2**20))]
    assert sum(sizes) == 20_000
    assert max(sizes) <= 8192


def test_pages_of_large_rows_ask_for_room_before_they_are_unpacked_and_small_rows_do_not(tmp_path: Path) -> None:
    large, small = tmp_path / "large", tmp_path / "small"
    for folder, texts in ((large, ["x" * 300_000] * 10), (small, ["x" * 30] * 100_000)):
        folder.mkdir()
        table = pa.table({"text": pa.array(texts), "other": pa.array(range(len(texts)))})
        pq.write_table(table, folder / "data.parquet", use_dictionary=False)
    asked: list[int] = []
    context = ReadContext(chunk_bytes=2**20, before_large=asked.append)
    for folder, fields, expected in ((large, None, True), (large, ["other"], False), (small, None, False)):
        reader = ParquetReader(str(folder), fields=fields)
        asked.clear()
        assert sum(len(item.task) for unit in reader.list_units() for item in reader.read(unit, context)) in (
            10,
            100_000,
        )
        assert bool(asked) == expected
        assert all(nbytes > 3_000_000 for nbytes in asked)


def test_a_file_that_changed_after_listing_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write(path, 5)
    reader = ParquetReader(str(path))
    units = list(reader.list_units())
    write(path, 6)
    with pytest.raises(InputError, match="changed after it was listed"):
        read_units(reader, iter(units))


@pytest.mark.parametrize("with_kernels", [False, True])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@given(
    values=st.lists(
        st.none() | st.binary(max_size=6) | st.text(max_size=70).map(str.encode) | st.sampled_from([b"\xc3", b"\xa9"]),
        max_size=6,
    ),
    skipped=st.integers(0, 2),
)
def test_rows_with_bad_text_are_those_that_python_cannot_decode(
    with_kernels: bool, kind: pa.DataType, values: list[bytes | None], skipped: int
) -> None:
    def is_bad(value: bytes | None) -> bool:
        try:
            (value or b"").decode("utf-8")
        except UnicodeDecodeError:
            return True
        return False

    large = kind == pa.large_string()
    stored = pa.array(values, type=pa.large_binary() if large else pa.binary())
    texts = pa.Array.from_buffers(kind, len(stored), stored.buffers()).slice(skipped)
    kernels = importlib.import_module("thresher.kernels.json.text") if with_kernels else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_reading, "loaded_kernels", lambda: kernels)
        found = find_invalid_rows(pa.table({"text": texts, "n": range(len(texts))}))
    assert found == [row for row, value in enumerate(values[skipped:]) if is_bad(value)]
