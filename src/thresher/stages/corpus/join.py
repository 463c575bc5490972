# SPDX-License-Identifier: Apache-2.0
"""Join data sets by key: one document of all documents with the same value in a column."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.records.record_task import Gathered
from thresher.core.stage import CompositeStage, OrderedStage
from thresher.errors import UsageError
from thresher.stages.corpus.shuffle import BLOCKSIZE, ShuffleStage
from thresher.stages.corpus.statistics.bins import chart_powers

if TYPE_CHECKING:
    from thresher.core.records.record_ids import RecordIds
    from thresher.stages.corpus.place_ranges import Places

_INCOMPLETE = "incomplete"
_CHART = "joined documents by documents of a key, from"


class Join(CompositeStage[DocumentBatch, DocumentBatch]):
    """Make one document of all documents with the same key: the first one, with the fields of the others that it lacks.

    Read the data sets with one reader, the one whose fields win first. Documents without a key stay as they are.
    """

    def __init__(self, by: str, require: Sequence[str] = (), blocksize: int | str = BLOCKSIZE) -> None:
        """`by`: the column of the key.
        `require`: fields that a joined document must have, such as one of each data set; others are dropped.
        `blocksize`: approximate size of an output file.
        """
        if not isinstance(by, str) or not by:
            raise UsageError(f"Join.by: {by!r} is not the name of a column")
        self.by, self.require = by, [require] if isinstance(require, str) else list(require)
        self.blocksize = parse_size(blocksize, "Join.blocksize")

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the key."""
        return ["data"], [self.by]

    def decompose(self) -> list[Any]:
        """Return the stage that brings documents with the same key together, and the one that joins them."""
        together = ByKey(self.by, self.blocksize).with_(name=self.name)
        return [together, JoinNeighbours(self.by, self.require).with_(name=f"{self.name}-neighbours")]


class ByKey(ShuffleStage):
    """Bring documents with the same key together, in input order."""

    place_type = "S16"

    def __init__(self, by: str, blocksize: int) -> None:
        self.by, self.blocksize = by, blocksize

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the key."""
        return [], [self.by]

    def places(self, batch: DocumentBatch) -> Places:
        """Return a hash of each key."""
        import numpy as np

        keys = [repr(value).encode("utf-8", "surrogatepass") for value in batch.values(self.by)]
        return np.array([hashlib.blake2b(key, digest_size=16).digest() for key in keys], dtype=self.place_type)


@dataclass
class OpenDocument:
    """The document that further ones may be joined to."""

    key: Any = None
    """Its key."""
    fields: dict[str, bytes] | None = None
    """Its fields as JSON; `None` if there is no open document."""
    ids: RecordIds | None = None
    """Its id."""
    size: int = 0
    """Number of documents that it is made of."""


class JoinNeighbours(OrderedStage[DocumentBatch, DocumentBatch]):
    """Join neighbouring documents that have the same key."""

    def __init__(self, by: str, require: Sequence[str]) -> None:
        self.by, self.require = by, list(require)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column of the key."""
        return ["data"], [self.by]

    def begin_unit(self) -> OpenDocument:
        """Return no document."""
        return OpenDocument()

    def take(self, kept: OpenDocument, task: DocumentBatch) -> Gathered:
        """Return the documents that no further one can belong to; the last one stays open."""
        from thresher.core.documents.json_records import split_object
        from thresher.core.records.record_ids import RecordIds

        assert task.ids is not None, "documents of a run have ids"
        done: list[dict[str, bytes]] = []
        sizes: list[int] = []
        first_rows: list[int] = []
        carried, merged = kept.ids if kept.fields is not None else None, 0
        for row, (key, line) in enumerate(zip(task.values(self.by), task.json_lines(), strict=True)):
            fields = {name: bytes(value) for name, value in split_object(line).items()}
            if kept.fields is not None and key is not None and key == kept.key:
                for name, value in fields.items():
                    kept.fields.setdefault(name, value)
                merged += 1
                kept.size += 1
                continue
            if kept.fields is not None:
                done.append(kept.fields)
                sizes.append(kept.size)
            kept.key, kept.fields, kept.size = key, fields, 1
            first_rows.append(row)
        if first_rows:
            kept.ids = task.pick(first_rows[-1:]).ids
        parts = [carried] * (carried is not None and bool(first_rows)) + [task.pick(first_rows[:-1]).ids]
        ids = RecordIds.concat([part for part in parts if part is not None])
        chart_powers(self, _CHART, sizes)
        return self._joined(done, ids, merged)

    def end_unit(self, kept: OpenDocument) -> Gathered:
        """Return the document that is still open."""
        if kept.fields is None or kept.ids is None:
            return Gathered(DocumentBatch([]))
        chart_powers(self, _CHART, [kept.size])
        done, kept.fields = [kept.fields], None
        return self._joined(done, kept.ids, 0)

    def _joined(self, documents: Sequence[dict[str, bytes]], ids: RecordIds, merged: int) -> Gathered:
        from thresher.core.documents.json_records import encode_value
        from thresher.core.documents.records import RawLines

        lines = [
            b"{%b}" % b", ".join(b"%b: %b" % (encode_value(name), value) for name, value in fields.items())
            for fields in documents
        ]
        batch = DocumentBatch.from_lines(RawLines.join(lines), ids)
        missing = [row for row, fields in enumerate(documents) if not fields.keys() >= set(self.require)]
        return Gathered(batch.drop(missing, _INCOMPLETE) if missing else batch, merged)
