# SPDX-License-Identifier: Apache-2.0
"""Reads Parquet from local files and URLs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, ClassVar

from thresher.core.batch import DocumentBatch
from thresher.core.task import Task
from thresher.core.unit import Piece, Unit, file12
from thresher.errors import InputError
from thresher.stages.io.file_reader import FileReader
from thresher.stages.io.listing import Wanted

if TYPE_CHECKING:
    from thresher.core.source import ReadContext, SourceItem
    from thresher.stages.io.parquet_file import LostRows, ReadRows


_FEW_FILES = 8


class ParquetReader(FileReader):
    """Reads Parquet (.parquet, .pq)."""

    wanted: ClassVar[Wanted] = Wanted("ParquetReader", (".parquet", ".pq"))
    columns_read: list[str] | None = None
    """What the plan needs of the `fields`; `None`: all of them."""

    def list_units(self) -> Iterator[Unit]:
        """All units in input order, found while the caller goes on; only the footers of files are read."""
        from thresher.stages.io.parquet_units import ParquetSplitting, list_parquet_units

        splitting = ParquetSplitting(self.blocksize, self.files_per_partition, self.limit, self.storage_options)
        return list_parquet_units(self.files(), splitting)

    def known_columns(self) -> list[str] | None:
        """The columns of all files, where the files are few; the footers of many are not worth the wait."""
        from thresher.stages.io.parquet_file import column_names

        try:
            files = list(islice(self.files(), _FEW_FILES + 1))
            names = column_names(files, self.storage_options) if len(files) <= _FEW_FILES else None
        except InputError:
            names = None  # the listing will say what is missing
        if names is None or self.fields is None:
            return self.fields if names is None else names
        return [name for name in names if name in self.fields]

    def reading_only(self, columns: list[str]) -> ParquetReader:
        """Columns lie apart in a file: those that nobody needs are not read."""
        less = copy.copy(self)
        less.columns_read = [name for name in columns if self.fields is None or name in self.fields]
        return less

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Batches of rows, each with its number in the file as id."""
        from thresher.core.source import SourceItem

        left = unit.limit
        for piece in unit.pieces:
            for found in self._read_piece(piece, context):
                batch = _batch_of(found, piece, left)
                yield SourceItem(unit, batch)
                if left is not None:
                    left -= found.count
                    if left <= 0:
                        return

    def _read_piece(self, piece: Piece, context: ReadContext) -> Iterator[ReadRows | LostRows]:
        from thresher.stages.io.parquet_file import LostRows, open_parquet, read_row_groups

        with open_parquet(piece, self.storage_options) as opened:
            if isinstance(opened, LostRows):
                yield opened
                return
            end = opened.metadata.num_row_groups if piece.end < 0 else piece.end
            columns = self.fields if self.columns_read is None else self.columns_read
            yield from read_row_groups(opened, range(piece.start, end), piece.row, columns, context)

    def parse(self, task: Task) -> DocumentBatch:
        """Rows come parsed."""
        assert isinstance(task, DocumentBatch)
        return task


def _batch_of(found: ReadRows | LostRows, piece: Piece, limit: int | None) -> DocumentBatch:
    """The rows with their ids; rows that are not valid are set aside."""
    import numpy as np

    from thresher.core.records import RecordIds
    from thresher.stages.io.json_lines import failed_batch, failed_lines
    from thresher.stages.io.parquet_file import LostRows, find_invalid_rows, raw_row

    source = (f"{file12(piece.relative)}:r", piece.path)
    if isinstance(found, LostRows):
        return failed_batch(failed_lines(found.error, source, [(found.first, found.message, b"")]))
    table = found.table if limit is None else found.table.slice(0, limit)
    positions = np.arange(found.first, found.first + table.num_rows, dtype=np.int64)
    invalid = find_invalid_rows(table)
    if not invalid:
        return DocumentBatch.from_table(table, RecordIds((source,), positions))
    good = np.ones(table.num_rows, dtype=bool)
    good[invalid] = False
    batch = DocumentBatch.from_table(table.filter(good), RecordIds((source,), positions[good]))
    message = "a text in this row is not valid UTF-8; write the column as binary, or mend the text"
    rows = [(found.first + row, message, raw_row(table, row)) for row in invalid]
    batch._failed.append(failed_lines("invalid-utf8", source, rows))
    return batch
