# SPDX-License-Identifier: Apache-2.0
"""Reader of folders that hold both JSON lines and Parquet: each file is read by the reader of its format."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from thresher.core.unit import Piece, Unit
from thresher.stages.io.jsonl.reader import JsonlReader, jsonl_stretches
from thresher.stages.io.listing import AcceptedFiles, Splitting, units_of
from thresher.stages.io.parquet.reader import ParquetReader

if TYPE_CHECKING:
    from thresher.core.documents.batch import DocumentBatch
    from thresher.core.files.filesystem import FileInfo
    from thresher.core.source import ReadContext, SourceItem
    from thresher.core.task import Task
    from thresher.stages.io.parquet.run_schema import SourceColumns

_LINES = JsonlReader.accepted


class DocumentReader(ParquetReader, JsonlReader):
    """Read JSON lines and Parquet, mixed as they come; the name of a file says which it is.

    A unit holds files of one format, so small files are grouped, and counted by `files_per_partition`, only up to the
    next file of the other format.
    """

    accepted: ClassVar[AcceptedFiles] = AcceptedFiles(
        "DocumentReader",
        (
            *ParquetReader.accepted.endings,
            *(name + packed for packed in ("", *_LINES.compressed) for name in _LINES.endings),
        ),
    )
    takes_standard_input = False
    _has_lines = False
    """True if a file of JSON lines was listed."""

    def needs_arrow(self) -> bool:
        """Return True: rows are tables."""
        return True

    def list_units(self) -> Iterator[Unit]:
        """Yield all units in input order, while listing continues."""
        from thresher.stages.io.parquet.run_schema import SourceColumns

        self._listed = SourceColumns(self.fields if self.columns_read is None else self.columns_read)
        units = self._units(self._listed)
        return units if self.limit is None else self._limited(units, self.limit)

    def _units(self, listed: SourceColumns) -> Iterator[Unit]:
        from thresher.stages.io.parquet.units import parquet_stretches

        splitting = Splitting(self.blocksize, self.files_per_partition, storage_options=self.storage_options)
        for is_parquet, run in itertools.groupby(enumerate(self.files()), lambda file: _is_parquet(file[1])):
            if is_parquet:
                yield from units_of(parquet_stretches(run, splitting, listed.note), splitting)
            else:
                listed.is_sample = self._has_lines = True
                yield from units_of(jsonl_stretches(run, splitting), splitting)

    def count_records(self, unit: Unit) -> int:
        """Return the number of records of a unit, up to its limit; one that cannot be read counts."""
        if not _is_parquet(unit.pieces[0]):
            return super().count_records(unit)
        from thresher.stages.io.parquet.file import count_rows

        rows = sum(count_rows(piece, self.storage_options) for piece in unit.pieces)
        return rows if unit.limit is None else min(rows, unit.limit)

    def listed_schema(self) -> SourceColumns | None:
        """Return the columns of all Parquet files, and the fields of a sample of the others, in the order of the input;
        `None` with a limit, which may end before the sample does."""
        if self._listed is None or not self._has_lines:
            return self._listed
        if self.limit is not None:
            return None
        from thresher.stages.io.jsonl.sample import note_records, sampled_units
        from thresher.stages.io.parquet.run_schema import SourceColumns

        files = list(self.files())
        units = sampled_units(self, [file for file in files if not _is_parquet(file)])
        if _is_parquet(files[0]):
            note_records(self, units, self._listed)
            return self._listed
        found = SourceColumns(self.fields, is_sample=True)
        note_records(self, units, found)
        found.note(self._listed.schema())
        return found

    def known_columns(self) -> list[str] | None:
        """Return the `fields`, if given: there are no other columns."""
        return self.fields

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield what the reader of the unit's format yields."""
        reader = ParquetReader if _is_parquet(unit.pieces[0]) else JsonlReader
        return reader.read(self, unit, context)

    def parse(self, task: Task) -> DocumentBatch:
        """Return the records of a chunk of lines; rows need no parsing."""
        return JsonlReader.parse(self, task)


def _is_parquet(file: FileInfo | Piece) -> bool:
    return ParquetReader.accepted.accepts(file.relative)
