# SPDX-License-Identifier: Apache-2.0
"""Files of documents in the order of a value that each document has, its place.

A file holds one or more sorted runs, each cut into compressed blocks. The index at its end says which places a block
holds, so that a reader takes a range of places out of many files without reading the rest. Beside the index are marks:
places at equal distances in bytes. They depend on the documents alone, not on runs and blocks, and so do the ranges
that are made of them.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.documents.blocks import decode_block, encode_block, with_settled_lines
from thresher.stages.corpus.place_ranges import PlaceRange, Places, cuts, parts_of
from thresher.stages.io.file_writer import LocalFile

if TYPE_CHECKING:
    from thresher.core.source import FileFacts

BLOCK_BYTES = 64 * 1024
"""Approximate size of a block before compression."""
ROW_BYTES = 1024
"""Size that a document without a line counts for in marks."""
_CROWDED = 4
"""A part with so many times the bytes that it should have is read in a stream."""
_LEVEL = 1
_MAGIC = b"thrsort1"
_TAIL_BYTES = 24


class Layout(NamedTuple):
    """The types of the arrays at the end of a file."""

    blocks: np.dtype[Any]
    """One entry per block."""
    marks: np.dtype[Any]
    """One entry per mark."""

    @staticmethod
    def of(place_type: str) -> Layout:
        """Return the layout for places of a type."""
        blocks = np.dtype(
            [
                ("first", place_type),  # place of the first document
                ("last", place_type),  # place of the last document
                ("offset", "<i8"),  # where the block begins in the file
                ("length", "<i8"),  # its compressed size
                ("nbytes", "<i8"),  # its size before compression
                ("records", "<i8"),  # number of documents
                ("file", "<i8"),  # number of the file in a merged index
            ]
        )
        return Layout(blocks, np.dtype([("place", place_type), ("nbytes", "<i8")]))


# -- writing -----------------------------------------------------------------------------------------------------------


class SortedFileWriter:
    """Writes the documents of one unit; a `RecordWriter`."""

    def __init__(
        self, path: str, places_of: Callable[[DocumentBatch], Places], place_type: str, sizes: tuple[int, int]
    ) -> None:
        """`places_of` returns the place of each document. `sizes`: the bytes of documents that are held at most, and
        the distance in bytes between two marks."""
        self._blocks = _BlockWriter(path, place_type)
        self._places_of = places_of
        self._type = place_type
        self._buffer_bytes, self._mark_bytes = sizes
        self._batches: list[DocumentBatch] = []
        self._held = 0
        self._places: list[Places] = []
        self._sizes: list[npt.NDArray[np.int64]] = []
        self._first_held = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add documents."""
        self._places.append(self._places_of(batch))
        batch = with_settled_lines(batch)
        self._sizes.append(_sizes_of(batch))
        self._batches.append(batch)
        self._held += batch.nbytes
        if self._held >= self._buffer_bytes:
            self._write_run()

    def _write_run(self) -> None:
        """Write everything that is held, sorted; documents of the same place stay in input order."""
        if not self._batches:
            return
        batch = concat_batches(self._batches)
        places, sizes = (
            np.concatenate(self._places[self._first_held :]),
            np.concatenate(self._sizes[self._first_held :]),
        )
        self._batches, self._held, self._first_held = [], 0, len(self._places)
        order = np.argsort(places, kind="stable")
        self._blocks.write(batch.pick(order), places[order], sizes[order])

    def close(self) -> FileFacts:
        """Write the rest, the index and the marks."""
        self._write_run()
        return self._blocks.close(self._marks(Layout.of(self._type)))

    def _marks(self, layout: Layout) -> Any:
        places, sizes = np.concatenate(self._places), np.concatenate(self._sizes)
        order = np.argsort(places, kind="stable")
        places, sizes = places[order], sizes[order]
        ranges = list(cuts(sizes, self._mark_bytes))
        marks = np.zeros(len(ranges), dtype=layout.marks)
        marks["place"] = places[[start for start, _ in ranges]]
        marks["nbytes"] = np.add.reduceat(sizes, [start for start, _ in ranges])
        return marks

    def abort(self) -> None:
        """Remove the file."""
        self._blocks.abort()


