# SPDX-License-Identifier: Apache-2.0
"""Removal of parts of documents that occur earlier in the corpus.

Each document has any number of keys, numbered over the corpus in input order. A key that equals an earlier one is
marked. Three phases: documents and keys are written unit by unit; keys are brought together by ranges of their
hashes, and marked (`groups`); documents are read again with the marks of their keys, in the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.core.phases import PhaseFolder, PhaseReader
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.errors import UsageError
from thresher.stages.corpus.sorted_file import chunks_of
from thresher.stages.dedup.clustering.groups import EdgeWriter
from thresher.stages.dedup.clustering.removal import stem_of
from thresher.stages.dedup.files.documents import DocumentsWriter, UnitPlace, keep_places
from thresher.stages.dedup.files.frames import FrameWriter, open_frames
from thresher.stages.dedup.keyed_stage import KeyedStage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.source import FileFacts, ReadContext

    Marks = npt.NDArray[np.int64]
    """Numbers of keys, in order."""

_MARKS = "marks"
_MARKS_PER_FRAME = 64 * 1024


class MarkingStage(KeyedStage):
    """A stage that removes parts of documents, or whole documents, that occur earlier in the corpus."""

    def keys(self, batch: DocumentBatch) -> npt.NDArray[np.uint64]:
        """Return all keys of the documents of a batch, in order: rows of two hashes."""
        raise TypeError(f"{type(self).__name__} must define keys(batch)")

    def without(self, batch: DocumentBatch, marks: UnitMarks) -> tuple[DocumentBatch, int]:
        """Return a batch without what is marked, and how many parts were removed. `marks` has the next keys."""
        raise TypeError(f"{type(self).__name__} must define without(batch, marks)")

    def whole(self, name: str, value: Any, least: int) -> int:
        """Return an argument that is a whole number of at least `least`; refuse others."""
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UsageError(f"{type(self).__name__}.{name}: {value!r} is not a whole number of {least} or more")
        return value


class PartsWriter(DocumentsWriter):
    """Write the documents of a unit with the keys of their parts."""

    def prepare(self, batch: DocumentBatch) -> Any:
        """Return the keys of a batch."""
        return self.stage.keys(batch)

    def open_writer(self, local_path: str) -> Any:
        """Return the writer for one unit."""
        from thresher.stages.dedup.passages.marked_unit import PartsFile

        return PartsFile(local_path, self.take_prepared, self.buffer_bytes)


class MarkWriter(EdgeWriter):
    """Write the numbers of the keys that equal earlier ones."""

    def __init__(self, *, with_first: bool = False) -> None:
        """`with_first`: the first of equal keys is marked too."""
        self.with_first = with_first

    def open_writer(self, local_path: str) -> MarkFile:  # type: ignore[override]  # another kind of file
        """Return the writer for one unit."""
        return MarkFile(self, local_path)


class MarkFile:
    """Writes the marks of a range of hashes; a `RecordWriter`. It holds all of them: at most one for each key."""

    def __init__(self, sink: MarkWriter, path: str) -> None:
        self._sink = sink
        self._file = FrameWriter(path)
        self._found: list[npt.NDArray[np.uint64]] = []
        self._records = 0

    def write(self, batch: DocumentBatch) -> None:
        """Add marks."""
        edges, _ = self._sink.take_prepared(batch)
        self._found += [edges[:, 0], edges[:, 1]] if self._sink.with_first else [edges[:, 0]]
        self._records += len(batch)

    def close(self) -> FileFacts:
        """Write the marks in order."""
        import numpy as np

        marks = np.unique(np.concatenate(self._found))
        for start in range(0, len(marks), _MARKS_PER_FRAME):
            some = marks[start : start + _MARKS_PER_FRAME]
            self._file.add(_MARKS, np.diff(some, prepend=some[:1]).tobytes(), [int(some[0]), int(some[-1])])
        return self._file.close(self._records)

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


class UnitMarks:
    """The marks of the keys of one unit, taken in order."""

    def __init__(self, marks: Marks) -> None:
        """`marks`: numbers in the unit, sorted."""
        self._marks = marks
        self._next = 0

    def take(self, count: int) -> npt.NDArray[np.bool_]:
        """Return which of the next `count` keys are marked."""
        import numpy as np

        flags = np.zeros(count, dtype=np.bool_)
        flags[self.take_numbers(count)] = True
        return flags

    def take_numbers(self, count: int) -> Marks:
        """Return the marked ones of the next `count` keys, numbered from 0."""
        import numpy as np

        low, high = np.searchsorted(self._marks, (self._next, self._next + count))
        numbers = np.asarray(self._marks[low:high] - self._next)
        self._next += count
        return numbers


class MarkedReader(PhaseReader[DocumentBatch]):
    """Read the documents of a unit again, and remove what is marked."""

    reaches_back = 2
    columns_inside: ClassVar[tuple[int, ...]] = (0,)
    """The key that is marked of two equal keys inside a unit: 0 the later one, 1 the first."""

    def __init__(self, stage: MarkingStage) -> None:
        self.stage = stage

    def preloads(self) -> list[str]:
        """Return the kernels that find the parts of documents and rewrite texts."""
        return ["thresher.kernels.json.text", "thresher.kernels.edits.rewrite", *self.stage.kernels()]

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit for each unit of documents."""
        _, places = keep_places(done.earlier, done)
        marks = done.keep(_MARKS, msgspec.msgpack.encode([[file.path, file.nbytes] for file in done.files]))
        units = []
        for number, place in enumerate(places):
            first, count = self.numbers_of(number, place)
            pieces = [Piece(place.path, str(first), place.nbytes), Piece(marks, str(count), 0)]
            units.append(done.unit(number, pieces, place.nbytes, stem_of(place)))
        return units

    def numbers_of(self, number: int, place: UnitPlace) -> tuple[int, int]:
        """Return the number of the first key of the `number`-th unit of documents, and how many numbers it has."""
        return place.first, place.documents

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents in the order of the input."""
        consumed = 0
        marks = UnitMarks(self.marks_of(unit))
        for batch in self.documents_of(unit, context):
            consumed += batch.nbytes
            made, removed = self.stage.without(batch, marks)
            if removed:
                self.count("parts removed", removed)
            yield SourceItem(unit, made, consumed=min(consumed, unit.nbytes))

    def documents_of(self, unit: Unit, context: ReadContext) -> Iterator[DocumentBatch]:
        """Yield the documents of a unit."""
        from thresher.stages.dedup.files.unit_file import read_documents

        with open_frames(unit.pieces[0].path, unit.pieces[0].size, self.storage_options) as file:
            for block in read_documents(file):
                yield from chunks_of(block, context.chunk_bytes)

    def marks_of(self, unit: Unit) -> Marks:
        """Return the marks of a unit: those that its own file has, and those of all ranges of hashes."""
        import numpy as np

        from thresher.stages.dedup.files.unit_file import read_edges

        documents, listed = unit.pieces
        first, count = int(documents.relative), int(listed.relative)
        with open_frames(documents.path, documents.size, self.storage_options) as file:
            found = [
                edges[:, column].astype(np.int64) for edges in read_edges(file, 0) for column in self.columns_inside
            ]
        with open_read(listed.path, storage_options=self.storage_options) as opened:
            files = msgspec.msgpack.decode(opened.read())
        for path, nbytes in files:
            with open_frames(path, nbytes, self.storage_options) as file:
                for frame in file.frames(_MARKS):
                    low, high = frame.note
                    if low < first + count and high >= first:
                        steps = np.frombuffer(file.read(frame), dtype=np.uint64)
                        found.append(np.cumsum(steps).astype(np.int64) + (low - first))
        marks = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found]))
        return np.asarray(marks[(marks >= 0) & (marks < count)])
