# SPDX-License-Identifier: Apache-2.0
"""Sorted files: any range of places gives its documents in order, whatever runs and blocks the files consist of."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher import DocumentBatch
from thresher.core.documents.records import RawLines, RecordIds
from thresher.stages.corpus import place_ranges
from thresher.stages.corpus import sorted_file as sf

PLACE = "<i8"


def batch_of(places: list[int], first: int = 0) -> DocumentBatch:
    lines = [
        json.dumps({"place": place, "n": first + n, "text": "x" * (n % 50)}).encode() for n, place in enumerate(places)
    ]
    ids = RecordIds((("file:", "path"),), np.arange(first, first + len(lines), dtype=np.int64))
    return DocumentBatch.from_lines(RawLines.join(lines), ids)


def written(path: Path, batches: list[list[int]], buffer_bytes: int = 2**20, mark_bytes: int = 300) -> sf.Index:
    """Write a file of several batches; return its index."""
    writer = sf.SortedFileWriter(
        str(path), lambda b: np.array(b.values("place"), dtype=PLACE), PLACE, (buffer_bytes, mark_bytes)
    )
    first = 0
    for places in batches:
        writer.write(batch_of(places, first))
        first += len(places)
    facts = writer.close()
    assert facts.records == first
    with path.open("rb") as file:
        return sf.read_index(file, facts.nbytes, 0, PLACE)


def read(
    wanted: place_ranges.PlaceRange, index: sf.Index, path: Path, most_bytes: int = 2**20
) -> list[tuple[int, int]]:
    def open_file(_: int) -> BinaryIO:
        return io.BytesIO(path.read_bytes())

    found = list(sf.read_range(wanted, index.blocks, sf.BlockReader(open_file, PLACE), most_bytes))
    return [(d["place"], d["n"]) for batch in found for d in map(json.loads, map(bytes, batch.json_lines()))]


def in_order(batches: list[list[int]]) -> list[tuple[int, int]]:
    flat = [place for places in batches for place in places]
    return sorted((place, n) for n, place in enumerate(flat))


PLACES = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=60), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(PLACES, st.sampled_from([1, 500, 2**20]), st.sampled_from([1, 400, 2**20]), st.sampled_from([100, 2_000]))
def test_the_ranges_of_a_file_give_every_document_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], buffer: int, held: int, target: int
) -> None:
    path = tmp_path_factory.mktemp("sorted") / "file"
    index = written(path, batches, buffer)
    ranges = place_ranges.ranges_of(index.marks, target)
    found = [one for wanted, _ in ranges for one in read(wanted, index, path, held)]
    assert found == in_order(batches)
    assert sum(nbytes for _, nbytes in ranges) == sum(index.marks["nbytes"])


@settings(deadline=None, max_examples=20)
@given(PLACES, st.sampled_from([500, 3_000]))
def test_ranges_do_not_depend_on_how_much_a_writer_holds(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], target: int
) -> None:
    folder = tmp_path_factory.mktemp("sorted")
    ranges = [place_ranges.ranges_of(written(folder / str(n), batches, n).marks, target) for n in (1, 700, 2**20)]
    assert ranges[0] == ranges[1] == ranges[2]


def test_ranges_do_not_depend_on_whether_a_change_is_in_the_line_already(tmp_path: Path) -> None:
    changed = batch_of(list(range(200))).replace("added", ["y" * (n % 40) for n in range(200)])
    in_lines = DocumentBatch.from_lines(RawLines.join(changed.json_lines()), changed.ids)  # type: ignore[arg-type]  # it has ids
    marks = []
    for number, batch in enumerate((changed, in_lines)):
        path = tmp_path / str(number)
        writer = sf.SortedFileWriter(str(path), lambda b: np.array(b.values("place"), dtype=PLACE), PLACE, (2**20, 300))
        writer.write(batch)
        with path.open("rb") as file:
            marks.append(sf.read_index(file, writer.close().nbytes, 0, PLACE).marks.tolist())
    assert marks[0] == marks[1]


def test_a_place_with_too_many_documents_is_read_in_a_stream_and_stays_in_input_order(tmp_path: Path) -> None:
    batches = [[5] * 4000, [1, 5, 9] * 100]
    index = written(tmp_path / "file", batches, buffer_bytes=50_000)
    ranges = place_ranges.ranges_of(index.marks, 20_000)
    crowded = [wanted for wanted, nbytes in ranges if nbytes > 100_000]
    assert len(crowded) == 1

    def open_file(_: int) -> BinaryIO:
        return (tmp_path / "file").open("rb")

    sizes = [len(batch) for batch in sf.read_range(crowded[0], index.blocks, sf.BlockReader(open_file, PLACE), 20_000)]
    assert max(sizes) < 3000, "not held together"
    assert [one for wanted, _ in ranges for one in read(wanted, index, tmp_path / "file", 20_000)] == in_order(batches)


@settings(deadline=None, max_examples=60)
@given(PLACES, st.integers(1, 200), st.sampled_from([1, 800, 2**20]))
def test_the_place_of_the_kth_document_is_found_in_a_few_blocks(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], k: int, buffer: int
) -> None:
    path = tmp_path_factory.mktemp("sorted") / "file"
    index = written(path, batches, buffer)
    flat = sorted(place for places in batches for place in places)

    def places_of(block: Any) -> Any:
        with path.open("rb") as file:
            return sf.read_places(block, file, PLACE)

    found = place_ranges.kth_place(index.blocks, k, places_of)
    if k > len(flat):
        assert found is None
    else:
        assert found == (flat[k - 1], k - sum(place < flat[k - 1] for place in flat))


def test_small_ranges_in_a_row_read_each_block_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    index = written(path, [list(range(8000))], mark_bytes=100)
    ranges = [wanted for wanted, _ in place_ranges.ranges_of(index.marks, 2_000)]
    assert len(ranges) > 20 * len(index.blocks) > 20
    opened: list[int] = []

    def open_file(number: int) -> BinaryIO:
        opened.append(number)
        return path.open("rb")

    reader = sf.BlockReader(open_file, PLACE)
    found = [batch for wanted in ranges for batch in sf.read_range(wanted, index.blocks, reader, 2**20)]
    assert [place for batch in found for place in batch.values("place")] == list(range(8000))
    assert len(opened) == len(index.blocks)


def test_ranges_out_of_order_are_read_right_by_one_reader(tmp_path: Path) -> None:
    index = written(tmp_path / "file", [[n % 700 for n in range(3000)]], mark_bytes=100)
    ranges = [wanted for wanted, _ in place_ranges.ranges_of(index.marks, 5_000)]
    reader = sf.BlockReader(lambda _: (tmp_path / "file").open("rb"), PLACE)
    for wanted in (*ranges[::3], *ranges[::-1], ranges[0], ranges[0]):
        batches = sf.read_range(wanted, index.blocks, reader, 2**20)
        found = [place for batch in batches for place in batch.values("place")]
        assert found == sorted(n % 700 for n in range(3000) if wanted.contains(np.array([n % 700]))[0])


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "file", [[1, 2, 3]])
    content = (tmp_path / "file").read_bytes()[:-3]
    with pytest.raises(OSError, match="damaged"):
        sf.read_index(io.BytesIO(content), len(content), 0, PLACE)


def test_a_damaged_block_is_noticed(tmp_path: Path) -> None:
    index = written(tmp_path / "file", [[1, 2, 3] * 50])
    content = bytearray((tmp_path / "file").read_bytes())
    content[int(index.blocks["length"][0]) // 2] ^= 0xFF
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(Exception, match=r"(?i)zstd|checksum|decompress"):
        read(place_ranges.PlaceRange(None, None), index, tmp_path / "file")


def test_no_marks_are_no_ranges() -> None:
    assert place_ranges.ranges_of(sf.merge_indexes([], PLACE).marks, 100) == []


@pytest.mark.parametrize("rows", [[{"a": 1, "b": "x"}, {"a": None, "b": "y"}], [{"a": b"\x00\xff"}]])
def test_tables_keep_their_types(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    from thresher.core.documents.blocks import decode_block, encode_block

    batch = DocumentBatch(rows)
    batch.name_records(("f:", "p"))
    again = decode_block(memoryview(encode_block(batch)))
    assert again.to_pyarrow() == batch.to_pyarrow()
    assert again.ids is not None
    assert again.ids.strings() == ["f:0", "f:1"][: len(rows)]


def test_changed_documents_keep_their_changes_and_the_rest_of_their_lines() -> None:
    from thresher.core.documents.blocks import decode_block, encode_block

    batch = batch_of([3, 1, 2]).replace("place", [30, 10, 20])
    again = decode_block(memoryview(encode_block(batch)))
    assert [bytes(line) for line in again.json_lines()] == [bytes(line) for line in batch.json_lines()]
