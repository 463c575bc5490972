# SPDX-License-Identifier: Apache-2.0
"""The first two phases of a semantic deduplication: documents with vectors, and centroids fitted to a sample of them.

One worker fits the centroids. The sample depends on the number of documents and the seed alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.files.documents import DocumentsWriter, keep_places, load_places
from thresher.stages.dedup.files.frames import FrameWriter, open_frames

if TYPE_CHECKING:
    from thresher.core.source import FileFacts, ReadContext
    from thresher.stages.dedup.semantic.semantic import SemanticDeduplication
    from thresher.stages.dedup.semantic.unit_vectors import Embedded
    from thresher.stages.dedup.semantic.vectors import Vectors

CENTROIDS = "centroids"
VECTOR = "vector"
"""Column of a batch of vectors."""


class EmbeddedWriter(DocumentsWriter):
    """Write the documents of a unit with their vectors."""

    stage: Any

    def preloads(self) -> list[str]:
        """Return the kernel that reads texts, if they are embedded."""
        return [] if self.stage.embedder is None else ["thresher.kernels.json.text"]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Prepare a batch; documents without a vector are quarantined."""
        from thresher.stages.dedup.semantic.unit_vectors import embedded

        if self.stage.embedder is not None:
            return super().process(task)
        prepared, wrong = embedded(task, self.stage)
        if wrong:
            task = task.set_aside(list(wrong), error="not-a-vector", messages=list(wrong.values()))
            prepared, _ = embedded(task, self.stage)
        self._prepared = task, prepared
        return task

    def prepare(self, batch: DocumentBatch) -> Embedded:  # type: ignore[override]  # another kind of file
        """Return the vectors and ranks of the documents."""
        from thresher.stages.dedup.semantic.unit_vectors import embedded

        found, wrong = embedded(batch, self.stage)
        assert found is not None, f"documents without a vector are quarantined: {wrong}"
        return found

    def open_writer(self, local_path: str) -> Any:
        """Return the writer for one unit."""
        from thresher.stages.dedup.semantic.unit_vectors import VectorsWriter

        return VectorsWriter(local_path, self.take_prepared, self.buffer_bytes, with_documents=not self.merges)


class VectorsOnlyWriter(EmbeddedWriter):
    """Write the vectors of the documents of a unit, and not the documents."""

    merges = True


class SampleReader(PhaseReader[DocumentBatch]):
    """Read the vectors of a sample of all documents."""

    intermediate = True

    def __init__(self, stage: SemanticDeduplication) -> None:
        self.stage = stage

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit."""
        if not done.files:
            return []
        path, places = keep_places(done.files, done)
        return [done.unit(0, [Piece(path, "sample", 0)], sum(place.nbytes for place in places), CENTROIDS)]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield vectors in the order of the input."""
        from thresher.stages.dedup.semantic.kmeans import sample_rows
        from thresher.stages.dedup.semantic.unit_vectors import read_vectors

        places = load_places(unit.pieces[0].path, self.storage_options)
        dimensions = self._dimensions(places)
        if dimensions is None:
            return
        documents = sum(place.documents for place in places)
        rows = sample_rows(documents, self.stage.n_clusters, dimensions, self.stage.random_state)
        consumed = 0
        for place in places:
            consumed += place.nbytes
            own = rows[(rows >= place.first) & (rows < place.first + place.documents)] - place.first
            with open_frames(place.path, place.nbytes, self.storage_options) as file:
                for _, vectors in read_vectors(file, own):
                    yield SourceItem(unit, vector_batch(vectors, unit), consumed=consumed)

    def _dimensions(self, places: Any) -> int | None:
        """Return how many numbers all vectors have."""
        from thresher.stages.dedup.semantic.unit_vectors import dimensions_of
        from thresher.stages.dedup.semantic.vectors import check_dimensions

        known: int | None = None
        for place in places:
            with open_frames(place.path, place.nbytes, self.storage_options) as file:
                own = dimensions_of(file)
            if own is not None:
                check_dimensions(known or own, own)
                known = own
        return known


def vector_batch(vectors: Vectors, unit: Unit, **columns: Any) -> DocumentBatch:
    """Return vectors as records, with further columns."""
    import pyarrow as pa

    kind = pa.binary(2 * vectors.shape[1])
    packed = pa.Array.from_buffers(kind, len(vectors), [None, pa.py_buffer(vectors.tobytes())])
    batch = DocumentBatch(pa.table({VECTOR: packed, **columns}))
    batch.name_records((f"{unit.id}:r", ""))
    return batch


def vectors_of(batch: DocumentBatch) -> Vectors:
    """Return the vectors that `vector_batch` made records of."""
    import numpy as np

    packed = batch.to_pyarrow()[VECTOR].combine_chunks()
    width = packed.type.byte_width
    content = packed.buffers()[1][packed.offset * width : (packed.offset + len(packed)) * width]
    return np.frombuffer(content, dtype=np.int16).reshape(len(packed), width // 2)


class CentroidWriter(PhaseWriter[DocumentBatch]):
    """Fit centroids to vectors, and write them."""

    intermediate = True

    def __init__(self, stage: SemanticDeduplication) -> None:
        self.stage = stage

    def prepare(self, batch: DocumentBatch) -> Vectors:
        """Return the vectors of a batch."""
        return vectors_of(batch)

    def open_writer(self, local_path: str) -> CentroidFile:
        """Return the writer of the centroids."""
        return CentroidFile(self, local_path)


class CentroidFile:
    """Gathers vectors and writes centroids; a `RecordWriter`. The sample is limited to 128 MB."""

    def __init__(self, sink: CentroidWriter, path: str) -> None:
        self._sink = sink
        self._file = FrameWriter(path)
        self._sample: list[Vectors] = []

    def write(self, batch: DocumentBatch) -> None:
        """Add vectors."""
        self._sample.append(self._sink.take_prepared(batch))

    def close(self) -> FileFacts:
        """Fit the centroids and write them."""
        import numpy as np

        from thresher.stages.dedup.semantic.kmeans import fit

        stage = self._sink.stage
        sample = np.concatenate(self._sample)
        centroids = fit(sample, stage.n_clusters, stage.random_state, stage.max_iter)
        self._file.add(CENTROIDS, centroids.tobytes(), list(centroids.shape))
        return self._file.close(len(sample))

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


def read_centroids(path: str, nbytes: int, storage_options: Any) -> Vectors:
    """Return the centroids that a `CentroidFile` has."""
    import numpy as np

    with open_frames(path, nbytes, storage_options) as file:
        (frame,) = file.frames(CENTROIDS)
        return np.frombuffer(file.read(frame), dtype=np.int16).reshape(frame.note)
