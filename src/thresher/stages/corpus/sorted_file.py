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
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import zstandard

from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.documents.blocks import decode_block, encode_block, with_settled_lines
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
Places = npt.NDArray[Any]
"""One place per document: numbers, or byte strings of a fixed length."""


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
        self._file = LocalFile(path)
        self._places_of = places_of
        self._type = place_type
        self._buffer_bytes, self._mark_bytes = sizes
        self._batches: list[DocumentBatch] = []
        self._held = 0
        self._places: list[Places] = []
        self._sizes: list[npt.NDArray[np.int64]] = []
        self._first_held = 0
        self._blocks: list[tuple[Any, ...]] = []
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)

    def write(self, batch: DocumentBatch) -> None:
        """Add documents."""
        self._places.append(self._places_of(batch))
        batch = with_settled_lines(batch)
        sizes = batch.record_sizes()
        self._sizes.append(np.full(len(batch), ROW_BYTES, dtype=np.int64) if sizes is None else sizes)
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
        batch, places = batch.pick(order), places[order]
        for start, end in cuts(sizes[order], BLOCK_BYTES):
            block = encode_block(batch.pick(np.arange(start, end)))
            packed = self._compressor.compress(places[start:end].tobytes() + block)
            size = places.itemsize * (end - start) + len(block)
            self._blocks.append((places[start], places[end - 1], self._file.nbytes, len(packed), size, end - start, 0))
            self._file.append(packed)

    def close(self) -> FileFacts:
        """Write the rest, the index and the marks."""
        self._write_run()
        layout = Layout.of(self._type)
        index = np.zeros(len(self._blocks), dtype=layout.blocks)
        for row, block in enumerate(self._blocks):
            index[row] = block
        marks = self._marks(layout)
        self._file.append(index.tobytes() + marks.tobytes())
        self._file.append(len(index).to_bytes(8, "little") + len(marks).to_bytes(8, "little") + _MAGIC)
        return self._file.close(sum(map(len, self._places)))

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
        self._file.abort()


