# SPDX-License-Identifier: Apache-2.0
"""The second phase of a deduplication: documents of all units that share a key are joined by edges.

Each unit of the phase is a range of hashes. Its keys come from the files of all units of documents.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.files.documents import UnitPlace, facts_of, keep_places, load_places
from thresher.stages.dedup.files.frames import FrameWriter, open_frames

if TYPE_CHECKING:
    from thresher.core.source import FileFacts, ReadContext
    from thresher.stages.dedup.files.frames import FrameReader
    from thresher.stages.dedup.files.keys import Edges
    from thresher.stages.dedup.keyed_stage import KeyedStage

_KEY_BYTES = 24
"""Bytes that a key takes in memory."""
_ALL_HASHES = 2**64
EDGES = "edges"
LATER, FIRST, SIMILARITY = "later", "first", "similarity"
"""Columns of a batch of edges; the last one where it is known."""
_EDGES_PER_FRAME = 4096


class KeyGroupReader(PhaseReader[DocumentBatch]):
    """Find the documents that share keys in a range of hashes."""

    intermediate = True

    def __init__(self, stage: KeyedStage) -> None:
        self.stage = stage

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return ranges of hashes with about `blocksize` of keys; they depend on the documents alone."""
        path, places = self.places(done)
        total = sum(place.keys for place in places) * _KEY_BYTES
        count = -(-total // self.stage.blocksize)
        bounds = [_ALL_HASHES * number // max(count, 1) for number in range(count + 1)]
        return [
            done.unit(number, [Piece(path, f"{bounds[number]}-{bounds[number + 1]}", 0)], total // count, "groups")
            for number in range(count)
        ]

    def places(self, done: PhaseFolder) -> tuple[str, list[UnitPlace]]:
        """Return a file with the places of all units, and the places."""
        return keep_places(done.files, done, self.stage.known_places(done.storage_options))

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the edges of a range, in parts that fit into memory."""
        (piece,) = unit.pieces
        start, end = map(int, piece.relative.split("-"))
        places = load_places(piece.path, self.storage_options)
        inside = unit.nbytes
        parts = max(1, -(-inside // max(self.buffer_bytes, 1)))
        for number in range(parts):
            low, high = (start + (end - start) * n // parts for n in (number, number + 1))
            edges = self._edges(places, low, high)
            if len(edges):
                yield SourceItem(unit, edge_batch(edges, unit), consumed=inside * (number + 1) // parts)

    def _edges(self, places: Any, start: int, end: int) -> Edges:
        from thresher.stages.dedup.files.keys import Keys, candidates, grouped
        from thresher.stages.dedup.files.unit_file import read_keys

        found: list[Keys] = []
        wide = False
        for place in places:
            if place.keys:
                with open_frames(place.path, place.nbytes, self.storage_options) as file:
                    wide = facts_of(file).wide
                    found += read_keys(file, start, end, place.first)
        keys = Keys.concat(found, wide)
        return grouped(keys)[1] if self.stage.verified is None else candidates(keys)


def edge_batch(edges: Edges, unit: Unit, similarity: Any = None) -> DocumentBatch:
    """Return edges as records; `similarity`: of each, where it is known."""
    from thresher.stages.dedup.files.arrow_columns import arrow_table

    known = {} if similarity is None else {SIMILARITY: similarity}
    batch = DocumentBatch(arrow_table({LATER: edges[:, 0], FIRST: edges[:, 1], **known}))
    batch.name_records((f"{unit.id}:r", ""))
    return batch


def edges_of(batch: DocumentBatch) -> tuple[Edges, Any]:
    """Return the edges that `edge_batch` made records of, and their similarities or `None`."""
    import numpy as np

    from thresher.stages.dedup.files.arrow_columns import numpy_column

    table = batch.to_pyarrow()
    known = numpy_column(table[SIMILARITY]) if SIMILARITY in table.column_names else None
    return np.stack([numpy_column(table[name]) for name in (LATER, FIRST)], axis=1), known


def read_edge_file(file: FrameReader, span: tuple[int, int] | None = None) -> Iterator[tuple[Edges, Any]]:
    """Yield edges and their similarities or `None`; only those whose later document is in a span of numbers."""
    import numpy as np

    for frame in file.frames(EDGES):
        count, low, high, is_known = frame.note
        if span is not None and (high < span[0] or low >= span[1]):
            continue
        content = file.read(frame)
        edges = np.frombuffer(content, dtype=np.uint64, count=2 * count).reshape(-1, 2)
        similarity = np.frombuffer(content, dtype=np.float32, offset=16 * count) if is_known else None
        if span is not None and (low < span[0] or high >= span[1]):
            start, end = np.searchsorted(edges[:, 0], np.array(span, dtype=np.uint64))
            edges, similarity = edges[start:end], None if similarity is None else similarity[start:end]
        yield edges, similarity


class EdgeWriter(PhaseWriter[DocumentBatch]):
    """Write edges."""

    intermediate = True

    def prepare(self, batch: DocumentBatch) -> tuple[Edges, Any]:
        """Return the edges of a batch."""
        return edges_of(batch)

    def open_writer(self, local_path: str) -> EdgeFile:
        """Return the writer for one unit."""
        return EdgeFile(self, local_path)


class EdgeFile:
    """Writes the edges of one unit; a `RecordWriter`."""

    def __init__(self, sink: EdgeWriter, path: str) -> None:
        self._sink = sink
        self._file = FrameWriter(path)
        self._edges = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add edges."""
        edges, similarity = self._sink.take_prepared(batch)
        for start in range(0, len(edges), _EDGES_PER_FRAME):
            some = edges[start : start + _EDGES_PER_FRAME]
            known = b"" if similarity is None else similarity[start : start + _EDGES_PER_FRAME].tobytes()
            note = [len(some), int(some[0, 0]), int(some[-1, 0]), similarity is not None]
            self._file.add(EDGES, some.tobytes() + known, note)
        self._edges += len(edges)

    def close(self) -> FileFacts:
        """Finish the file."""
        return self._file.close(self._edges)

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()
