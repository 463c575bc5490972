# SPDX-License-Identifier: Apache-2.0
"""The third phase of a deduplication: clusters of duplicates, and which document of each is kept.

One worker reads all edges. What it holds in memory does not grow with their number; see `exchange`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseWriter
from thresher.core.source import FileFacts, SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.dedup.clustering.groups import edge_batch, edges_of, read_edge_file
from thresher.stages.dedup.clustering.summary import ClusterSummary
from thresher.stages.dedup.files.documents import UnitPlace, keep_places, load_places
from thresher.stages.dedup.files.frames import open_frames

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.source import ReadContext
    from thresher.stages.dedup.clustering.exchange import Exchange
    from thresher.stages.dedup.deduplication import Deduplication
    from thresher.stages.dedup.files.keys import Edges, Numbers

_UNITS = "units"
"""Entry in the metadata of a batch of edges: the file with the places of the units of documents."""
_NODE_BYTES, _VERIFIED_NODE_BYTES = 64, 256
"""Bytes that a document takes in memory while its range is looked at; with verified pairs, these are held as well."""
_ROWS_PER_GROUP = 64 * 1024


class EdgeReader(PhaseReader[DocumentBatch]):
    """Read all edges."""

    intermediate = True

    def __init__(self, stage: Deduplication) -> None:
        self.stage = stage
        self.reaches_back = 2 if stage.verified is None else 3

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit with all files."""
        if not done.earlier:
            return []
        path, places = keep_places(done.earlier, done, self.stage.known_places(done.storage_options))
        files = [Piece(file.path, f"edges {number}", file.nbytes) for number, file in enumerate(done.files)]
        nbytes = sum(file.nbytes for file in done.files)
        return [done.unit(0, [Piece(path, _UNITS, len(places)), *files], nbytes, "clusters")]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the edges of all files: first those inside of units of documents, then those between them.

        Verified pairs are both in the same files.
        """
        held: list[tuple[Edges, Any]] = []
        for edges, similarity, consumed in self._edges(unit):
            held.append((edges, similarity))
            if sum(some.nbytes for some, _ in held) >= context.chunk_bytes:
                yield self._item(unit, held, consumed)
                held = []
        if held:
            yield self._item(unit, held, consumed)

    def _edges(self, unit: Unit) -> Iterator[tuple[Edges, Any, int]]:
        """Yield edges, their similarities or `None`, and the bytes of the files before them."""
        units, *files = unit.pieces
        consumed = 0
        if self.stage.verified is None:
            for edges in self._inside(load_places(units.path, self.storage_options)):
                yield edges, None, consumed
        for piece in files:
            with open_frames(piece.path, piece.size, self.storage_options) as file:
                for edges, similarity in read_edge_file(file):
                    yield edges, similarity, consumed
            consumed += piece.size

    def _item(self, unit: Unit, held: Sequence[tuple[Edges, Any]], consumed: int) -> SourceItem:
        import numpy as np

        similarity = None if held[0][1] is None else np.concatenate([some for _, some in held])
        batch = edge_batch(np.concatenate([edges for edges, _ in held]), unit, similarity)
        batch.metadata[_UNITS] = unit.pieces[0].path
        return SourceItem(unit, batch, consumed=consumed)

    def _inside(self, places: Sequence[UnitPlace]) -> Iterator[Edges]:
        from thresher.stages.dedup.files.unit_file import read_edges

        for place in places:
            if not place.known:
                with open_frames(place.path, place.nbytes, self.storage_options) as file:
                    yield from read_edges(file, place.first)


class ClusterWriter(PhaseWriter[DocumentBatch]):
    """Write the clusters."""

    intermediate = True

    def __init__(self, stage: Deduplication) -> None:
        self.stage = stage

    def extension(self) -> str:
        """Return the extension of the files."""
        return ".parquet"

    def preloads(self) -> list[str]:
        """Return the kernel that joins nodes."""
        return [] if self.stage.verified is not None else ["thresher.kernels.dedup.forest"]

    def prepare(self, batch: DocumentBatch) -> tuple[Edges, Any]:
        """Return the edges of a batch."""
        return edges_of(batch)

    def open_writer(self, local_path: str) -> ClusterFile:
        """Return the writer of all clusters."""
        return ClusterFile(self, local_path)


class ClusterFile:
    """Gathers edges and writes the clusters; a `RecordWriter`."""

    def __init__(self, sink: ClusterWriter, path: str) -> None:
        self._sink = sink
        self._path = path
        self._edges: Exchange | None = None
        self._places: list[UnitPlace] = []
        self._summary = ClusterSummary()
        self._given = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add edges."""
        from thresher.stages.dedup.clustering.exchange import Buckets

        if self._edges is None:
            self._places = load_places(batch.metadata[_UNITS], self._sink.storage_options)
            documents = sum(place.documents for place in self._places)
            node_bytes = _NODE_BYTES if self._sink.stage.verified is None else _VERIFIED_NODE_BYTES
            size = self._sink.buffer_bytes // node_bytes
            self._edges = Buckets(documents, size, f"{self._path}-scratch").exchange()
        edges, similarity = self._sink.take_prepared(batch)
        known = {} if similarity is None else {"similarity": similarity}
        self._edges.add("node", node=edges[:, 0], to=edges[:, 1], **known)
        self._given += len(batch)

    def close(self) -> FileFacts:
        """Find the clusters and write them in the order of the input."""
        from thresher.stages.dedup.clustering.components import components
        from thresher.stages.dedup.clustering.stars import stars

        assert self._edges is not None, "a file is opened when there is something to write"
        buckets = self._edges.buckets
        roots = components(self._edges) if self._sink.stage.verified is None else stars(self._edges)
        members = self._named_members(roots)
        roots.remove()
        rows = _judged(members, sum(place.documents for place in self._places if place.known))
        members.remove()
        write_clusters(self._path, rows, self._summary)
        buckets.remove()
        return file_facts(self._path, self._given)

    def abort(self) -> None:
        """Remove everything that was written."""
        import contextlib

        if self._edges is not None:
            self._edges.buckets.remove()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    def _named_members(self, roots: Exchange) -> Exchange:
        """Return the documents of all clusters with their ids and ranks, by the first document of the cluster."""
        import numpy as np

        from thresher.stages.dedup.files.arrow_columns import arrow_texts

        members = roots.buckets.exchange()
        for bucket in range(roots.buckets.count):
            low, high = roots.buckets.bounds(bucket)
            root_of = np.full(high - low, np.iinfo(np.uint64).max, dtype=np.uint64)
            similarity = np.full(high - low, self._sink.stage.similarity, dtype=np.float32)
            for part in roots.read(bucket):
                own = (part["node"] - np.uint64(low)).astype(np.int64)
                root_of[own] = part["root"]
                if "similarity" in part:
                    similarity[own] = part["similarity"]
            nodes = np.flatnonzero(root_of != np.iinfo(np.uint64).max)
            for place in self._places:
                if place.first >= high or place.first + place.documents <= low:
                    continue
                start, end = np.searchsorted(nodes + low, (place.first, place.first + place.documents))
                if end > start:
                    own = nodes[start:end]
                    numbers = (own + low).astype(np.uint64)
                    ids, ranks = self._known(place, numbers - np.uint64(place.first))
                    ranks = -numbers.astype(np.float64) if ranks is None else ranks
                    named = arrow_texts(ids)
                    known = similarity[own]
                    members.add("root", root=root_of[own], node=numbers, rank=ranks, id=named, similarity=known)
        return members

    def _known(self, place: UnitPlace, rows: Numbers) -> tuple[list[str], npt.NDArray[np.float64] | None]:
        from thresher.stages.dedup.files.unit_file import read_ids, read_ranks

        with open_frames(place.path, place.nbytes, self._sink.storage_options) as file:
            ids = read_ids(file, rows, {} if place.known else self._summary.paths)
            ranks = read_ranks(file, rows)
        if not place.known:
            return ids, ranks
        folder = place.path.rpartition("/")[0]  # files of the same name in another data set have the same ids
        return [f"{folder}/{one}" for one in ids], None if self._sink.stage.keep.keep == "first" else _best(len(ids))


