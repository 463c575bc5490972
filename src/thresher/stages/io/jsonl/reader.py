# SPDX-License-Identifier: Apache-2.0
"""Reader of JSON lines, plain or compressed, from local files and URLs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import msgspec

from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.task import RawChunk, Task
from thresher.core.unit import Unit
from thresher.stages.io.file_reader import FileReader
from thresher.stages.io.jsonl.units import list_jsonl_units
from thresher.stages.io.listing import AcceptedFiles, Splitting

if TYPE_CHECKING:
    from thresher.core.source import ReadContext, SourceItem
    from thresher.stages.io.jsonl.piece_reader import PieceCut
    from thresher.stages.io.parquet.run_schema import SourceColumns


class JsonlReader(FileReader):
    """Read JSON lines (.jsonl, .json, .ndjson), plain or packed as .gz, .zst, .bz2 or .xz; `-` is standard input."""

    accepted: ClassVar[AcceptedFiles] = AcceptedFiles(
        "JsonlReader", (".jsonl", ".json", ".ndjson"), (".gz", ".gzip", ".zst", ".bz2", ".xz")
    )

    takes_standard_input = True

    def needs_arrow(self) -> bool:
        """Return False: records stay lines."""
        return False

    def list_units(self) -> Iterator[Unit]:
        """Yield all units in input order, while listing continues."""
        if self.reads_standard_input:
            from thresher.stages.io.jsonl.standard_input import standard_input_unit

            stream = msgspec.structs.replace(standard_input_unit(), limit=self.limit)
            return iter([stream])
        splitting = Splitting(self.blocksize, self.files_per_partition, storage_options=self.storage_options)
        units = list_jsonl_units(self.files(), splitting)
        return units if self.limit is None else self._limited(units, self.limit)

    def _limited(self, units: Iterator[Unit], limit: int) -> Iterator[Unit]:
        """Yield units up to the first `limit` records. The last unit of the input need not be counted."""
        from thresher.stages.io.jsonl.piece_reader import count_records

        unit = next(units, None)
        while unit is not None and limit > 0:
            limited = msgspec.structs.replace(unit, limit=limit)
            unit = next(units, None)
            count = count_records(limited, self.storage_options) if unit is not None else 0
            limit -= count
            yield limited if limit <= 0 or unit is None else msgspec.structs.replace(limited, limit=None)

    def listed_schema(self) -> SourceColumns | None:
        """Return the fields of a sample of the files; `None` for standard input, and with a limit, which may end before
        the sample does."""
        if self.reads_standard_input or self.limit is not None:
            return None
        from thresher.stages.io.jsonl.sample import sample_columns

        return sample_columns(self)

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield chunks of whole lines; a stream is split into units every `blocksize` unpacked bytes."""
        from thresher.core.source import SourceItem
        from thresher.stages.io.jsonl.piece_reader import cut_unit

        if unit.stream:
            yield from self._read_stream(unit, context)
        elif len(unit.pieces) > 1:
            yield from self._read_pack(unit, context)
        else:
            for found in cut_unit(unit, context, storage_options=self.storage_options):
                yield SourceItem(unit, _task_of(found, context))

    def _read_stream(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        from thresher.core.source import SourceItem
        from thresher.stages.io.jsonl.piece_reader import cut_unit
        from thresher.stages.io.jsonl.standard_input import BLOCK_BYTES

        current: Unit | None = None
        size = min(self.blocksize, BLOCK_BYTES) if self.reads_standard_input else self.blocksize
        for found in cut_unit(unit, context, size, self.storage_options):
            block = unit.block(found.cut.offset // size)
            if current is not None and block.id != current.id:
                yield SourceItem(current, None, closes=True)
                current = None
            if block.id not in context.done:
                current = block
                yield SourceItem(block, _task_of(found, context), consumed=found.consumed)
        if current is not None:
            yield SourceItem(current, None, closes=True)

    def _read_pack(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Read small files, and parse them here, so that many of them form one batch."""
        from thresher.core.source import SourceItem
        from thresher.stages.io.jsonl.piece_reader import cut_unit

        batches: list[DocumentBatch] = []
        gathered = 0
        for found in cut_unit(unit, context, storage_options=self.storage_options):
            batch = self.parse(_task_of(found, context))
            if batches and gathered + batch.nbytes > context.chunk_bytes:
                yield SourceItem(unit, concat_batches(batches))
                batches, gathered = [], 0
            batches.append(batch)
            gathered += batch.nbytes
        if batches:
            yield SourceItem(unit, concat_batches(batches))

    def parse(self, task: Task) -> DocumentBatch:
        """Return the records of a chunk; lines that are not JSON objects in valid UTF-8 are set aside."""
        if isinstance(task, DocumentBatch):
            return task
        from thresher.stages.io.jsonl.json_lines import parse_chunk

        assert isinstance(task, RawChunk)
        return parse_chunk(task, self.fields, self)


def _task_of(found: PieceCut, context: ReadContext) -> Task:
    """Return a chunk to parse, or a batch with a failure."""
    from thresher.stages.io.jsonl.json_lines import failed_batch, failed_lines
    from thresher.stages.io.jsonl.lines import LineChunk, Lines, TooLarge

    source, cut = found.piece.source, found.cut
    if isinstance(cut, Lines):
        return LineChunk(cut.buffer, cut.offset, source)
    if isinstance(cut, TooLarge):
        message = (
            f"the line has {cut.length} bytes, more than the {context.max_record_bytes} that a record may have; "
            "give the run more memory, or leave the record out"
        )
        return failed_batch(failed_lines("record-too-large", source, [(cut.offset, message, cut.head)]))
    return failed_batch(failed_lines(cut.error, source, [(cut.offset, cut.message, cut.head)], counts=[None]))
