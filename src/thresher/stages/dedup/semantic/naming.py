# SPDX-License-Identifier: Apache-2.0
"""The fifth phase of a semantic deduplication: the file of clusters, with the ids of documents.

One worker reads all pairs. What it holds in memory does not grow with their number; see `exchange`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
from thresher.core.source import FileFacts, SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.clustering.clusters import cluster_schema, file_facts
from thresher.stages.dedup.clustering.summary import ClusterSummary
from thresher.stages.dedup.files.documents import UnitPlace, keep_places, load_places
from thresher.stages.dedup.files.frames import open_frames
from thresher.stages.dedup.semantic.pairs import Pairs, pair_batch, read_pairs

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from thresher.core.source import ReadContext
    from thresher.stages.dedup.clustering.exchange import Exchange

_UNITS = "units"
"""Entry in the metadata of a batch of pairs: the file with the places of the units of documents."""
_ROW_BYTES = 256
"""Bytes that a row of the file takes in memory, with its ids."""
_ROWS_PER_GROUP = 64 * 1024


class PairsReader(PhaseReader[DocumentBatch]):
    """Read all pairs."""

    intermediate = True
    reaches_back = 4

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit with all files."""
        if not done.files:
            return []
        path, places = keep_places(done.earlier, done)
        files = [Piece(file.path, f"pairs {number}", file.nbytes) for number, file in enumerate(done.files)]
        nbytes = sum(file.nbytes for file in done.files)
        return [done.unit(0, [Piece(path, _UNITS, len(places)), *files], nbytes, "clusters")]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the pairs of all files."""
        units, *files = unit.pieces
        consumed = 0
        for piece in files:
            with open_frames(piece.path, piece.size, self.storage_options) as file:
                for pairs in read_pairs(file):
                    yield SourceItem(unit, pair_batch(pairs, unit, {_UNITS: units.path}), consumed=consumed)
            consumed += piece.size


class NamedClusterWriter(PhaseWriter[DocumentBatch]):
    """Write the clusters."""

    intermediate = True

    def extension(self) -> str:
        """Return the extension of the files."""
        return ".parquet"

    def prepare(self, batch: DocumentBatch) -> Pairs:
        """Return the pairs of a batch."""
        table = batch.to_pyarrow()
        return Pairs(*(table[name].to_numpy() for name in Pairs._fields))

    def open_writer(self, local_path: str) -> NamedClusterFile:
        """Return the writer of all clusters."""
        return NamedClusterFile(self, local_path)


class NamedClusterFile:
    """Gathers pairs and writes clusters; a `RecordWriter`."""

    def __init__(self, sink: NamedClusterWriter, path: str) -> None:
        self._sink = sink
        self._path = path
        self._pairs: Exchange | None = None
        self._places: list[UnitPlace] = []
        self._summary = ClusterSummary()
        self._given = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add pairs."""
        from thresher.stages.dedup.clustering.exchange import Buckets

        if self._pairs is None:
            self._places = load_places(batch.metadata[_UNITS], self._sink.storage_options)
            documents = sum(place.documents for place in self._places)
            size = self._sink.buffer_bytes // _ROW_BYTES
            self._pairs = Buckets(documents, size, f"{self._path}-scratch").exchange()
        self._pairs.add("kept", **self._sink.take_prepared(batch)._asdict())
        self._given += len(batch)

    def close(self) -> FileFacts:
        """Write the clusters in the order of the input."""
        import pyarrow.parquet as pq

        assert self._pairs is not None, "a file is opened when there is something to write"
        by_first = self._with_sizes(self._pairs)
        self._pairs.remove()
        by_number = by_first.buckets.exchange()
        for table in self._named(by_first, "first", "cluster"):
            by_number.add("number", **{name: table[name] for name in table.column_names})
        by_first.remove()
        schema = cluster_schema()
        with pq.ParquetWriter(self._path, schema, compression="zstd") as writer:
            for table in self._named(by_number, "number", "id"):
                rows = table.sort_by("number").rename_columns({"number": "row"}).select(schema.names)
                rows = rows.cast(schema)
                self._summary.add(rows)
                writer.write_table(rows, row_group_size=_ROWS_PER_GROUP)
            writer.add_key_value_metadata(self._summary.metadata())
        by_number.buckets.remove()
        return file_facts(self._path, self._given)

    def _with_sizes(self, pairs: Exchange) -> Exchange:
        """Return the rows with the size and the first document of their clusters, by that document."""
        import numpy as np

        made = pairs.buckets.exchange()
        for table in self._named(pairs, "kept", "kept_id"):
            numbers, kept = table["number"].to_numpy(), table["kept"].to_numpy()
            clusters, which = np.unique(kept, return_inverse=True)
            firsts = np.full(len(clusters), np.iinfo(np.uint64).max, dtype=np.uint64)
            np.minimum.at(firsts, which, numbers)
            made.add(
                "first",
                number=numbers,
                first=firsts[which],
                size=np.bincount(which)[which].astype(np.uint32),
                kept=numbers == kept,
                similarity=table["similarity"],
                kept_id=table["kept_id"],
            )
        return made

    def _named(self, rows: Exchange, key: str, name: str) -> Iterator[pa.Table]:
        """Yield the rows of each range, with the ids of the documents in the column `key` as the column `name`."""
        import numpy as np
        import pyarrow as pa

        for bucket in range(rows.buckets.count):
            parts = [pa.table(part) for part in rows.read(bucket)]
            if not parts:
                continue
            table = pa.concat_tables(parts)
            numbers, which = np.unique(table[key].to_numpy(), return_inverse=True)
            ids = pa.array(self._ids(numbers), pa.large_string())
            yield table.append_column(name, ids.take(pa.array(which)))

    def _ids(self, numbers: npt.NDArray[np.uint64]) -> Sequence[str]:
        """Return the ids of some documents, given by their sorted numbers."""
        import numpy as np

        from thresher.stages.dedup.files.unit_file import read_ids

        found: list[str] = []
        for place in self._places:
            span = np.array([place.first, place.first + place.documents], dtype=np.uint64)
            low, high = np.searchsorted(numbers, span).tolist()
            if high > low:
                with open_frames(place.path, place.nbytes, self._sink.storage_options) as file:
                    found += read_ids(file, numbers[low:high] - np.uint64(place.first), self._summary.paths)
        return found

    def abort(self) -> None:
        """Remove everything that was written."""
        if self._pairs is not None:
            self._pairs.buckets.remove()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
