# SPDX-License-Identifier: Apache-2.0
"""Base of stages that make one result of all records of a corpus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.files.filesystem import open_read
from thresher.core.phases import PhaseFolder, PhaseReader, PhaseStage, PhaseWriter
from thresher.core.source import FileFacts, SourceItem
from thresher.core.tally import hand_over_counts
from thresher.core.unit import Piece, Unit
from thresher.errors import RunFailedError
from thresher.stages.io.file_writer import LocalFile

if TYPE_CHECKING:
    from thresher.core.records.record_task import RecordTask
    from thresher.core.source import ReadContext
    from thresher.core.stage import StageNeeds
    from thresher.core.task import Task


class ReduceStage(PhaseStage[Any, DocumentBatch]):
    """Make new documents of all records that reach the stage.

    Each batch gets a state of its own, `accumulate(initial(), batch)`. `merge` makes one state of two, and `finish`
    the documents that go on. The result must not depend on how records are spread over batches and units.

    A state is plain data (numbers, texts, bytes, lists, dicts), or whatever `dump` and `load` turn into bytes and back.
    Records on which `accumulate` raises are quarantined.
    """

    def initial(self) -> Any:
        """Return a state without any record."""
        raise TypeError(f"{type(self).__name__} must define initial()")

    def accumulate(self, state: Any, batch: Any) -> Any:
        """Return a state with the records of a batch added; the given one may be changed."""
        raise TypeError(f"{type(self).__name__} must define accumulate(state, batch)")

    def merge(self, state: Any, other: Any) -> Any:
        """Return two states as one; both may be changed."""
        raise TypeError(f"{type(self).__name__} must define merge(state, other)")

    def finish(self, state: Any) -> DocumentBatch | Iterable[DocumentBatch]:
        """Return the documents that go on: a batch, or several."""
        raise TypeError(f"{type(self).__name__} must define finish(state)")

    def dump(self, state: Any) -> bytes:
        """Return a state as bytes."""
        return msgspec.msgpack.encode(state)

    def load(self, content: bytes) -> Any:
        """Return the state that `dump` made bytes of."""
        return msgspec.msgpack.decode(content, strict=False)

    def phase_ends(self) -> tuple[PhaseWriter[Any], PhaseReader[Any]]:
        """Return the writer of states, and the reader that merges them."""
        return ReduceWriter(self), ReduceReader(self)


class ReduceWriter(PhaseWriter[Any]):
    """Write the state of each unit."""

    merges = True
    most_files = 16

    def __init__(self, reduce: ReduceStage) -> None:
        self.reduce = reduce

    def inputs(self) -> StageNeeds | Mapping[type[Task], StageNeeds]:
        """Return what the stage needs."""
        return self.reduce.inputs()

    def prepare(self, batch: RecordTask) -> Any:
        """Return the state of a batch."""
        state = self.reduce.accumulate(self.reduce.initial(), batch)
        hand_over_counts(self.reduce, self)
        return state

    def open_writer(self, local_path: str) -> StateWriter:
        """Return the writer for one unit."""
        return StateWriter(self, local_path)

    def join_parts(self, part_paths: list[str], local_path: str, schema: str = "") -> FileFacts:
        """Merge the states of several units, which are read one after the other."""
        writer = StateWriter(self, local_path)
        for path in part_paths:
            with open(path, "rb") as opened:
                writer.merge(self.reduce.load(opened.read()))
        return writer.close()


class StateWriter:
    """Writes the state of one unit; a `RecordWriter`."""

    def __init__(self, sink: ReduceWriter, path: str) -> None:
        self._sink = sink
        self._reduce = sink.reduce
        self._file = LocalFile(path)
        self._state = sink.reduce.initial()
        self._records = 0

    def write(self, batch: RecordTask) -> None:
        """Add records to the state."""
        self.merge(self._sink.take_prepared(batch), batch.num_items)

    def merge(self, state: Any, records: int = 1) -> None:
        """Add a state."""
        self._state = self._reduce.merge(self._state, state)
        self._records += records

    def close(self) -> FileFacts:
        """Write the state."""
        try:
            content = self._reduce.dump(self._state)
        except (TypeError, OverflowError) as error:
            name = type(self._reduce).__name__
            raise RunFailedError(
                f"{name}: its state cannot be stored ({error}); define dump(state) and load(content)"
            ) from error
        self._file.append(content)
        return self._file.close(self._records)

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


class ReduceReader(PhaseReader[DocumentBatch]):
    """Merge the states that are left, one after the other, and give what `finish` makes of the result."""

    creates = True

    def __init__(self, reduce: ReduceStage) -> None:
        self.reduce = reduce

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return what the stage adds."""
        return self.reduce.outputs()

    def list_phase(self, done: PhaseFolder) -> list[Unit]:
        """Return one unit with all files."""
        pieces = [Piece(file.path, f"state {number}", file.nbytes) for number, file in enumerate(done.files)]
        return [done.unit(0, pieces, sum(file.nbytes for file in done.files), type(self.reduce).__name__.lower())]

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the result."""
        state = self.reduce.initial()
        for piece in unit.pieces:
            with open_read(piece.path, storage_options=self.storage_options) as opened:
                state = self.reduce.merge(state, self.reduce.load(opened.read()))
        made = self.reduce.finish(state)
        row = 0
        for batch in [made] if isinstance(made, DocumentBatch) else made:
            hand_over_counts(self.reduce, self)
            if batch.ids is None:
                batch.name_records((f"{unit.id.rsplit('-', 1)[0]}:r", ""), row)
            row += len(batch)
            yield SourceItem(unit, batch)
