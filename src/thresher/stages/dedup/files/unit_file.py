# SPDX-License-Identifier: Apache-2.0
"""The file of one unit of documents: the documents in input order, their ids and ranks, and their keys, sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.blocks import decode_block, encode_block, with_settled_lines
from thresher.core.records.record_ids import RecordIds
from thresher.stages.corpus.place_ranges import cuts
from thresher.stages.corpus.sorted_file import ROW_BYTES
from thresher.stages.dedup.files.documents import facts_of
from thresher.stages.dedup.files.frames import FrameReader, FrameWriter
from thresher.stages.dedup.files.keys import Edges, Keys, Numbers, grouped

if TYPE_CHECKING:
    from thresher.core.source import FileFacts

DOCUMENTS, IDS, RANKS, KEYS, EDGES = "documents", "ids", "ranks", "keys", "edges"
_BLOCK_BYTES, _SMALL_BLOCK_BYTES = 1024 * 1024, 256 * 1024
"""Size of blocks of documents that are read in order; and of those that single documents are read from."""
_KEYS_PER_FRAME = 4096
_NO_EDGES = np.zeros((0, 2), dtype=np.uint64)


class Keyed(NamedTuple):
    """Facts about the documents of a batch."""

    hashes: npt.NDArray[np.uint64]
    """Keys of each document, one row per document. A key that is 0 is none."""
    lows: npt.NDArray[np.uint64] | None
    """64 further bits of each key."""
    ranks: npt.NDArray[np.float64] | None
    """Of duplicates the one with the largest is kept; `None`: the first."""


class UnitWriter:
    """Writes the documents of one unit; a `RecordWriter`."""

    def __init__(
        self,
        path: str,
        keyed: Callable[[DocumentBatch], Keyed],
        buffer_bytes: int,
        *,
        with_documents: bool,
        joins: bool = True,
        scheme: dict[str, Any] | None = None,
    ) -> None:
        """`keyed` returns what is known of a batch. `buffer_bytes`: the bytes of keys that are held at most.
        `joins`: documents of the unit that share a key are joined by edges here, and the key is written once.
        `scheme`: how keys are made, which is noted in the file.
        """
        self._file = FrameWriter(path)
        self._keyed = keyed
        self._buffer_bytes = buffer_bytes
        self._with_documents = with_documents
        self._joins = joins
        self._block_bytes = _BLOCK_BYTES if joins else _SMALL_BLOCK_BYTES
        self._scheme = scheme
        self._documents = 0
        self._keys: list[Keys] = []
        self._held = 0
        self._ids: list[RecordIds] = []
        self._ranks: list[npt.NDArray[np.float64]] = []
        self._total_keys = 0
        self._wide = False

    def write(self, batch: DocumentBatch) -> None:
        """Add documents."""
        keyed = self._keyed(batch)
        assert batch.ids is not None, "documents of a run have ids"
        numbers = np.repeat(
            np.arange(self._documents, self._documents + len(batch), dtype=np.uint64), keyed.hashes.shape[1]
        )
        lows = None if keyed.lows is None else keyed.lows.reshape(-1)
        keys = Keys(keyed.hashes.reshape(-1), lows, numbers)
        self._wide = lows is not None
        has_key = keys.hashes != 0
        self._keys.append(keys if has_key.all() else keys.take(np.flatnonzero(has_key)))
        self._ids.append(batch.ids)
        if keyed.ranks is not None:
            self._ranks.append(keyed.ranks)
        self._documents += len(batch)
        self._held += 3 * numbers.nbytes + 24 * len(batch)
        if self._with_documents:
            self._write_documents(batch)
        if self._held >= self._buffer_bytes:
            self._flush()

    def _write_documents(self, batch: DocumentBatch) -> None:
        batch = with_settled_lines(batch)
        sizes = batch.record_sizes()
        for start, end in cuts(np.full(len(batch), ROW_BYTES) if sizes is None else sizes, self._block_bytes):
            some = batch if end - start == len(batch) else batch.pick(np.arange(start, end))
            self._file.add_quickly(DOCUMENTS, encode_block(some), end - start)

    def _flush(self) -> None:
        """Write the keys that are held, sorted, and the ids and ranks."""
        held = Keys.concat(self._keys, self._wide)
        keys, edges = grouped(held) if self._joins else (held.sorted(), _NO_EDGES)
        add_keys(self._file, keys)
        if len(edges):
            self._file.add(EDGES, edges.astype(np.uint32).tobytes())
        if self._ids:
            self._file.add(IDS, _encoded_ids(RecordIds.concat(self._ids)), sum(map(len, self._ids)))
        if self._ranks:
            self._file.add(RANKS, np.concatenate(self._ranks).tobytes())
        self._total_keys += len(keys.hashes)
        self._keys, self._ids, self._ranks, self._held = [], [], [], 0

    def close(self) -> FileFacts:
        """Write the rest and the table of contents."""
        self._flush()
        return self._file.close(self._documents, [self._documents, self._total_keys, self._wide, self._scheme])

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


def add_keys(file: FrameWriter, keys: Keys) -> None:
    """Write sorted keys."""
    for start in range(0, len(keys.hashes), _KEYS_PER_FRAME):
        part = slice(start, start + _KEYS_PER_FRAME)
        hashes, lows, documents = keys.hashes[part], keys.lows, keys.documents[part].astype(np.uint32)
        content = [hashes.tobytes(), *([] if lows is None else [lows[part].tobytes()]), documents.tobytes()]
        file.add(KEYS, b"".join(content), [int(hashes[0]), int(hashes[-1]), len(hashes)])


def read_keys(file: FrameReader, start: int, end: int, first_document: int) -> Iterator[Keys]:
    """Yield the keys whose hashes are from `start` to `end` - 1; `first_document`: number of the unit's first one."""
    wide = facts_of(file).wide
    for frame in file.frames(KEYS):
        first, last, count = frame.note
        if last < start or first >= end:
            continue
        content = file.read(frame)
        hashes = np.frombuffer(content, dtype=np.uint64, count=count)
        lows = np.frombuffer(content, dtype=np.uint64, count=count, offset=8 * count) if wide else None
        documents = np.frombuffer(content, dtype=np.uint32, offset=(16 if wide else 8) * count)
        keys = Keys(hashes, lows, documents + np.uint64(first_document))
        if first < start or last >= end:
            inside = (hashes >= np.uint64(start)) & (hashes <= np.uint64(end - 1))
            keys = keys.take(np.flatnonzero(inside))
        yield keys


