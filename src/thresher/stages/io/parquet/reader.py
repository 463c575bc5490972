# SPDX-License-Identifier: Apache-2.0
"""Reader of Parquet from local files and URLs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.json_records import lacks_text, shown_names
from thresher.core.task import Task
from thresher.core.unit import Piece, Unit
from thresher.errors import InputError
from thresher.stages.io.file_reader import FileReader
from thresher.stages.io.listing import AcceptedFiles, Splitting
from thresher.stages.io.missing_fields import count_missing

if TYPE_CHECKING:
    from thresher.core.source import ReadContext, SourceItem
    from thresher.stages.io.parquet.file import LostRows, ReadRows
    from thresher.stages.io.parquet.run_schema import SourceColumns


_FEW_FILES = 8


class ParquetReader(FileReader):
    """Read Parquet (.parquet, .pq)."""

    accepted: ClassVar[AcceptedFiles] = AcceptedFiles("ParquetReader", (".parquet", ".pq"))
    columns_read: list[str] | None = None
    """The `fields` that the plan needs; `None`: all of them."""
    lists_schema: ClassVar[bool] = True
    _listed: SourceColumns | None = None
    """The columns of the files listed so far; not sent to workers."""

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_listed"}

    def list_units(self) -> Iterator[Unit]:
        """Return all units in input order, while listing continues; only the footers of files are read."""
        from thresher.stages.io.parquet.run_schema import SourceColumns
        from thresher.stages.io.parquet.units import list_parquet_units

        self._listed = SourceColumns(self.fields if self.columns_read is None else self.columns_read)
        splitting = Splitting(self.blocksize, self.files_per_partition, self.limit, self.storage_options)
        return list_parquet_units(self.files(), splitting, self._listed.note)

    def listed_schema(self) -> SourceColumns | None:
        """Return the columns of all files and their types."""
        return self._listed

    def known_columns(self) -> list[str] | None:
        """Return the columns of all files, if there are few; reading the footers of many files would take too long."""
        from thresher.stages.io.parquet.file import column_names

        try:
            files = list(islice(self.files(), _FEW_FILES + 1))
            names = column_names(files, self.storage_options) if len(files) <= _FEW_FILES else None
        except InputError:
            names = None  # the listing reports what is missing
        if names is None or self.fields is None:
            return self.fields if names is None else names
        return [name for name in names if name in self.fields]

    def reading_only(self, columns: list[str]) -> ParquetReader:
        """Return a reader of only these columns: columns are stored separately, so unused ones need not be read."""
        less = copy.copy(self)
        less.columns_read = [name for name in columns if self.fields is None or name in self.fields]
        return less

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield batches of rows, with the number of the row in the file as id."""
        from thresher.core.source import SourceItem

        left = unit.limit
        for piece in unit.pieces:
            for found, names in self._read_piece(piece, context):
                batch = _batch_of(found, piece, left)
                if names and self.fields is not None and len(batch):
                    count_missing(self, [name for name in self.fields if name not in names], names, len(batch))
                yield SourceItem(unit, batch)
                if left is not None:
                    left -= 1 if found.count is None else found.count
                    if left <= 0:
                        return

    def _read_piece(self, piece: Piece, context: ReadContext) -> Iterator[tuple[ReadRows | LostRows, list[str]]]:
        """Rows, and the names of all columns of their file."""
        from thresher.stages.io.parquet.file import LostRows, open_parquet, read_row_groups

        with open_parquet(piece, self.storage_options) as opened:
            if isinstance(opened, LostRows):
                yield opened, []
                return
            end = opened.metadata.num_row_groups if piece.end < 0 else piece.end
            names = opened.schema_arrow.names
            fault = self._fault_of(names)
            if fault is not None:
                rows = sum(opened.metadata.row_group(n).num_rows for n in range(piece.start, end))
                yield LostRows(piece.row, rows, *fault), []
                return
            columns = self.fields if self.columns_read is None else self.columns_read
            for found in read_row_groups(opened, range(piece.start, end), piece.row, columns, context):
                yield found, names

    def _fault_of(self, names: list[str]) -> tuple[str, str] | None:
        """Return why no record of a file with these columns can be read; `None` if they can."""
        from thresher.stages.io.parquet.file import duplicate_names

        twice = duplicate_names(names)
        if twice:
            message = f"two columns of the file are named {twice[0]!r}; write it again with different names"
            return "duplicate-columns", message
        if self.fields is not None and set(self.fields).isdisjoint(names):
            return "field-missing", lacks_text(self.fields, shown_names(names))
        return None

    def parse(self, task: Task) -> DocumentBatch:
        """Return the batch: rows need no parsing."""
        assert isinstance(task, DocumentBatch)
        return task


def _batch_of(found: ReadRows | LostRows, piece: Piece, limit: int | None) -> DocumentBatch:
    """Return the rows with their ids; invalid rows are set aside."""
    import numpy as np

    from thresher.core.documents.records import RecordIds
    from thresher.stages.io.jsonl.json_lines import failed_batch, failed_lines
    from thresher.stages.io.parquet.file import LostRows, find_invalid_rows, raw_row

    source = piece.row_source
    if isinstance(found, LostRows):
        count = found.count if found.count is None or limit is None else min(found.count, limit)
        return failed_batch(failed_lines(found.error, source, [(found.first, found.message, b"")], counts=[count]))
    table = found.table if limit is None else found.table.slice(0, limit)
    positions = np.arange(found.first, found.first + table.num_rows, dtype=np.int64)
    invalid = find_invalid_rows(table)
    if not invalid:
        return DocumentBatch.from_table(table, RecordIds((source,), positions))
    good = np.ones(table.num_rows, dtype=bool)
    good[invalid] = False
    batch = DocumentBatch.from_table(table.filter(good), RecordIds((source,), positions[good]))
    message = "a text in this row is not valid UTF-8; write the column as binary, or repair the text"
    rows = [(found.first + row, message, raw_row(table, row)) for row in invalid]
    batch._failed.append(failed_lines("invalid-utf8", source, rows))
    return batch
