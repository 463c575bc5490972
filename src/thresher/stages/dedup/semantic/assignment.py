# SPDX-License-Identifier: Apache-2.0
"""The third phase of a semantic deduplication: each vector goes to its nearest centroid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.files.documents import facts_of, keep_places
from thresher.stages.dedup.files.frames import FrameReader, FrameWriter, open_frames
from thresher.stages.dedup.semantic.centroids import read_centroids, vector_batch, vectors_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.source import FileFacts, ReadContext
    from thresher.stages.dedup.semantic.semantic import SemanticDeduplication
    from thresher.stages.dedup.semantic.vectors import Floats, Vectors

ROWS = "rows"
FACTS_BYTES = 40
"""Bytes of a row besides its vector."""
_ROWS_PER_FRAME = 1024


class AssignedRows(NamedTuple):
    """Vectors with their clusters."""

    cluster: npt.NDArray[np.int64]
    """Number of the nearest centroid."""
    number: npt.NDArray[np.uint64]
    """Number of the document."""
    rank: npt.NDArray[np.float64]
    """Of similar documents the one with the largest is kept, and the first of equal ones."""
    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]
    """Two hashes of the vector."""
    vectors: Vectors
    """One vector per row."""

    def take(self, rows: Any) -> AssignedRows:
        """Return some rows."""
        return AssignedRows(*(column[rows] for column in self))

    def batch(self, unit: Unit) -> DocumentBatch:
        """Return the rows as records."""
        return vector_batch(self.vectors, unit, **dict(zip(self._fields[:-1], self[:-1], strict=True)))

    @classmethod
    def of_batch(cls, batch: DocumentBatch) -> AssignedRows:
        """Return the rows that `batch` made records of."""
        table = batch.to_pyarrow()
        columns: list[Any] = [table[name].to_numpy() for name in cls._fields[:-1]]
        return cls._make([*columns, vectors_of(batch)])

    @classmethod
    def concat(cls, parts: list[AssignedRows]) -> AssignedRows:
        """Return the rows of all parts."""
        import numpy as np

        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


class AssignReader(PhaseReader[DocumentBatch]):
    """Find the nearest centroid of the vectors of a unit. Vectors of zeros have none."""

    intermediate = True
    reaches_back = 2

    def __init__(self, stage: SemanticDeduplication) -> None:
        self.stage = stage

    def preloads(self) -> list[str]:
        """Return the kernel that hashes vectors."""
        return ["thresher.kernels.dedup.text_hash"]

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit for each unit of documents."""
        if not done.files:
            return []
        _, places = keep_places(done.earlier, done)
        centroids = Piece(done.files[0].path, "centroids", done.files[0].nbytes)
        return [
            done.unit(number, [Piece(place.path, str(place.first), place.nbytes), centroids], place.nbytes, "assigned")
            for number, place in enumerate(places)
        ]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield vectors with their clusters."""
        import numpy as np

        from thresher.stages.dedup.files.unit_file import read_ranks
        from thresher.stages.dedup.semantic.kmeans import nearest
        from thresher.stages.dedup.semantic.unit_vectors import read_vectors

        documents, fitted = unit.pieces
        centroids = read_centroids(fitted.path, fitted.size, self.storage_options)
        if not len(centroids):
            return
        with open_frames(documents.path, documents.size, self.storage_options) as file:
            ranks = read_ranks(file, np.arange(facts_of(file).documents, dtype=np.uint64))
            for first, vectors in read_vectors(file):
                rows = np.flatnonzero(vectors.any(axis=1))
                if not len(rows):
                    continue
                own = vectors[rows]
                clusters, cosines = nearest(own, centroids)
                numbers = (rows + first + int(documents.relative)).astype(np.uint64)
                rank = self._ranks(numbers, cosines) if ranks is None else ranks[rows + first]
                hashes = _hashes(own)
                found = AssignedRows(clusters, numbers, rank, hashes[:, 0], hashes[:, 1], own)
                yield SourceItem(unit, found.batch(unit))

    def _ranks(self, numbers: npt.NDArray[np.uint64], cosines: Floats) -> Floats:
        """Return ranks that follow from the vectors, or from the seed."""
        import numpy as np

        which = self.stage.which_to_keep
        if which == "random":
            mixed = (numbers + np.uint64(self.stage.random_state)) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
            return np.asarray((mixed >> np.uint64(11)).astype(np.float64))
        return {"hard": -cosines, "easy": cosines}.get(which, np.zeros(len(numbers)))


def _hashes(vectors: Vectors) -> npt.NDArray[np.uint64]:
    """Return 128 bits for each vector."""
    import numpy as np

    from thresher.kernels.counts.text_counts import Texts
    from thresher.kernels.dedup.text_hash import hash_texts

    width = 2 * vectors.shape[1]
    data = np.frombuffer(vectors.tobytes() + bytes(8), dtype=np.uint8)
    starts = np.arange(len(vectors), dtype=np.int64) * width
    return hash_texts(Texts(data, starts, starts + width))


class AssignedWriter(PhaseWriter[DocumentBatch]):
    """Write vectors by cluster."""

    intermediate = True

    def prepare(self, batch: DocumentBatch) -> AssignedRows:
        """Return the rows of a batch."""
        return AssignedRows.of_batch(batch)

    def open_writer(self, local_path: str) -> AssignedFile:
        """Return the writer for one unit."""
        return AssignedFile(self, local_path)


class AssignedFile:
    """Writes the rows of one unit, sorted by cluster as far as they are held in memory; a `RecordWriter`."""

    def __init__(self, sink: AssignedWriter, path: str) -> None:
        self._sink = sink
        self._file = FrameWriter(path)
        self._held: list[AssignedRows] = []
        self._held_bytes = self._records = self._width = 0
        self._sizes: dict[int, int] = {}

    def write(self, batch: DocumentBatch) -> None:
        """Add rows."""
        rows: AssignedRows = self._sink.take_prepared(batch)
        self._held.append(rows)
        self._width = 2 * rows.vectors.shape[1]
        self._held_bytes += len(rows.number) * (self._width + FACTS_BYTES)
        self._records += len(rows.number)
        if self._held_bytes >= self._sink.buffer_bytes:
            self._flush()

    def _flush(self) -> None:
        import itertools

        import numpy as np

        if not self._held:
            return
        rows = AssignedRows.concat(self._held)
        rows = rows.take(np.argsort(rows.cluster, kind="stable"))
        starts = [*np.flatnonzero(np.diff(rows.cluster, prepend=-1)).tolist(), len(rows.cluster)]
        for start, end in itertools.pairwise(starts):
            cluster = int(rows.cluster[start])
            self._sizes[cluster] = self._sizes.get(cluster, 0) + end - start
            for first in range(start, end, _ROWS_PER_FRAME):
                some = rows.take(slice(first, min(end, first + _ROWS_PER_FRAME)))
                content = b"".join(column.tobytes() for column in some[1:])
                self._file.add(ROWS, content, [cluster, len(some.number), self._width // 2])
        self._held, self._held_bytes = [], 0

    def close(self) -> FileFacts:
        """Write the rest, and how many rows each cluster has."""
        self._flush()
        return self._file.close(self._records, [self._width, sorted(self._sizes.items())])

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


def read_assigned(file: FrameReader, start: int, end: int) -> Iterator[AssignedRows]:
    """Yield the rows of the clusters from `start` to `end` - 1."""
    import numpy as np

    for frame in file.frames(ROWS):
        cluster, count, dimensions = frame.note
        if not start <= cluster < end:
            continue
        content = file.read(frame)
        columns: list[Any] = [
            np.frombuffer(content, dtype=kind, count=count, offset=8 * count * place)
            for place, kind in enumerate((np.uint64, np.float64, np.uint64, np.uint64))
        ]
        vectors = np.frombuffer(content, dtype=np.int16, offset=32 * count).reshape(count, dimensions)
        yield AssignedRows._make([np.full(count, cluster), *columns, vectors])


def cluster_bytes(done: PhaseFolder) -> dict[int, int]:
    """Return the bytes of the rows of each cluster in the files of a phase."""
    found: dict[int, int] = {}
    for file in done.files:
        with open_frames(file.path, file.nbytes, done.storage_options) as opened:
            width, sizes = opened.facts
        for cluster, rows in sizes:
            found[cluster] = found.get(cluster, 0) + rows * (width + FACTS_BYTES)
    return dict(sorted(found.items()))


def keep_files(done: PhaseFolder, name: str) -> str:
    """Write the paths and sizes of the files of a phase to a file beside them; return its path."""
    return done.keep(name, msgspec.msgpack.encode([[file.path, file.nbytes] for file in done.files]))