def read_edges(file: FrameReader, first_document: int) -> Iterator[Edges]:
    """Yield the edges between documents of the unit."""
    for frame in file.frames(EDGES):
        edges = np.frombuffer(file.read(frame), dtype=np.uint32).reshape(-1, 2)
        yield edges + np.uint64(first_document)


def read_documents(file: FrameReader) -> Iterator[DocumentBatch]:
    """Yield the documents in input order."""
    for frame in file.frames(DOCUMENTS):
        yield decode_block(memoryview(file.read(frame)))


def read_ids(file: FrameReader, rows: Numbers, paths: dict[str, str]) -> list[str]:
    """Return the ids of some documents of the unit, given by their sorted numbers in it.

    The path of each file is added to `paths`, by its name in ids.
    """
    found: list[str] = []
    first = 0
    for frame in file.frames(IDS):
        low, high = np.searchsorted(rows, (first, first + frame.note))
        if high > low:
            ids = _decoded_ids(file.read(frame))
            paths.update((prefix.partition(":")[0], path) for prefix, path in ids.sources)
            found += ids.take((rows[low:high] - np.uint64(first)).astype(np.int64)).strings()
        first += frame.note
    return found


def read_ranks(file: FrameReader, rows: Numbers) -> npt.NDArray[np.float64] | None:
    """Return the ranks of some documents of the unit; `None` if they have none."""
    frames = file.frames(RANKS)
    if not frames:
        return None
    ranks = np.concatenate([np.frombuffer(file.read(frame), dtype=np.float64) for frame in frames])
    return np.asarray(ranks[rows.astype(np.int64)])


def _encoded_ids(ids: RecordIds) -> bytes:
    which = ids.which.tobytes() if len(ids.sources) > 1 else b""
    steps = np.diff(ids.positions, prepend=np.int64(0))
    return msgspec.msgpack.encode([ids.sources, steps.tobytes(), which, ids.suffixes])


def _decoded_ids(content: bytes) -> RecordIds:
    sources, steps, which, suffixes = msgspec.msgpack.decode(content)
    positions = np.cumsum(np.frombuffer(steps, dtype=np.int64))
    pairs = tuple((prefix, path) for prefix, path in sources)
    found: Any = np.frombuffer(which, dtype=np.int64) if which else None
    return RecordIds(pairs, positions, found, None if suffixes is None else tuple(suffixes))
