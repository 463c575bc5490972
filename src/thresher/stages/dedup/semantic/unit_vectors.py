# SPDX-License-Identifier: Apache-2.0
"""The first phase: documents and their vectors, written unit by unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import DocumentBatch
from thresher.stages.dedup.files.frames import FrameReader
from thresher.stages.dedup.files.unit_file import Keyed, UnitWriter
from thresher.stages.dedup.semantic.vectors import Vectors, check_dimensions, rounded, vectors_in

if TYPE_CHECKING:
    from thresher.stages.dedup.semantic.semantic import SemanticDeduplication

VECTORS = "vectors"
_ROWS_PER_FRAME = 512


class Embedded(NamedTuple):
    """Facts about the documents of a batch."""

    vectors: Vectors
    """One vector for each document."""
    ranks: npt.NDArray[np.float64] | None
    """Of similar documents the one with the largest is kept; `None`: another rule decides."""


def embedded(batch: DocumentBatch, stage: SemanticDeduplication) -> tuple[Embedded | None, dict[int, str]]:
    """Return the vectors and ranks of documents, and what is wrong with rows that have no vector."""
    if stage.embedder is None:
        given, wrong = vectors_in(batch, stage.embedding_field, stage.embedding_dim)
        if wrong:
            return None, wrong
    else:
        from thresher.models.embedder import load_embedder

        given = load_embedder(type(stage).__name__, stage.embedder).embed(batch.values(stage.text_field))
    vectors = np.zeros((0, 1), dtype=np.int16) if given is None else rounded(given)
    ranks = None if stage.keep is None else stage.keep.ranks(batch, stage.text_field)
    return Embedded(vectors, ranks), {}


class VectorsWriter(UnitWriter):
    """Writes the documents of one unit with their vectors; a `RecordWriter`."""

    def __init__(
        self, path: str, prepared: Callable[[DocumentBatch], Embedded], buffer_bytes: int, *, with_documents: bool
    ) -> None:
        super().__init__(path, self._without_keys, buffer_bytes, with_documents=with_documents)
        self._prepared = prepared
        self._ranks_of_batch: npt.NDArray[np.float64] | None = None
        self._dimensions: int | None = None

    def _without_keys(self, batch: DocumentBatch) -> Keyed:
        return Keyed(np.zeros((len(batch), 0), dtype=np.uint64), None, self._ranks_of_batch)

    def write(self, batch: DocumentBatch) -> None:
        """Add documents."""
        found = self._prepared(batch)
        self._ranks_of_batch = found.ranks
        super().write(batch)
        for start in range(0, len(found.vectors), _ROWS_PER_FRAME):
            some = found.vectors[start : start + _ROWS_PER_FRAME]
            check_dimensions(self._dimensions or some.shape[1], some.shape[1])
            self._dimensions = some.shape[1]
            self._file.add(VECTORS, some.tobytes(), [len(some), some.shape[1]])


def dimensions_of(file: FrameReader) -> int | None:
    """Return how many numbers the vectors of a unit have; `None` if it has no vector."""
    frames = file.frames(VECTORS)
    return int(frames[0].note[1]) if frames else None


def read_vectors(file: FrameReader, rows: npt.NDArray[np.int64] | None = None) -> Iterator[tuple[int, Vectors]]:
    """Yield vectors of a unit in parts, each with the number of its first document in the unit.

    `rows`: sorted numbers of those that are wanted; parts without any are not read. A part has all or only these.
    """
    first = 0
    for frame in file.frames(VECTORS):
        count, dimensions = frame.note
        low, high = (0, 1) if rows is None else np.searchsorted(rows, (first, first + count)).tolist()
        if high > low:
            vectors = np.frombuffer(file.read(frame), dtype=np.int16).reshape(count, dimensions)
            yield first, vectors if rows is None else vectors[rows[low:high] - first]
        first += count
