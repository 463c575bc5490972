# SPDX-License-Identifier: Apache-2.0
"""The first phase of a deduplication: documents and their keys, written unit by unit, and where to find them later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import StorageOptions, open_read
from thresher.core.phases import PhaseFile, PhaseFolder, PhaseWriter
from thresher.errors import refusals
from thresher.stages.dedup.files.frames import open_frames
from thresher.stages.text.columns.not_text import set_aside_without_text

if TYPE_CHECKING:
    from thresher.stages.dedup.files.frames import FrameReader
    from thresher.stages.dedup.files.unit_file import Keyed, UnitWriter
    from thresher.stages.dedup.keyed_stage import KeyedStage

_UNITS_FILE = "documents"


class DocumentsWriter(PhaseWriter[DocumentBatch]):
    """Write the documents of a unit with their keys."""

    def __init__(self, stage: KeyedStage) -> None:
        self.stage: Any = stage

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns that are looked at."""
        return ["data"], self.stage.columns()

    def check_before_run(self) -> list[str]:
        """Report an index that is not there, or was made otherwise."""
        return refusals(lambda: self.stage.known_places(self.storage_options))

    def preloads(self) -> list[str]:
        """Return the kernels that compute keys."""
        return ["pyarrow.parquet", "thresher.kernels.json.text", *self.stage.kernels()]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Prepare a batch; documents without a text are quarantined."""
        import numpy as np

        from thresher.stages.text.columns.text_column import text_column

        has_text = text_column(task, self.stage.text_field).has_text(np.arange(task.num_items))
        if not has_text.all():
            task = set_aside_without_text(task, np.flatnonzero(~has_text).tolist(), self.stage.text_field)
        super().process(task)
        return task

    def prepare(self, batch: DocumentBatch) -> Keyed:
        """Return the keys and ranks of the documents."""
        from thresher.stages.dedup.files.unit_file import Keyed

        hashes, lows = self.stage.keys(batch)
        return Keyed(hashes, lows, self.stage.keep.ranks(batch, self.stage.text_field))

    def open_writer(self, local_path: str) -> UnitWriter:
        """Return the writer for one unit."""
        from thresher.stages.dedup.files.unit_file import UnitWriter

        verifies = self.stage.verified is not None
        with_documents = verifies or not self.merges
        return UnitWriter(
            local_path, self.take_prepared, self.buffer_bytes, with_documents=with_documents, joins=not verifies
        )


class KeysWriter(DocumentsWriter):
    """Write the keys of the documents of a unit, and the documents only if pairs of them are verified."""

    merges = True


class UnitPlace(NamedTuple):
    """The file of one unit of documents."""

    path: str
    """Local path or URL."""
    nbytes: int
    """Size of the file."""
    first: int
    """Number of its first document, counted over all units in input order."""
    documents: int
    """Number of documents."""
    keys: int
    """Number of keys."""
    known: bool = False
    """True for documents of an index, which are not part of the run."""


class UnitFacts(NamedTuple):
    """Entry of a unit in the table of contents."""

    documents: int
    """Number of documents."""
    keys: int
    """Number of keys."""
    wide: bool
    """True if keys have 128 bits."""
    scheme: dict[str, Any] | None = None
    """Parameters that the keys of an index were made with."""


def facts_of(file: FrameReader) -> UnitFacts:
    """Return the facts about a unit."""
    return UnitFacts(*file.facts)


def keep_places(
    files: Sequence[PhaseFile], done: PhaseFolder, known: Sequence[UnitPlace] = ()
) -> tuple[str, list[UnitPlace]]:
    """Write the places of all units to a file beside those of a phase; return its path, and the places.

    `known`: documents of an index, which come before those of the run.
    """
    places = list(known)
    first = sum(place.documents for place in places)
    for file in files:
        with open_frames(file.path, file.nbytes, done.storage_options) as opened:
            facts = facts_of(opened)
        places.append(UnitPlace(file.path, file.nbytes, first, facts.documents, facts.keys))
        first += facts.documents
    return done.keep(_UNITS_FILE, msgspec.msgpack.encode(places)), places


def load_places(path: str, storage_options: StorageOptions) -> list[UnitPlace]:
    """Return the places that `keep_places` wrote."""
    with open_read(path, storage_options=storage_options) as opened:
        content: list[Any] = msgspec.msgpack.decode(opened.read())
    return [UnitPlace(*place) for place in content]
