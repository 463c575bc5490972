# SPDX-License-Identifier: Apache-2.0
"""The later phases of the removal of repeated stretches. A stretch is numbered by the unit of documents that it is in
(the upper 32 bits) and where it starts in the joined texts of the unit (the lower ones)."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.phases import PhaseFolder, PhaseWriter
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.errors import RunFailedError
from thresher.stages.dedup.clustering.groups import KeyGroupReader, edge_batch
from thresher.stages.dedup.files.documents import UnitPlace, facts_of, keep_places
from thresher.stages.dedup.files.frames import open_frames
from thresher.stages.dedup.passages.marks import MarkedReader, UnitMarks

if TYPE_CHECKING:
    from thresher.core.source import ReadContext
    from thresher.kernels.counts.text_counts import Texts
    from thresher.stages.dedup.files.keys import Keys
    from thresher.stages.dedup.substring import SubstringDeduplication

_POSITION_BITS = 32
_AT_A_TIME = 256 * 1024
"""Stretches that are hashed together."""
_INSIDE = "inside"
"""Stands for a range of hashes where a unit reads the edges inside of one file."""
_HIGH, _LOW, _NUMBER = "high", "low", "number"
"""Columns of a batch of keys."""
_UNIT = "unit"
"""Entry in its metadata: the number of the unit of documents."""


class StretchReader(MarkedReader):
    """Hash the stretches of a unit whose anchors occur more than once."""

    intermediate = True
    columns_inside: ClassVar[tuple[int, ...]] = (0, 1)
    stage: Any

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield keys of stretches."""
        marks = UnitMarks(self.marks_of(unit))
        before = consumed = 0
        for batch in self.documents_of(unit, context):
            consumed += batch.nbytes
            texts = self.stage.texts(batch)
            for keys in self._keys(texts, marks, before):
                yield SourceItem(unit, key_batch(keys, unit), consumed=min(consumed, unit.nbytes))
            before += int((texts.ends - texts.starts).sum())
            if before >> _POSITION_BITS:
                raise RunFailedError(
                    f"{self.name}: a unit has {before:,} bytes of text, and at most 4 GiB are possible; use a smaller "
                    "blocksize of the reader"
                )

    def _keys(self, texts: Texts, marks: UnitMarks, before: int) -> Iterator[Keys]:
        """Yield keys of the stretches of some texts, a few at a time; `before`: bytes of texts before them."""
        import numpy as np

        from thresher.kernels.dedup.substrings import END, FIRST, ROW, find_anchors, hash_stretches
        from thresher.stages.dedup.files.keys import Keys

        stage: SubstringDeduplication = self.stage
        found = find_anchors(texts, stage.min_length, stage.gram).found
        found = found[marks.take(len(found))]
        if not len(found):
            return
        lengths = texts.ends - texts.starts
        shift = (np.cumsum(lengths) - lengths - texts.starts)[found[:, ROW]] + before
        sizes = found[:, END] - found[:, FIRST]
        groups = (np.cumsum(sizes) - 1) // _AT_A_TIME
        edges = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), len(found)]
        for start, end in itertools.pairwise(edges):
            part = slice(start, end)
            hashes = hash_stretches(texts.data, np.ascontiguousarray(found[part, FIRST : END + 1]), stage.min_length)
            begins = np.repeat(found[part, FIRST] + shift[part] - (np.cumsum(sizes[part]) - sizes[part]), sizes[part])
            yield Keys(hashes[:, 0] << np.uint64(3), hashes[:, 1], (begins + np.arange(len(begins))).astype(np.uint64))


def key_batch(keys: Keys, unit: Unit) -> DocumentBatch:
    """Return keys as records."""
    import pyarrow as pa

    batch = DocumentBatch(pa.table({_HIGH: keys.hashes, _LOW: keys.lows, _NUMBER: keys.documents}))
    batch.name_records((f"{unit.id}:r", ""))
    batch.metadata[_UNIT] = unit.order[0]
    return batch


class StretchWriter(PhaseWriter[DocumentBatch]):
    """Write the keys of stretches."""

    intermediate = True

    def prepare(self, batch: DocumentBatch) -> tuple[int, Keys]:
        """Return the number of the unit, and its keys."""
        from thresher.stages.dedup.files.keys import Keys

        table = batch.to_pyarrow()
        return batch.metadata[_UNIT], Keys(*(table[name].to_numpy() for name in (_HIGH, _LOW, _NUMBER)))

    def open_writer(self, local_path: str) -> Any:
        """Return the writer for one unit."""
        from thresher.stages.dedup.passages.marked_unit import KeysFile

        return KeysFile(local_path, self.take_prepared, self.buffer_bytes)


class StretchGroups(KeyGroupReader):
    """Find equal stretches in a range of hashes."""

    def places(self, done: PhaseFolder) -> tuple[str, list[UnitPlace]]:
        """Return the files of keys, with the number of the first stretch of each unit of documents."""
        _, places = keep_places(done.files, done)
        numbered = [place._replace(first=place.documents << _POSITION_BITS) for place in places]
        return done.keep("stretches", msgspec.msgpack.encode(numbered)), numbered

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return the files of keys, for the edges inside of them, and ranges of hashes."""
        ranges = super().list_phase(done)
        files = [Piece(file.path, _INSIDE, file.nbytes) for file in done.files]
        return [
            *ranges,
            *(done.unit(len(ranges) + n, [file], file.size, "inside") for n, file in enumerate(files)),
        ]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield edges between equal stretches."""
        from thresher.stages.dedup.files.unit_file import read_edges

        (piece,) = unit.pieces
        if piece.relative != _INSIDE:
            yield from super().read(unit, context)
            return
        with open_frames(piece.path, piece.size, self.storage_options) as file:
            first = facts_of(file).documents << _POSITION_BITS
            for edges in read_edges(file, first):
                yield SourceItem(unit, edge_batch(edges, unit))


class CutReader(MarkedReader):
    """Read the documents of a unit again, and cut the stretches that are marked."""

    reaches_back = 4
    columns_inside: ClassVar[tuple[int, ...]] = ()

    def numbers_of(self, number: int, place: UnitPlace) -> tuple[int, int]:
        """Return the numbers of all stretches that the unit may have."""
        return number << _POSITION_BITS, 1 << _POSITION_BITS