def cuts(sizes: npt.NDArray[np.int64], nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents of about `nbytes`; a larger one is alone or with smaller ones before it."""
    numbers = (np.cumsum(sizes) - 1) // nbytes
    start = 0
    for end in (*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(sizes)):
        yield start, end
        start = end


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


class PlaceRange(NamedTuple):
    """Places from `start` to `end`, `end` excluded; `None`: there is no bound."""

    start: Any
    end: Any

    def contains(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return which places are in the range."""
        inside = np.ones(len(places), dtype=bool)
        if self.start is not None:
            inside &= np.asarray(places >= self.start)
        if self.end is not None:
            inside &= np.asarray(places < self.end)
        return inside

    def at_start(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return which places are the first place of the range."""
        return np.asarray(places == self.start)

    def after_start(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return which places are in the range and not its first place."""
        return self.contains(places) & ~self.at_start(places)

    def blocks(self, blocks: Any) -> Any:
        """Return the blocks that may hold documents of the range, in input order."""
        some = np.ones(len(blocks), dtype=bool) if self.start is None else blocks["last"] >= self.start
        if self.end is not None:
            some &= blocks["first"] < self.end
        found = blocks[some]
        return found[np.lexsort((found["offset"], found["file"]))]


def ranges_of(marks: Any, target_bytes: int) -> list[tuple[PlaceRange, int]]:
    """Return ranges of places with about `target_bytes` each, in order, and the bytes in them.

    Documents of the same place are never in two ranges, so a place with more bytes has a range of its own.
    """
    ordered = marks[np.argsort(marks["place"], kind="stable")]
    places, first = np.unique(ordered["place"], return_index=True)
    if not len(places):
        return []
    sizes = np.add.reduceat(ordered["nbytes"], first)
    starts, total = [0], 0
    for row, size in enumerate(sizes.tolist()):
        if total and total + size > target_bytes:
            starts.append(row)
            total = 0
        total += size
    edges = [None, *(places[row] for row in starts[1:]), None]
    totals = np.add.reduceat(sizes, starts).tolist()
    return [(PlaceRange(*pair), n) for pair, n in zip(itertools.pairwise(edges), totals, strict=True)]


def parts_of(wanted: PlaceRange, blocks: Any, target_bytes: int) -> list[PlaceRange]:
    """Return a range in parts that, if possible, have no more than about `target_bytes` each."""
    ordered = blocks[np.argsort(blocks["first"], kind="stable")]
    filled = np.cumsum(ordered["nbytes"]) // target_bytes
    edges = np.unique(ordered["first"][1:][np.diff(filled) > 0])
    inside = edges[wanted.contains(edges)]
    bounds = [wanted.start, *(edge for edge in inside if edge != wanted.start), wanted.end]
    return [PlaceRange(start, end) for start, end in itertools.pairwise(bounds)]


def read_range(
    wanted: PlaceRange, blocks: Any, open_file: Callable[[int], BinaryIO], place_type: str, most_bytes: int
) -> Iterator[DocumentBatch]:
    """Yield the documents of a range, in order of their places, and of the input for the same place.

    About `most_bytes` are held at a time, also where a single place has more.
    """
    own = wanted.blocks(blocks)
    for part in parts_of(wanted, own, most_bytes):
        some = part.blocks(own)
        wanted_here = part.contains
        if some["nbytes"].sum() > _CROWDED * most_bytes and part.start is not None:
            # One place has almost all of it. Its documents are in order as they come, and need not be held together.
            yield from (batch for batch, _ in _read(some, open_file, place_type, part.at_start))
            wanted_here = part.after_start
        found = list(_read(some, open_file, place_type, wanted_here))
        if found:
            batch = concat_batches([batch for batch, _ in found])
            yield batch.pick(np.argsort(np.concatenate([places for _, places in found]), kind="stable"))


def chunks_of(batch: DocumentBatch, chunk_bytes: int) -> Iterator[DocumentBatch]:
    """Yield a batch in parts of about `chunk_bytes`; one whose documents have no known sizes as it is."""
    sizes = batch.record_sizes()
    for start, end in [(0, len(batch))] if sizes is None else cuts(sizes, chunk_bytes):
        yield batch if end - start == len(batch) else batch.pick(range(start, end))


def kth_place(blocks: Any, k: int, places_of: Callable[[Any], Places]) -> tuple[Any, int] | None:
    """Return the place of the `k`-th document in order, and how many documents of that place are among the first `k`;
    `None` if there are not so many. `places_of` reads the places of a block, which few blocks need."""
    if k > int(blocks["records"].sum()):
        return None
    edges = np.unique(np.concatenate([blocks["first"], blocks["last"]]))
    by_first, by_last = np.argsort(blocks["first"], kind="stable"), np.argsort(blocks["last"], kind="stable")
    surely, maybe = (
        np.concatenate(([0], np.cumsum(blocks["records"][order])))[np.searchsorted(blocks[key][order], edges, "right")]
        for key, order in (("last", by_last), ("first", by_first))
    )
    high = edges[int(np.argmax(surely >= k))]
    certain = edges[maybe < k]
    doubtful = blocks[(blocks["first"] <= high) & (blocks["last"] > certain[-1] if len(certain) else True)]
    before = int(blocks["records"][blocks["last"] <= certain[-1]].sum()) if len(certain) else 0
    single = doubtful["first"] == doubtful["last"]
    read = [places_of(block) for block in doubtful[~single]]
    places = np.concatenate([doubtful["first"][single], *read])
    weights = np.concatenate([doubtful["records"][single], *(np.ones(len(one), dtype=np.int64) for one in read)])
    order = np.argsort(places, kind="stable")
    places, reached = places[order], before + np.cumsum(weights[order])
    place = places[int(np.argmax(reached >= k))]
    smaller = places < place
    return place, k - (int(reached[smaller][-1]) if smaller.any() else before)


def read_places(block: Any, file: BinaryIO, place_type: str) -> Places:
    """Return the places of the documents of a block."""
    return _unpacked(block, file, place_type)[0]


def _unpacked(block: Any, file: BinaryIO, place_type: str) -> tuple[Places, memoryview]:
    """Return the places of a block, and its documents as bytes."""
    file.seek(int(block["offset"]))
    content = memoryview(zstandard.ZstdDecompressor().decompress(file.read(int(block["length"]))))
    size = np.dtype(place_type).itemsize * int(block["records"])
    return np.frombuffer(content[:size], dtype=place_type), content[size:]


def _read(
    blocks: Any, open_file: Callable[[int], BinaryIO], place_type: str, are_wanted: Callable[[Places], Any]
) -> Iterator[tuple[DocumentBatch, Places]]:
    """Yield the wanted documents of blocks, with their places."""
    opened = -1
    with contextlib.ExitStack() as stack:
        for block in blocks:
            if opened != int(block["file"]):
                stack.close()
                opened = int(block["file"])
                file = stack.enter_context(contextlib.closing(open_file(opened)))
            places, content = _unpacked(block, file, place_type)
            inside = are_wanted(places)
            if inside.any():
                batch = decode_block(content)
                yield (batch, places) if inside.all() else (batch.pick(np.flatnonzero(inside)), places[inside])


def merge_indexes(found: Sequence[Index], place_type: str) -> Index:
    """Return the index of several files."""
    layout = Layout.of(place_type)
    blocks = np.concatenate([np.zeros(0, dtype=layout.blocks), *(one.blocks for one in found)])
    return Index(blocks, np.concatenate([np.zeros(0, dtype=layout.marks), *(one.marks for one in found)]))
