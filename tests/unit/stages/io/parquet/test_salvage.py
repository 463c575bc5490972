# SPDX-License-Identifier: Apache-2.0
"""A damaged page costs the rows that it holds: each row is read or counted as lost, and none gets another's values."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.core.source import ReadContext
from thresher.core.unit import file12
from thresher.stages.io.parquet.pages import find_pages, read_footer
from thresher.stages.io.parquet.reader import ParquetReader
from thresher.stages.io.parquet.thrift_compact import encode_struct

ROWS, GROUP_ROWS = 4000, 2000
LAYOUTS: dict[str, dict[str, Any]] = {
    "plain": {"use_dictionary": False},
    "dictionary": {"dictionary_pagesize_limit": 8192},
    "index": {"use_dictionary": False, "write_page_index": True},
    "v2": {"use_dictionary": False, "data_page_version": "2.0", "compression": "zstd"},
}


def record(n: int) -> dict[str, Any]:
    return {"n": n, "text": f"text {n} " * 4, "tags": [n] * (n % 3), "x": None if n % 7 == 0 else n / 3}


def write(path: Path, **layout: Any) -> None:
    pq.write_table(
        pa.Table.from_pylist([record(n) for n in range(ROWS)]),
        path,
        row_group_size=GROUP_ROWS,
        data_page_size=2048,
        write_batch_size=100,
        write_page_checksum=True,
        **layout,
    )


def pages_of(path: Path, group: int, column: str) -> Any:
    with open(path, "rb") as source:
        return find_pages(source, read_footer(source, path.stat().st_size), group, column)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x55
    path.write_bytes(content)


def read(path: Path, **options: Any) -> tuple[list[dict[str, Any]], list[tuple[int, int | None]]]:
    """What is read, and position and number of what is lost."""
    reader = ParquetReader(str(path), **options)
    found: list[dict[str, Any]] = []
    lost: list[tuple[int, int | None]] = []
    for unit in reader.list_units():
        for item in reader.read(unit, ReadContext()):
            batch: Any = item.task
            found += [json.loads(bytes(line)) for line in batch.json_lines()]
            for failed in batch._failed:
                assert failed.ids.at(0).startswith(f"{file12(path.name)}:r")
                lost.append((int(failed.ids.positions[0]), failed.counts[0] if failed.counts else 1))
    return found, lost


def rows_lost(lost: list[tuple[int, int | None]]) -> list[int]:
    return [row for first, count in lost for row in range(first, first + (count or 0))]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("column", ["n", "text", "x"])
def test_a_damaged_page_costs_its_own_rows(tmp_path: Path, layout: str, column: str) -> None:
    path = tmp_path / "data.parquet"
    write(path, **LAYOUTS[layout])
    page = pages_of(path, 1, column).pages[-2]
    flip(path, page.start + page.nbytes - 3)
    found, lost = read(path)
    first = GROUP_ROWS + page.first_row
    assert lost == [(first, page.rows)]
    assert 0 < page.rows < GROUP_ROWS
    assert found == [record(n) for n in range(ROWS) if not first <= n < first + page.rows]


def test_pages_of_two_columns_cost_the_rows_of_both(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write(path, use_dictionary=False)
    hurt = [pages_of(path, 0, "text").pages[3], pages_of(path, 0, "x").pages[0], pages_of(path, 1, "n").pages[0]]
    for page in hurt:
        flip(path, page.start + page.nbytes - 3)
    found, lost = read(path)
    expected = {
        base + row
        for base, page in zip((0, 0, GROUP_ROWS), hurt, strict=True)
        for row in range(page.first_row, page.first_row + page.rows)
    }
    assert sorted(rows_lost(lost)) == sorted(expected)
    assert found == [record(n) for n in range(ROWS) if n not in expected]


def test_lists_are_read_beyond_a_damaged_page_where_the_file_has_an_index(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write(path, use_dictionary=False, write_page_index=True)
    page = pages_of(path, 0, "tags").pages[1]
    flip(path, page.start + page.nbytes - 3)
    found, lost = read(path)
    assert lost == [(page.first_row, page.rows)]
    assert len(found) == ROWS - page.rows


def test_lists_without_an_index_cost_the_rest_of_their_row_group(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write(path, use_dictionary=False)
    column = pq.read_metadata(path).row_group(0).column(2)
    flip(path, column.data_page_offset + column.total_compressed_size // 2)
    found, ((first, count),) = read(path)
    assert 0 < first < GROUP_ROWS
    assert first + (count or 0) == GROUP_ROWS
    assert found == [record(n) for n in range(ROWS) if not first <= n < GROUP_ROWS]


def test_a_damaged_dictionary_costs_the_pages_that_need_it(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write(path, **LAYOUTS["dictionary"])
    start, nbytes = pages_of(path, 0, "text").dictionary
    flip(path, start + nbytes - 3)
    found, lost = read(path)
    assert 0 < len(rows_lost(lost)) < GROUP_ROWS
    assert found == [record(n) for n in range(ROWS) if n not in rows_lost(lost)]


def test_only_columns_that_are_read_matter(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write(path, use_dictionary=False)
    page = pages_of(path, 0, "x").pages[0]
    flip(path, page.start + page.nbytes - 3)
    assert len(read(path, fields=["n", "text"])[0]) == ROWS


def test_a_limit_counts_lost_rows(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    write(path, use_dictionary=False)
    page = pages_of(path, 0, "text").pages[1]
    flip(path, page.start + page.nbytes - 3)
    limit = page.first_row + 5
    found, lost = read(path, limit=limit)
    assert lost == [(page.first_row, 5)]
    assert len(found) == page.first_row


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(LAYOUTS)), st.lists(st.tuples(st.floats(0, 1), st.integers(1, 255)), max_size=3))
def test_every_row_is_read_or_lost_wherever_bytes_are_damaged(layout: str, damage: list[tuple[float, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.parquet"
        write(path, **LAYOUTS[layout])
        content = bytearray(path.read_bytes())
        footer = int.from_bytes(content[-8:-4], "little") + 8
        for place, mask in damage:
            content[4 + int(place * (len(content) - footer - 5))] ^= mask
        path.write_bytes(content)
        found, lost = read(path)
    assert len(found) + len(rows_lost(lost)) == ROWS
    assert not {row["n"] for row in found} & set(rows_lost(lost))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_footer_is_encoded_as_it_was_decoded(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "data.parquet"
    write(path, **LAYOUTS[layout])
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    with open(path, "rb") as source:
        assert encode_struct(read_footer(source, len(content))) == content[-8 - length : -8]


def test_an_encrypted_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PARE" + b"\1" * 100 + b"PARE")
    reader = ParquetReader(str(path))
    (unit,) = reader.list_units()
    (item,) = reader.read(unit, ReadContext())
    batch: Any = item.task
    assert [(rows.error, rows.counts) for rows in batch._failed] == [("encrypted-parquet", [None])]


def test_a_file_without_row_groups_has_no_records(tmp_path: Path) -> None:
    pq.ParquetWriter(tmp_path / "data.parquet", pa.schema([("text", pa.string())])).close()
    assert read(tmp_path / "data.parquet") == ([], [])