def _sizes_of(batch: DocumentBatch) -> npt.NDArray[np.int64]:
    sizes = batch.record_sizes()
    return np.full(len(batch), ROW_BYTES, dtype=np.int64) if sizes is None else sizes


class _BlockWriter:
    """Writes sorted documents in blocks, and the index of them."""

    def __init__(self, path: str, place_type: str) -> None:
        self._file = LocalFile(path)
        self._type = place_type
        self._blocks: list[tuple[Any, ...]] = []
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def write(self, batch: DocumentBatch, places: Places, sizes: npt.NDArray[np.int64]) -> None:
        """Add documents that are in order; those of another call may have any places."""
        for start, end in cuts(sizes, BLOCK_BYTES):
            block = encode_block(batch.pick(np.arange(start, end)))
            packed = self._compressor.compress(places[start:end].tobytes() + block)
            size = places.itemsize * (end - start) + len(block)
            self._blocks.append((places[start], places[end - 1], self._file.nbytes, len(packed), size, end - start, 0))
            self._file.append(packed)

    def close(self, marks: Any) -> FileFacts:
        """Write the index and the marks."""
        index = np.zeros(len(self._blocks), dtype=Layout.of(self._type).blocks)
        for row, block in enumerate(self._blocks):
            index[row] = block
        self._file.append(index.tobytes() + marks.tobytes())
        self._file.append(len(index).to_bytes(8, "little") + len(marks).to_bytes(8, "little") + _MAGIC)
        return self._file.close(int(index["records"].sum()))

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


def join_files(paths: Sequence[str], path: str, place_type: str, most_bytes: int) -> FileFacts:
    """Make one sorted file of several, with their marks; about `most_bytes` are held at a time."""
    found = []
    for number, part in enumerate(paths):
        with open(part, "rb") as opened:
            found.append(read_index(opened, os.path.getsize(part), number, place_type))
    index = merge_indexes(found, place_type)
    writer = _BlockWriter(path, place_type)

    def open_file(number: int) -> BinaryIO:
        return open(paths[number], "rb", buffering=0)

    reader = BlockReader(open_file, place_type)
    try:
        for batch, places in _sorted_parts(PlaceRange(None, None), index.blocks, reader, most_bytes):
            writer.write(batch, places, _sizes_of(batch))
        return writer.close(index.marks)
    except BaseException:
        writer.abort()
        raise


# -- reading -----------------------------------------------------------------------------------------------------------


class Index(NamedTuple):
    """The blocks and marks of a file, or of several."""

    blocks: Any
    """Array of blocks."""
    marks: Any
    """Array of marks."""


def read_index(file: BinaryIO, size: int, number: int, place_type: str) -> Index:
    """Return the index of a file of `size` bytes, as the `number`-th file of a merged index."""
    layout = Layout.of(place_type)
    file.seek(size - _TAIL_BYTES)
    tail = file.read(_TAIL_BYTES)
    blocks, marks = (int.from_bytes(tail[at : at + 8], "little") for at in (0, 8))
    if tail[16:] != _MAGIC:
        raise OSError(f"{getattr(file, 'name', 'a file of a phase')} is damaged: it does not end as it should")
    lengths = blocks * layout.blocks.itemsize, marks * layout.marks.itemsize
    file.seek(size - _TAIL_BYTES - sum(lengths))
    found = np.frombuffer(file.read(lengths[0]), dtype=layout.blocks).copy()
    found["file"] = number
    return Index(found, np.frombuffer(file.read(lengths[1]), dtype=layout.marks))


def read_range(wanted: PlaceRange, blocks: Any, reader: BlockReader, most_bytes: int) -> Iterator[DocumentBatch]:
    """Yield the documents of a range, in order of their places, and of the input for the same place.

    About `most_bytes` are held at a time, also where a single place has more, and the blocks of all files in which one
    part of the range ends and the next one begins. No block is read twice for that, nor for the next range if the
    same `reader` reads it.
    """
    yield from (batch for batch, _ in _sorted_parts(wanted, blocks, reader, most_bytes))


