# SPDX-License-Identifier: Apache-2.0
"""Readers on an object store: a real S3 server on loopback."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.stages.io.reading import PACKERS, read_all, read_units, zstd_frames
from thresher.core.source import ReadContext
from thresher.errors import InputError
from thresher.stages.io.jsonl.reader import JsonlReader
from thresher.stages.io.parquet.reader import ParquetReader

pytestmark = pytest.mark.s3


@pytest.fixture(scope="module")
def store(s3_options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """A file system with the bucket `bucket`, and the options that lead to it."""
    import s3fs

    file_system = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    file_system.mkdir("bucket")
    return file_system, s3_options


LINES = b"".join(b'{"n": %d}\n' % n for n in range(1000))


@pytest.mark.parametrize("ending", ["", *PACKERS])
def test_files_on_s3_give_the_same_as_local_ones(
    store: tuple[Any, dict[str, Any]], tmp_path: Path, ending: str
) -> None:
    file_system, options = store
    packed = PACKERS[ending](LINES) if ending else LINES
    (tmp_path / f"x.jsonl{ending}").write_bytes(packed)
    file_system.pipe(f"bucket/same{ending}/x.jsonl{ending}", packed)
    local = read_all(JsonlReader(str(tmp_path), blocksize=2000))
    for path in (
        f"s3://bucket/same{ending}",
        f"s3://bucket/same{ending}/*",
        f"s3://bucket/same{ending}/x.jsonl{ending}",
    ):
        reader = JsonlReader(path, blocksize=2000, storage_options=options)
        remote = read_all(reader, ReadContext(chunk_bytes=500))
        assert remote.records == local.records
        assert remote.units == local.units
    limited = read_all(JsonlReader(f"s3://bucket/same{ending}", blocksize=2000, limit=7, storage_options=options))
    assert limited.records == local.records[:7]


def test_many_frames_on_s3_are_streamed(store: tuple[Any, dict[str, Any]]) -> None:
    file_system, options = store
    file_system.pipe("bucket/frames/x.jsonl.zst", zstd_frames([LINES, LINES]))
    reader = JsonlReader("s3://bucket/frames", blocksize=5000, storage_options=options)
    (unit,) = reader.list_units()
    assert unit.stream
    assert len(read_all(reader).records) == 2000


def test_a_folder_on_s3_is_listed_in_order_with_etags(store: tuple[Any, dict[str, Any]]) -> None:
    file_system, options = store
    for name in ("b.jsonl", "a/x.jsonl", "a.jsonl", "_skip/y.jsonl", "note.txt", "a/.z.jsonl"):
        file_system.pipe(f"bucket/many/{name}", b"{}\n")
    reader = JsonlReader("s3://bucket/many", storage_options=options)
    files = list(reader.files())
    assert [info.relative for info in files] == ["a.jsonl", "a/x.jsonl", "b.jsonl"]
    assert all(info.version == file_system.info(info.path)["ETag"].strip('"') for info in files)
    (unit,) = reader.list_units()
    assert len(unit.pieces) == 3
    assert len(read_all(reader).records) == 3


def test_parquet_on_s3(store: tuple[Any, dict[str, Any]], tmp_path: Path) -> None:
    file_system, options = store
    pq.write_table(pa.table({"n": range(100)}), tmp_path / "x.parquet", row_group_size=10)
    file_system.put(str(tmp_path / "x.parquet"), "bucket/parquet/x.parquet")
    local = read_all(ParquetReader(str(tmp_path), blocksize=200))
    remote = read_all(ParquetReader("s3://bucket/parquet", blocksize=200, storage_options=options))
    assert remote.records == local.records
    assert remote.units == local.units


def test_what_is_missing_on_s3_is_named(store: tuple[Any, dict[str, Any]]) -> None:
    _, options = store
    for path in ("s3://bucket/nothing", "s3://bucket/nothing/x.jsonl", "s3://no-bucket/x.jsonl"):
        with pytest.raises(InputError, match=f"{path} does not exist"):
            list(JsonlReader(path, storage_options=options).list_units())
    with pytest.raises(InputError, match="no file matches this pattern"):
        list(JsonlReader("s3://bucket/nothing/*.jsonl", storage_options=options).list_units())


def test_an_object_that_changed_after_listing_is_refused(store: tuple[Any, dict[str, Any]]) -> None:
    file_system, options = store
    file_system.pipe("bucket/change/x.jsonl", b'{"a": 1}\n')
    reader = JsonlReader("s3://bucket/change/x.jsonl", storage_options=options)
    units = list(reader.list_units())
    file_system.pipe("bucket/change/x.jsonl", b'{"a": 2}\n')
    import fsspec

    fsspec.get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(InputError, match="changed after it was listed"):
        read_units(reader, iter(units))
