# SPDX-License-Identifier: Apache-2.0
"""Base of stages that put all documents of a corpus in a new order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import msgspec

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseStage, PhaseWriter
from thresher.core.planning.inputs import input_columns
from thresher.core.source import SourceItem
from thresher.core.unit import Piece, Unit
from thresher.stages.io.missing_fields import count_missing, missing_in

if TYPE_CHECKING:
    from thresher.core.source import FileFacts, ReadContext
    from thresher.core.stage import StageNeeds
    from thresher.core.task import Task
    from thresher.stages.corpus.place_ranges import PlaceRange, Places
    from thresher.stages.corpus.sorted_file import BlockReader, SortedFileWriter

_INDEX_FILE = "index"
BLOCKSIZE = "32MB"
_MARKS_PER_UNIT = 64
_PIECE_BYTES = 64 * 1024
"""Least bytes that a range should read from a file; blocks have this size, so smaller reads are mostly wasted."""
_FEWEST_FILES = 16
_KEPT_BYTES = 2 * _FEWEST_FILES * _PIECE_BYTES
"""Blocks in which a range ends are kept for the next one if they have no more than this, as those of small ranges."""


class ShuffleStage(PhaseStage[DocumentBatch, DocumentBatch]):
    """Put all documents in the order of a value that `places` gives each of them, its place.

    Units of the next phase are ranges of places. Documents of the same place are always in the same unit, in input
    order.
    """

    blocksize: int = parse_size(BLOCKSIZE, "blocksize")
    """Approximate bytes of a unit of the next phase, and so of an output file."""
    place_type: ClassVar[str] = "<i8"
    """NumPy type of places: whole numbers, or byte strings of a fixed length such as `S16`."""

    def places(self, batch: DocumentBatch) -> Places:
        """Return the place of each document as an array."""
        raise TypeError(f"{type(self).__name__} must define places(batch)")

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of sorted files, and the reader of ranges of them."""
        return ShuffleWriter(self), ShuffleReader(self)


