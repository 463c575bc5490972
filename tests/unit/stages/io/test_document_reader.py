# SPDX-License-Identifier: Apache-2.0
"""A folder with JSON lines and Parquet: every record once, in input order, with the ids that its own reader gives."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.stages.io.reading import read_all
from thresher import DocumentReader, JsonlReader, JsonlWriter, ParquetReader, ParquetWriter, Pipeline
from thresher.errors import UsageError

KINDS = ("jsonl", "jsonl.gz", "parquet")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows, pa.schema({"n": pa.int64(), "text": pa.string()})), path)
    else:
        path.write_bytes(gzip.compress(lines) if path.suffix == ".gz" else lines)


def write_files(folder: Path, files: list[tuple[str, int]]) -> None:
    first = 0
    for number, (kind, rows) in enumerate(files):
        numbered = range(first, first + rows)
        write(folder / f"{number:02}.{kind}", [{"n": n, "text": f"text {n}"} for n in numbered])
        first += rows


def numbers(lines: list[bytes]) -> list[int]:
    return [json.loads(line)["n"] for line in lines]


FILES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 20)), min_size=1, max_size=7)


@settings(max_examples=60)
@given(FILES, st.integers(1, 3000), st.sampled_from([None, 1, 3]))
def test_every_record_once_in_order_with_the_id_of_its_own_reader(
    files: list[tuple[str, int]], blocksize: int, per_unit: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), files)
        found = read_all(DocumentReader(folder, per_unit, blocksize))
        alone = {}
        for kind, reader in (("parquet", ParquetReader), ("jsonl", JsonlReader)):
            if any(name.startswith(kind) for name, _ in files):
                alone |= dict(read_all(reader(folder)).records)
    assert numbers(found.lines) == list(range(sum(rows for _, rows in files)))
    assert found.failed == []
    assert dict(found.records) == alone
    assert len(set(found.units)) == len(found.units)


@settings(max_examples=40)
@given(FILES, st.integers(1, 60), st.integers(1, 3000))
def test_a_limit_gives_the_first_records(files: list[tuple[str, int]], limit: int, blocksize: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), files)
        found = read_all(DocumentReader(folder, blocksize=blocksize, limit=limit))
    assert numbers(found.lines) == list(range(min(limit, sum(rows for _, rows in files))))


def test_units_are_in_the_order_of_the_files(tmp_path: Path) -> None:
    write_files(tmp_path, [("jsonl", 30), ("parquet", 30), ("jsonl", 30)])
    orders = [unit.order for unit in DocumentReader(str(tmp_path), blocksize=200).list_units()]
    assert orders == sorted(orders)
    assert {file for file, _ in orders} == {0, 1, 2}


def test_other_files_are_passed_over(tmp_path: Path) -> None:
    write_files(tmp_path, [("jsonl", 3), ("parquet", 3)])
    for name in ("notes.txt", "old.parquet.gz", "_meta.jsonl"):
        (tmp_path / name).write_bytes(b"nothing")
    assert numbers(read_all(DocumentReader(str(tmp_path))).lines) == list(range(6))


def test_standard_input_is_refused() -> None:
    with pytest.raises(UsageError, match="JsonlReader reads"):
        DocumentReader("-")


@pytest.mark.parametrize("kinds", [("jsonl", "parquet", "jsonl"), ("parquet", "jsonl", "parquet")])
@pytest.mark.parametrize("blocksize", ["64MB", 300])
def test_json_lines_keep_their_bytes_and_rows_their_values(
    tmp_path: Path, kinds: tuple[str, ...], blocksize: int | str
) -> None:
    expected: list[bytes] = []
    for number, kind in enumerate(kinds):
        rows = [{"n": 10 * number + n, "text": f"text {n}"} for n in range(10)]
        write(tmp_path / "in" / f"{number}.{kind}", rows)
        if kind == "jsonl":
            lines = [b'{"n":%d , "text": "as it came"}' % row["n"] for row in rows]
            (tmp_path / "in" / f"{number}.jsonl").write_bytes(b"\n".join(lines) + b"\n")
            expected += lines
        else:
            expected += [json.dumps(row).encode() for row in rows]
    stages = [DocumentReader(str(tmp_path / "in"), blocksize=blocksize), JsonlWriter(str(tmp_path / "out"))]
    result = Pipeline("copy", stages=stages).run("serial", progress="none")
    written = [line for path in result.output_paths for line in Path(path).read_bytes().splitlines()]
    assert written == expected


@pytest.mark.parametrize("first", ["jsonl", "parquet"])
@pytest.mark.parametrize("executor", ["serial", "local"])
def test_parquet_files_of_a_mixed_folder_have_one_schema_with_the_columns_of_all_files(
    tmp_path: Path, first: str, executor: str
) -> None:
    names = ["0.jsonl", "1.parquet"] if first == "jsonl" else ["1.jsonl", "0.parquet"]
    write(tmp_path / "in" / names[0], [{"n": 1, "url": "u"}, {"n": 2.5, "url": None}])
    pq.write_table(pa.table({"n": [3, 4], "day": ["a", "b"]}), tmp_path / "in" / names[1])
    stages = [DocumentReader(str(tmp_path / "in")), ParquetWriter(str(tmp_path / "out"))]
    result = Pipeline("convert", stages=stages).run(executor, progress="none")
    tables = [pq.read_table(path) for path in result.output_paths]
    assert len({str(table.schema) for table in tables}) == 1
    rows = sorted((row["n"], row["url"], row["day"]) for table in tables for row in table.to_pylist())
    assert rows == [(1.0, "u", None), (2.5, None, None), (3.0, None, "a"), (4.0, None, "b")]


def test_a_folder_of_parquet_alone_has_the_schema_that_its_own_reader_gives(tmp_path: Path) -> None:
    write_files(tmp_path / "in", [("parquet", 5), ("parquet", 5)])
    schemas = []
    for number, reader in enumerate((DocumentReader, ParquetReader)):
        stages = [reader(str(tmp_path / "in")), ParquetWriter(str(tmp_path / f"out{number}"))]
        result = Pipeline("convert", stages=stages).run("serial", progress="none")
        schemas.append(pq.read_schema(result.output_paths[0]))
    assert schemas[0] == schemas[1]
