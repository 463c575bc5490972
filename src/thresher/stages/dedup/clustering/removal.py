# SPDX-License-Identifier: Apache-2.0
"""The last phase of a deduplication: documents in the order of the input, without duplicates; or the clusters alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import StorageOptions, exists, join, open_read
from thresher.core.phases import PhaseFolder, PhaseReader
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.clustering.summary import chart_clusters
from thresher.stages.dedup.files.documents import UnitPlace, keep_places
from thresher.stages.dedup.files.frames import open_frames

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from thresher.core.source import ReadContext
    from thresher.stages.dedup.keyed_stage import KeyedStage

RULE = "duplicate"
CLUSTERS_FILE = "clusters.parquet"
"""Name of the file with all clusters in the run folder."""
_REASON = ["kept_id", "cluster", "size", "similarity"]
"""Columns that say why a document was dropped."""
_UNIT_END = re.compile(r"-[0-9a-f]{12}-\d+$")


def stem_of(place: UnitPlace) -> str:
    """Return the start of the names of output files of a unit of documents: that of its input."""
    return _UNIT_END.sub("", place.path.rsplit("/", 1)[-1].removesuffix(".phase"))


class RemovalReader(PhaseReader[DocumentBatch]):
    """Read the documents of a unit, and drop duplicates."""

    def __init__(self, stage: KeyedStage) -> None:
        self.stage = stage
        self.reaches_back = 3 if stage.verified is None else 4

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit for each unit of documents."""
        _, places = keep_places(done.earlier, done, self.stage.known_places(done.storage_options))
        clusters = [Piece(file.path, "clusters", file.nbytes) for file in done.files]
        for file in done.files:
            done.publish(file.path, CLUSTERS_FILE)
        units = []
        for number, place in enumerate(place for place in places if not place.known):
            span = msgspec.json.encode([place.first, place.documents, not number]).decode()
            pieces = [Piece(place.path, span, place.nbytes), *clusters]
            units.append(done.unit(number, pieces, place.nbytes, stem_of(place)))
        return units

    def recorded_drop(self, run_dir: str, record_id: str, storage_options: StorageOptions) -> tuple[str, Any] | None:
        """Return what a document is a duplicate of, as the file of clusters says."""
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        path = join(run_dir, CLUSTERS_FILE)
        if not exists(path, storage_options):
            return None
        with open_read(path, storage_options=storage_options) as opened:
            for batch in pq.ParquetFile(pa.PythonFile(opened)).iter_batches():
                for row in batch.filter(pc.equal(batch["id"], record_id)).to_pylist():
                    return None if row["kept"] else (RULE, {name: row[name] for name in _REASON})
        return None

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents in the order of the input; those that are dropped are noted in their batches."""
        from thresher.stages.corpus.sorted_file import chunks_of
        from thresher.stages.dedup.files.unit_file import read_documents

        piece, *clusters = unit.pieces
        first, documents, is_first = msgspec.json.decode(piece.relative)
        if is_first and clusters:
            chart_clusters(self, clusters[0], self.storage_options)
        marked = Marked(clusters[0], first, first + documents, self.storage_options) if clusters else None
        row = consumed = 0
        with open_frames(piece.path, piece.size, self.storage_options) as file:
            for block in read_documents(file):
                for batch in chunks_of(block, context.chunk_bytes):
                    consumed += batch.nbytes
                    made = batch if marked is None else self._without(batch, marked, first + row)
                    row += len(batch)
                    yield SourceItem(unit, made, consumed=min(consumed, unit.nbytes))

    def _without(self, batch: DocumentBatch, marked: Marked, first: int) -> DocumentBatch:
        """Return a batch without its duplicates; `first`: number of its first document."""
        rows, found = marked.between(first, first + len(batch))
        return batch.drop(rows, RULE, found) if len(rows) else batch


class Marked:
    """The documents of one unit that are duplicates."""

    def __init__(self, clusters: Piece, start: int, end: int, storage_options: Any) -> None:
        """`start`, `end`: numbers of the first document of the unit, and of the one after its last."""
        import numpy as np

        from thresher.stages.dedup.files.arrow_columns import arrow_column, numpy_column

        table = read_rows(clusters, start, end, storage_options)
        table = table.take(arrow_column(np.flatnonzero(~numpy_column(table["kept"]))))
        self._rows: npt.NDArray[np.uint64] = numpy_column(table["row"])
        self._table = table

    def between(self, start: int, end: int) -> tuple[npt.NDArray[np.int64], list[dict[str, Any]]]:
        """Return the duplicates in a range, counted from its start, and what is known of each."""
        import numpy as np

        low, high = np.searchsorted(self._rows, np.array([start, end], dtype=np.uint64)).tolist()
        some = self._table.slice(low, high - low)
        rows = (self._rows[low:high] - np.uint64(start)).astype(np.int64)
        return rows, some.select(_REASON).to_pylist()


def read_rows(clusters: Piece, start: int, end: int, storage_options: Any) -> pa.Table:
    """Return the rows of a file of clusters for the documents from `start` to `end` - 1."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from thresher.stages.dedup.files.arrow_columns import numpy_column

    with open_read(clusters.path, storage_options=storage_options) as opened:
        file = pq.ParquetFile(pa.PythonFile(opened))
        wanted = []
        for number in range(file.num_row_groups):
            statistics = file.metadata.row_group(number).column(0).statistics
            if statistics.min < end and statistics.max >= start:
                wanted.append(number)
        table = file.read_row_groups(wanted)
    low, high = np.searchsorted(numpy_column(table["row"]), np.array([start, end], dtype=np.uint64)).tolist()
    return table.slice(low, high - low)


class ClusterReader(PhaseReader[DocumentBatch]):
    """Give the rows of the clusters as documents."""

    creates = True

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit with all clusters."""
        for file in done.files:
            done.publish(file.path, CLUSTERS_FILE)
        return [
            done.unit(number, [Piece(file.path, "clusters", file.nbytes)], file.nbytes, "duplicates")
            for number, file in enumerate(done.files)
        ]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of a row."""
        return [], ["id", "cluster", "size", "kept", "kept_id", "similarity"]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the rows in the order of the input."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        (piece,) = unit.pieces
        chart_clusters(self, piece, self.storage_options)
        first = 0
        with open_read(piece.path, storage_options=self.storage_options) as opened:
            for some in pq.ParquetFile(pa.PythonFile(opened)).iter_batches(columns=self.outputs()[1]):
                batch = DocumentBatch(pa.Table.from_batches([some]))
                batch.name_records((f"{unit.id}:r", ""), first)
                first += len(batch)
                yield SourceItem(unit, batch)