def _best(count: int) -> npt.NDArray[np.float64]:
    """Return the ranks of documents of an index: they are kept."""
    import numpy as np

    return np.full(count, np.inf)


def _judged(members: Exchange, known: int) -> Exchange:
    """Return the documents of all clusters with what is known of their clusters, by document.

    `known`: how many documents, the first ones, are those of an index. Of these only such are returned that are kept
    instead of a document of the run.
    """
    import numpy as np

    from thresher.stages.dedup.files.arrow_columns import arrow_column

    rows = members.buckets.exchange()
    for bucket in range(members.buckets.count):
        low, high = members.buckets.bounds(bucket)

        def place(part: dict[str, Any], low: int = low) -> npt.NDArray[np.int64]:
            return np.asarray((part["root"] - np.uint64(low)).astype(np.int64))

        size = np.zeros(high - low, dtype=np.uint32)
        best = np.full(high - low, -np.inf)
        for part in members.read(bucket):
            np.add.at(size, place(part), (part["node"] >= known).astype(np.uint32))
            np.maximum.at(best, place(part), part["rank"])
        kept = np.full(high - low, np.iinfo(np.uint64).max, dtype=np.uint64)
        for part in members.read(bucket):
            is_best = part["rank"] == best[place(part)]
            np.minimum.at(kept, place(part)[is_best], part["node"][is_best])
        has_new = size > 0
        size[has_new & (kept < known)] += 1
        first_ids = _ids_by_root(members, bucket, None)
        kept_ids = _ids_by_root(members, bucket, kept)
        for part in members.read(bucket):
            is_kept = part["node"] == kept[place(part)]
            counts = np.flatnonzero((part["node"] >= known) | (is_kept & has_new[place(part)]))
            own = place(part)[counts]
            clusters, kept_names = (
                ids.take(arrow_column(np.searchsorted(roots, part["root"][counts])))
                for roots, ids in (first_ids, kept_ids)
            )
            rows.add(
                "node",
                node=part["node"][counts],
                id=part["id"].take(arrow_column(counts)),
                cluster=clusters,
                size=size[own],
                kept=is_kept[counts],
                kept_id=kept_names,
                similarity=part["similarity"][counts],
            )
    return rows


