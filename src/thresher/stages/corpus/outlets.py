# SPDX-License-Identifier: Apache-2.0
"""The files between a pipeline and its outlets: written unit by unit, read when all units are committed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.core.phases import PhaseFile
from thresher.core.source import SourceItem
from thresher.core.stage import SourceStage
from thresher.core.unit import Piece, Unit, file_stem, unit_id

if TYPE_CHECKING:
    from thresher.core.source import ReadContext
    from thresher.stages.corpus.place_ranges import Places
    from thresher.stages.corpus.sorted_file import SortedFileWriter

PLACE_TYPE = "S16"
BLOCKSIZE = 32 * 10**6
BUFFER_BYTES = 32 * 2**20


class OutletFiles:
    """Opens the files for the documents that units send to an outlet."""

    def __init__(self, buffer_bytes: int = BUFFER_BYTES) -> None:
        """`buffer_bytes`: bytes of documents that may be held per unit."""
        self.buffer_bytes = buffer_bytes

    def open_writer(self, local_path: str) -> SortedFileWriter:
        """Return the writer for the documents of one unit, in whatever order they come."""
        from thresher.stages.corpus.sorted_file import SortedFileWriter

        return SortedFileWriter(local_path, input_places, PLACE_TYPE, (self.buffer_bytes, BLOCKSIZE))


def input_places(batch: DocumentBatch) -> Places:
    """Return the places of documents in the order of the input, whichever stages send them: first by a hash of the
    file, because few units have more than one, then by the position in it."""
    import numpy as np

    from thresher.stages.corpus.hashing import hash_texts

    ids = batch.ids
    assert ids is not None, "documents of a run have ids"
    of_sources = hash_texts([prefix for prefix, _ in ids.sources])
    both = np.stack([of_sources[ids.which], ids.positions], axis=1).astype(">i8")
    return np.ascontiguousarray(both).view(PLACE_TYPE).reshape(len(batch))


class OutletReader(SourceStage[DocumentBatch]):
    """Read what the units of a run have sent to an outlet, in the order of the input."""

    lists_schema: ClassVar[bool] = True
    _listed: Any = None
    """The columns of the input of the run."""

    def __init__(
        self, outlet: str, files: Sequence[PhaseFile] = (), storage_options: dict[str, Any] | None = None
    ) -> None:
        """`outlet`: name of the outlet.
        `files`: the committed files, in the order of their units.
        `storage_options`: options for opening URLs.
        """
        self.outlet = outlet
        self.files = tuple(files)
        self.storage_options = storage_options
        self.buffer_bytes = BUFFER_BYTES

    def with_schema(self, columns: Any) -> OutletReader:
        """Return a reader that knows the columns and types of the input of the run, as its reader lists them."""
        changed = self.with_()
        changed._listed = columns
        return changed

    def listed_schema(self) -> Any:
        """Return the columns and types of the input of the run; `None` if they are not known."""
        return self._listed

    def list_units(self) -> Iterator[Unit]:
        """Yield packs of consecutive files; which files are together depends on their sizes alone."""
        pack: list[PhaseFile] = []
        number = 0
        for file in self.files:
            if pack and sum(one.nbytes for one in pack) + file.nbytes > BLOCKSIZE:
                yield self._unit(number, pack)
                number, pack = number + 1, []
            pack.append(file)
        if pack:
            yield self._unit(number, pack)

    def _unit(self, number: int, pack: Sequence[PhaseFile]) -> Unit:
        pieces = tuple(Piece(path, path.rsplit("/", 1)[-1], nbytes) for path, nbytes in pack)
        name = f"outlet {self.outlet}"
        return Unit(unit_id(name, number), (number, 0), pieces, file_stem(self.outlet), sum(f.nbytes for f in pack))

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the documents of a pack of files."""
        from thresher.stages.corpus.place_ranges import PlaceRange
        from thresher.stages.corpus.sorted_file import BlockReader, chunks_of, read_index, read_range

        consumed = 0
        for piece in unit.pieces:

            def open_file(number: int, path: str = piece.path) -> BinaryIO:
                return open_read(path, storage_options=self.storage_options)

            with contextlib.closing(open_file(0)) as opened:
                blocks = read_index(opened, piece.size, 0, PLACE_TYPE).blocks
            reader = BlockReader(open_file, PLACE_TYPE)
            for batch in read_range(PlaceRange(None, None), blocks, reader, self.buffer_bytes):
                for some in chunks_of(batch, context.chunk_bytes):
                    yield SourceItem(unit, some, consumed=consumed)
            consumed += piece.size
            yield SourceItem(unit, None, consumed=consumed)
