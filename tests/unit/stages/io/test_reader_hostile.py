# SPDX-License-Identifier: Apache-2.0
"""The collection of hostile files: nothing stops the reader, nothing is lost in silence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stages.io.reading import read_all
from thresher.core.source import ReadContext
from thresher.stages.io.jsonl.reader import JsonlReader
from thresher.stages.io.parquet.reader import ParquetReader

FOLDER = Path(__file__).parents[5] / "shared" / "data" / "hostile"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the collection of hostile files is not here")

# Valid JSON objects among what the collection calls bad: an integer and a float beyond 64 bits, a key that comes twice
# (the last counts), an object without fields.
ODD_BUT_VALID = {"broken_lines.jsonl": 4}
FAILURES = {
    "broken_lines.jsonl": {"not-json", "not-an-object"},
    "invalid_utf8.jsonl": {"invalid-utf8"},
    "utf16.jsonl": {"utf-16"},
    "nul_bytes.jsonl": {"nul-byte"},
    "deep_nesting.jsonl.gz": {"too-deep"},
    "truncated.jsonl.gz": {"truncated"},
    "truncated.jsonl.zst": {"truncated"},
    "bad_crc.jsonl.gz": {"corrupt-input"},
    "trailing_garbage.jsonl.gz": {"trailing-garbage"},
    "gzip_named.jsonl.zst": {"not-json"},  # its last line is cut
    "truncated.parquet": {"unreadable-parquet"},
    "bad_footer.parquet": {"unreadable-parquet"},
    "zero_bytes.parquet": {"unreadable-parquet"},
    "magic_only.parquet": {"unreadable-parquet"},
    "bad_page.parquet": {"corrupt-page"},
    "invalid_utf8.parquet": {"invalid-utf8"},
}
RECORDS_BEFORE_DAMAGE = {"truncated.jsonl.gz": 748, "bad_crc.jsonl.gz": 1500, "bad_page.parquet": 90}
LARGE = "bomb"


def samples() -> list[Any]:
    if not FOLDER.is_dir():
        return []
    expected = [json.loads(line) for line in (FOLDER / "expect.jsonl").read_text().splitlines()]
    mine = [sample for sample in expected if ".jsonl" in sample["file"] or sample["file"].endswith(".parquet")]
    return [pytest.param(sample, id=sample["file"]) for sample in mine if not sample["file"].startswith(LARGE)]


@pytest.mark.parametrize("blocksize", [1000, 64_000_000])
@pytest.mark.parametrize("sample", samples())
def test_a_hostile_file(sample: dict[str, Any], blocksize: int) -> None:
    name = sample["file"]
    path = str(FOLDER / name)
    reader = (
        ParquetReader(path, blocksize=blocksize)
        if name.endswith(".parquet")
        else JsonlReader(path, blocksize=blocksize)
    )
    found = read_all(reader)
    if sample["valid_records"] is not None:
        assert len(found.records) == sample["valid_records"] + ODD_BUT_VALID.get(name, 0)
    if name in RECORDS_BEFORE_DAMAGE:
        assert len(found.records) == RECORDS_BEFORE_DAMAGE[name]
    assert set(found.errors) == FAILURES.get(name, set())
    assert all(message.startswith(path) for _, _, _, message in found.failed)


def test_a_bomb_of_one_line_is_one_record_or_one_failure() -> None:
    reader = JsonlReader(str(FOLDER / "bomb_one_line.jsonl.gz"))
    found = read_all(reader, ReadContext(max_record_bytes=2**20))
    ((error, _, line, message),) = found.failed
    assert error == "record-too-large"
    assert len(line) == 1000
    assert "the line has 209715226 bytes" in message


def test_a_bomb_of_many_lines_is_read_in_small_chunks() -> None:
    reader = JsonlReader(str(FOLDER / "bomb_many_lines.jsonl.zst"), blocksize="1MB")
    (unit,) = reader.list_units()
    assert unit.stream
    units: dict[str, int] = {}
    for item in reader.read(unit, ReadContext(chunk_bytes=2**20)):
        if item.task is not None:
            assert item.task.nbytes <= 2**20
            units[item.unit.id] = units.get(item.unit.id, 0) + bytes(item.task.data).count(b"\n")
    assert sum(units.values()) == 2_648_000
    assert len(units) == 210