def _ids_by_root(members: Exchange, bucket: int, wanted: Numbers | None) -> tuple[Numbers, Any]:
    """Return the first documents of clusters, sorted, and an id for each: its own, or that of its `wanted` document."""
    import numpy as np
    import pyarrow as pa

    from thresher.stages.dedup.files.arrow_columns import arrow_column, arrow_texts

    low = members.buckets.bounds(bucket)[0]
    roots, ids = [np.zeros(0, dtype=np.uint64)], []
    for part in members.read(bucket):
        target = part["root"] if wanted is None else wanted[(part["root"] - np.uint64(low)).astype(np.int64)]
        own = np.flatnonzero(part["node"] == target)
        roots.append(part["root"][own])
        ids.append(part["id"].take(arrow_column(own)))
    found = np.concatenate(roots)
    order = np.argsort(found)
    return found[order], (pa.concat_arrays(ids) if ids else arrow_texts([])).take(arrow_column(order))


def cluster_schema() -> Any:
    """Return the columns of a file of clusters."""
    import pyarrow as pa

    return pa.schema(
        [
            ("row", pa.uint64()),  # number of the document, counted over indexes and input of the deduplication
            ("id", pa.large_string()),
            ("cluster", pa.large_string()),  # id of the first document of the cluster
            ("size", pa.uint32()),  # number of documents in the cluster
            ("kept", pa.bool_()),  # True for the one that is kept
            ("kept_id", pa.large_string()),  # its id
            ("similarity", pa.float32()),  # with the first document of the cluster; null if it is not known
        ]
    )


def write_clusters(path: str, rows: Exchange, summary: ClusterSummary) -> None:
    """Write all documents that are in clusters, in the order of the input, and what the report says of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from thresher.stages.dedup.files.arrow_columns import arrow_table

    schema = cluster_schema()
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for bucket in range(rows.buckets.count):
            parts = [arrow_table(part) for part in rows.read(bucket)]
            if not parts:
                continue
            table = pa.concat_tables(parts).sort_by("node").rename_columns({"node": "row"})
            table = table.select(schema.names).cast(schema)
            summary.add(table)
            writer.write_table(table, row_group_size=_ROWS_PER_GROUP)
        writer.add_key_value_metadata(summary.metadata())


def file_facts(path: str, records: int) -> FileFacts:
    """Return the facts of a finished file, which is on disk then."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileFacts(os.path.getsize(path), records, digest)
