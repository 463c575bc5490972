# SPDX-License-Identifier: Apache-2.0
"""The fourth phase of a semantic deduplication: the documents of a cluster of k-means that are kept, and the others.

Vectors are on disk; memory holds a few blocks of them, and 40 bytes for each document of a cluster.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.files.frames import FrameReader, FrameWriter, open_frames
from thresher.stages.dedup.semantic.assignment import AssignedRows, cluster_bytes, keep_files, read_assigned

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.source import FileFacts, ReadContext
    from thresher.stages.dedup.semantic.neighbours import VectorFile
    from thresher.stages.dedup.semantic.semantic import SemanticDeduplication

PAIRS = "pairs"
_UNIT_BYTES = 32 * 2**20
"""Small clusters are put together to units of this size."""
_PAIRS_PER_FRAME = 64 * 1024


class Pairs(NamedTuple):
    """Documents that have similar ones, each with the one that is kept; that one itself is among them."""

    number: npt.NDArray[np.uint64]
    """Number of the document."""
    kept: npt.NDArray[np.uint64]
    """Number of the document that is kept."""
    similarity: npt.NDArray[np.float32]
    """Cosine of the vectors of the two."""


class ClusterRowsReader(PhaseReader[DocumentBatch]):
    """Read the rows of some clusters."""

    intermediate = True

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return units of one or several clusters."""
        if not done.files:
            return []
        path = keep_files(done, "assigned")
        groups: list[tuple[int, int, int]] = []  # first cluster, the one after the last, bytes
        for cluster, nbytes in cluster_bytes(done).items():
            if groups and groups[-1][2] + nbytes <= _UNIT_BYTES:
                groups[-1] = groups[-1][0], cluster + 1, groups[-1][2] + nbytes
            else:
                groups.append((cluster, cluster + 1, nbytes))
        return [
            done.unit(number, [Piece(path, f"{first}-{end}", 0)], nbytes, PAIRS)
            for number, (first, end, nbytes) in enumerate(groups)
        ]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the rows of the clusters of a unit, from all files."""
        (piece,) = unit.pieces
        start, end = map(int, piece.relative.split("-"))
        with open_read(piece.path, storage_options=self.storage_options) as opened:
            files = msgspec.msgpack.decode(opened.read())
        for number, (path, nbytes) in enumerate(files):
            with open_frames(path, nbytes, self.storage_options) as file:
                for rows in read_assigned(file, start, end):
                    yield SourceItem(unit, rows.batch(unit), consumed=unit.nbytes * number // len(files))


class PairsWriter(PhaseWriter[DocumentBatch]):
    """Find the documents that are kept, and write the others with these."""

    intermediate = True

    def __init__(self, stage: SemanticDeduplication) -> None:
        self.stage = stage

    def prepare(self, batch: DocumentBatch) -> AssignedRows:
        """Return the rows of a batch."""
        return AssignedRows.of_batch(batch)

    def open_writer(self, local_path: str) -> PairsFile:
        """Return the writer for one unit."""
        return PairsFile(self, local_path)


class PairsFile:
    """Gathers the vectors of some clusters on disk, and writes pairs; a `RecordWriter`."""

    def __init__(self, sink: PairsWriter, path: str) -> None:
        from thresher.stages.dedup.semantic.neighbours import VectorFile

        self._sink = sink
        self._file = FrameWriter(path)
        self._scratch = f"{path}-kept"
        self._vectors = VectorFile(f"{path}-vectors")
        self._facts: list[AssignedRows] = []
        self._records = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add rows."""
        rows: AssignedRows = self._sink.take_prepared(batch)
        self._vectors.add(rows.vectors)
        self._facts.append(rows._replace(vectors=rows.vectors[:, :0]))
        self._records += len(rows.number)

    def close(self) -> FileFacts:
        """Find what is kept, one cluster after the other."""
        import numpy as np

        rows = AssignedRows.concat(self._facts)
        self._facts = []
        for cluster in np.unique(rows.cluster):
            own = np.flatnonzero(rows.cluster == cluster)
            self._add(similar_in(rows.take(own), own, self._vectors, 1 - self._sink.stage.eps, self._scratch))
        self._vectors.remove()
        return self._file.close(self._records)

    def _add(self, pairs: Pairs) -> None:
        for start in range(0, len(pairs.number), _PAIRS_PER_FRAME):
            some = [column[start : start + _PAIRS_PER_FRAME] for column in pairs]
            self._file.add(PAIRS, b"".join(column.tobytes() for column in some), len(some[0]))

    def abort(self) -> None:
        """Remove everything that was written."""
        self._file.abort()
        with contextlib.suppress(FileNotFoundError):
            self._vectors.remove()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._scratch)


def similar_in(
    rows: AssignedRows, places: npt.NDArray[np.int64], vectors: VectorFile, least: float, scratch: str
) -> Pairs:
    """Return the documents of a cluster that have similar ones. `places`: where their vectors are in the file.

    Documents with the same vector are looked at once, so that a million of them cost no comparisons.
    """
    import numpy as np

    from thresher.stages.dedup.semantic.neighbours import find_kept

    order = np.lexsort((rows.number, -rows.rank))
    rows, places = rows.take(order), places[order]
    hashes = np.stack((rows.high, rows.low), axis=1)
    _, firsts, which = np.unique(hashes, axis=0, return_index=True, return_inverse=True)
    different = np.sort(firsts)
    found = find_kept(vectors, places[different], least, scratch)
    vector_of_each = np.searchsorted(different, firsts[which.reshape(-1)])
    kept = different[found.kept[vector_of_each]]
    members = np.bincount(kept, minlength=len(kept))
    in_pairs = np.flatnonzero(members[kept] > 1)
    similarity = found.similarity[vector_of_each].astype(np.float32)
    return Pairs(rows.number[in_pairs], rows.number[kept[in_pairs]], similarity[in_pairs])


def read_pairs(file: FrameReader) -> Iterator[Pairs]:
    """Yield the pairs of a file."""
    import numpy as np

    for frame in file.frames(PAIRS):
        content, count = file.read(frame), frame.note
        numbers, kept = (np.frombuffer(content, dtype=np.uint64, count=count, offset=8 * count * n) for n in (0, 1))
        yield Pairs(numbers, kept, np.frombuffer(content, dtype=np.float32, offset=16 * count))


def pair_batch(pairs: Pairs, unit: Unit, metadata: dict[str, Any]) -> DocumentBatch:
    """Return pairs as records."""
    import pyarrow as pa

    batch = DocumentBatch(pa.table(dict(zip(Pairs._fields, pairs, strict=True))))
    batch.name_records((f"{unit.id}:r", ""))
    batch.metadata.update(metadata)
    return batch