def _sorted_parts(
    wanted: PlaceRange, blocks: Any, reader: BlockReader, most_bytes: int
) -> Iterator[tuple[DocumentBatch, Places]]:
    """Yield what `read_range` does, with the places."""
    own = wanted.blocks(blocks)
    for part in parts_of(wanted, own, most_bytes):
        some = part.blocks(own)
        wanted_here = part.contains
        if some["nbytes"].sum() > _CROWDED * most_bytes and part.start is not None:
            # One place has almost all of it. Its documents are in order as they come, and need not be held together.
            yield from reader.read(some, part.at_start)
            wanted_here = part.after_start
        found = list(reader.read(some, wanted_here, part.end))
        if found:
            batch, places = concat_batches([batch for batch, _ in found]), np.concatenate([one for _, one in found])
            order = np.argsort(places, kind="stable")
            yield batch.pick(order), places[order]


class BlockReader:
    """Reads blocks of several files; keeps those that the next part of a range, or the next range, needs too."""

    def __init__(self, open_file: Callable[[int], BinaryIO], place_type: str) -> None:
        self._open_file = open_file
        self._type = place_type
        self._decompressor = zstandard.ZstdDecompressor()
        self._kept: dict[tuple[int, int], tuple[Places, memoryview]] = {}

    @property
    def kept_bytes(self) -> int:
        """Return the size of the blocks that are kept."""
        return sum(places.nbytes + content.nbytes for places, content in self._kept.values())

    def read(
        self, blocks: Any, are_wanted: Callable[[Places], Any], keep_from: Any = None
    ) -> Iterator[tuple[DocumentBatch, Places]]:
        """Yield the wanted documents of blocks, with their places.

        Blocks that reach to the place `keep_from` are kept until they are read once more with a later one.
        """
        before, self._kept = self._kept, {} if keep_from is not None else self._kept
        last_places = blocks["last"].tolist() if keep_from is not None else ()
        for number, (key, places, content) in enumerate(self._contents(blocks, before)):
            if keep_from is not None and last_places[number] >= keep_from:
                self._kept[key] = places, content
            inside = are_wanted(places)
            if inside.all():
                yield decode_block(content), places
            elif inside.any():
                yield decode_block(content).pick(np.flatnonzero(inside)), places[inside]

    def _contents(
        self, blocks: Any, before: dict[tuple[int, int], tuple[Places, memoryview]]
    ) -> Iterator[tuple[tuple[int, int], Places, memoryview]]:
        """Yield file and offset, places, and documents of blocks that are in the order of files and offsets."""
        keys = zip(blocks["file"].tolist(), blocks["offset"].tolist(), strict=True)
        facts = zip(keys, blocks["length"].tolist(), blocks["records"].tolist(), strict=True)
        for number, in_file in itertools.groupby(facts, key=lambda fact: fact[0][0]):
            with contextlib.ExitStack() as stack:
                file = None
                for key, length, records in in_file:
                    known = before.get(key)
                    if known is None:
                        file = file or stack.enter_context(contextlib.closing(self._open_file(number)))
                        file.seek(key[1])
                        content = memoryview(self._decompressor.decompress(file.read(length)))
                        known = _apart(content, records, self._type)
                    yield (key, *known)


def chunks_of(batch: DocumentBatch, chunk_bytes: int) -> Iterator[DocumentBatch]:
    """Yield a batch in parts of about `chunk_bytes`; one whose documents have no known sizes as it is."""
    sizes = batch.record_sizes()
    for start, end in [(0, len(batch))] if sizes is None else cuts(sizes, chunk_bytes):
        yield batch if end - start == len(batch) else batch.pick(range(start, end))


def read_places(block: Any, file: BinaryIO, place_type: str) -> Places:
    """Return the places of the documents of a block."""
    file.seek(int(block["offset"]))
    content = memoryview(zstandard.ZstdDecompressor().decompress(file.read(int(block["length"]))))
    return _apart(content, int(block["records"]), place_type)[0]


def _apart(content: memoryview, records: int, place_type: str) -> tuple[Places, memoryview]:
    """Return the places and the documents in a block that is decompressed."""
    size = np.dtype(place_type).itemsize * records
    return np.frombuffer(content[:size], dtype=place_type), content[size:]


def merge_indexes(found: Sequence[Index], place_type: str) -> Index:
    """Return the index of several files."""
    layout = Layout.of(place_type)
    blocks = np.concatenate([np.zeros(0, dtype=layout.blocks), *(one.blocks for one in found)])
    return Index(blocks, np.concatenate([np.zeros(0, dtype=layout.marks), *(one.marks for one in found)]))