class ShuffleWriter(PhaseWriter[DocumentBatch]):
    """Write the documents of a unit in their new order."""

    def __init__(self, stage: ShuffleStage) -> None:
        self.stage = stage
        self.most_files = max(_FEWEST_FILES, stage.blocksize // _PIECE_BYTES)

    def join_parts(self, part_paths: list[str], local_path: str, schema: str = "") -> FileFacts:
        """Make one sorted file of those of several units."""
        from thresher.stages.corpus.sorted_file import join_files

        return join_files(part_paths, local_path, self.stage.place_type, self.buffer_bytes)

    def inputs(self) -> StageNeeds | Mapping[type[Task], StageNeeds]:
        """Return what the stage needs."""
        return self.stage.inputs()

    def prepare(self, batch: DocumentBatch) -> Places:
        """Return the places of the documents."""
        import numpy as np

        places = np.asarray(self.stage.places(batch))
        if places.shape != (len(batch),):
            raise ValueError(f"places() returned an array of shape {places.shape} for {len(batch)} documents")
        return places.astype(self.stage.place_type)

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Prepare a batch, and count columns that no document has."""
        missing = [name for name in input_columns(self) if _lacks(task, name)]
        super().process(task)
        if missing:
            count_missing(self, missing, task.columns, len(task))
        return task

    def open_writer(self, local_path: str) -> SortedFileWriter:
        """Return the writer for one unit."""
        from thresher.stages.corpus.sorted_file import SortedFileWriter

        mark_bytes = max(1, self.stage.blocksize // _MARKS_PER_UNIT)
        return SortedFileWriter(local_path, self.take_prepared, self.stage.place_type, (self.buffer_bytes, mark_bytes))


def _lacks(batch: DocumentBatch, name: str) -> bool:
    """Return True if no document of a batch has a column."""
    raw = batch.lines_with(name)
    if raw is not None:
        return bool(missing_in(raw.lines(), [name]))
    return batch.raw_lines is None and name not in batch.columns


class _Range(msgspec.Struct, array_like=True):
    """A range of places as part of a unit."""

    start: Any
    end: Any
    note: Any = None
    """Further facts that the stage needs when it reads the range."""


class ShuffleReader(PhaseReader[DocumentBatch]):
    """Read ranges of places from all files of the phase before."""

    keeps_all = True
    _loaded: tuple[str, tuple[list[str], Any]] | None = None
    """The index that was read last, with its path."""
    _reader: BlockReader | None = None
    """What has read the last range of that index, if it keeps little."""

    def __init__(self, stage: ShuffleStage) -> None:
        self.stage = stage

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return ranges of places of about `blocksize`; they depend on the documents alone."""
        from thresher.stages.corpus.place_ranges import ranges_of
        from thresher.stages.corpus.sorted_file import ROW_BYTES, merge_indexes, read_index

        indexes = []
        for number, file in enumerate(done.files):
            with open_read(file.path, storage_options=done.storage_options) as opened:
                indexes.append(read_index(opened, file.nbytes, number, self.stage.place_type))
        index = merge_indexes(indexes, self.stage.place_type)
        note = self.note(index.blocks, done)
        paths = msgspec.msgpack.encode([file.path for file in done.files])
        path = done.keep(_INDEX_FILE, len(paths).to_bytes(8, "little") + paths + index.blocks.tobytes())
        stem = type(self.stage).__name__.lower()
        ranges = ranges_of(index.marks, self.stage.blocksize)
        marked = sum(nbytes for _, nbytes in ranges)
        # Marks count documents without a line as equally large; then the blocks say how much there is in all.
        has_lines = marked != ROW_BYTES * int(index.blocks["records"].sum())
        scale = 1.0 if has_lines or not marked else int(index.blocks["nbytes"].sum()) / marked
        return [
            done.unit(number, [Piece(path, _range_text(found, note), nbytes)], int(scale * nbytes), stem)
            for number, (found, nbytes) in enumerate(ranges)
        ]

    def note(self, blocks: Any, done: PhaseFolder) -> Any:
        """Return what each unit has to know of all documents, as plain data; see `note_of`."""

    @staticmethod
    def note_of(unit: Unit) -> Any:
        """Return what `note` returned when the unit was listed."""
        return msgspec.json.decode(unit.pieces[0].relative, type=_Range).note

    @staticmethod
    def range_of(unit: Unit) -> PlaceRange:
        """Return the places of a unit."""
        from thresher.stages.corpus.place_ranges import PlaceRange

        found = msgspec.json.decode(unit.pieces[0].relative, type=_Range)
        return PlaceRange(from_json(found.start), from_json(found.end))

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a range in order."""
        from thresher.stages.corpus.sorted_file import chunks_of, read_range

        paths, blocks = self._index(unit.pieces[0].path)
        reader, self._reader = self._reader or self._block_reader(paths), None
        consumed = 0
        for batch in read_range(self.range_of(unit), blocks, reader, self.buffer_bytes):
            for some in chunks_of(batch, context.chunk_bytes):
                consumed += some.nbytes
                yield SourceItem(unit, some, consumed=min(consumed, unit.nbytes))
        if reader.kept_bytes <= _KEPT_BYTES:
            self._reader = reader

    def _block_reader(self, paths: list[str]) -> BlockReader:
        """Return a reader of the blocks of some files."""
        from thresher.stages.corpus.sorted_file import BlockReader

        def open_file(number: int) -> BinaryIO:
            return open_read(paths[number], storage_options=self.storage_options)

        return BlockReader(open_file, self.stage.place_type)

    def _index(self, path: str) -> tuple[list[str], Any]:
        """Return the paths of the files and the blocks in them, read once per worker."""
        import numpy as np

        from thresher.stages.corpus.sorted_file import Layout

        if self._loaded is None or self._loaded[0] != path:
            with open_read(path, storage_options=self.storage_options) as opened:
                content = opened.read()
            size = 8 + int.from_bytes(content[:8], "little")
            blocks = np.frombuffer(content[size:], dtype=Layout.of(self.stage.place_type).blocks)
            self._loaded, self._reader = (path, (msgspec.msgpack.decode(content[8:size]), blocks)), None
        return self._loaded[1]


def _range_text(found: Any, note: Any) -> str:
    """Return a range of places as JSON."""
    start, end = found
    return msgspec.json.encode(_Range(as_json(start), as_json(end), note)).decode()


def as_json(place: Any) -> Any:
    """Return a place as a value of JSON."""
    if place is None:
        return None
    return place.decode("latin-1") if isinstance(place, bytes) else int(place)


def from_json(place: Any) -> Any:
    """Return the place that `as_json` made a value of JSON of."""
    return place.encode("latin-1") if isinstance(place, str) else place
