# SPDX-License-Identifier: Apache-2.0
"""Salvage of a row group with a damaged page.

A record is complete only if all its columns can be read. So the readable pages of every column are found first, and
then the rows that all columns have are read in order; the others are reported as ranges of lost rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thresher.core.source import ReadContext
from thresher.stages.io.parquet.file import FAULTS, LostRows, ReadRows, raise_unless_damage
from thresher.stages.io.parquet.pages import ColumnPages, Page, file_of_pages, find_pages, read_footer

_FEW_ROWS = 64
"""Rows to read at a time up to a page that cannot be skipped."""
Stretch = tuple[int, int]
"""Consecutive rows of a row group: the first, and one past the last."""


@dataclass(frozen=True)
class DamagedGroup:
    """A row group that cannot be read to its end."""

    opened: Any
    """The `pyarrow.parquet.ParquetFile`."""
    number: int
    """Number of the row group."""
    first_row: int
    """Number of its first row in the file."""
    columns: tuple[str, ...]
    """The columns to read."""
    fault: str
    """The error message of Arrow."""

    @property
    def rows(self) -> int:
        """Return the number of rows."""
        return int(self.opened.metadata.row_group(self.number).num_rows)

    def whole(self) -> tuple[Any, int]:
        """Return the file and the number of the row group."""
        return self.opened, self.number


@dataclass(frozen=True)
class _DamagedColumn:
    """A column of a damaged row group."""

    name: str
    """Its name."""
    readable: tuple[Stretch, ...]
    """Ranges of rows whose values can be read."""
    open: Callable[[], tuple[Any, int]]
    """Opens a file that holds just those rows, and returns the row group to read."""
    at_once: int
    """Rows to read at a time; more might reach into a damaged page."""


def salvage(group: DamagedGroup, row: int, at_once: int, context: ReadContext) -> Iterator[ReadRows | LostRows]:
    """Yield the rows of a damaged group from row `row` of the file: the complete ones, and ranges of lost ones."""
    columns = [_examine(group, name, at_once, context) for name in group.columns]
    whole: list[Stretch] = [(row - group.first_row, group.rows)]
    for column in columns:
        whole = _common(whole, column.readable)
    readers = [_ColumnReader(column, context) for column in columns]
    metadata = group.opened.schema_arrow.metadata
    done = row - group.first_row
    for begin, end in whole:
        if begin > done:
            yield _lost(group, columns, done, begin)
        for start in range(begin, end, at_once):
            stop = min(start + at_once, end)
            try:
                arrays = [reader.take(start, stop) for reader in readers]
            except FAULTS as error:  # a different batch size hit damage that the examination did not
                raise_unless_damage(error)
                yield _lost(group, columns, start, group.rows)
                return
            table = pa.table(arrays, names=list(group.columns)).replace_schema_metadata(metadata)
            yield ReadRows(group.first_row + start, table)
        done = end
    if done < group.rows:
        yield _lost(group, columns, done, group.rows)


def _lost(group: DamagedGroup, columns: Sequence[_DamagedColumn], begin: int, end: int) -> LostRows:
    damaged = [column.name for column in columns if _common([(begin, end)], column.readable) != [(begin, end)]]
    damaged = damaged or [column.name for column in columns]
    first, last = group.first_row + begin, group.first_row + end - 1
    message = (
        f"rows {first} to {last} of row group {group.number} cannot be read: damaged in column "
        f"{', '.join(map(repr, damaged))} ({group.fault}); the other rows are read: get the file again"
    )
    return LostRows(first, end - begin, "corrupt-page", message)


# -- readable rows of a column ----------------------------------------------------------------------------------------


def _examine(group: DamagedGroup, name: str, at_once: int, context: ReadContext) -> _DamagedColumn:
    """Find the readable rows of a column, by reading them."""
    prefix = _readable_rows(group.opened, group.number, name, at_once, context)
    if prefix == group.rows:
        return _DamagedColumn(name, ((0, prefix),), group.whole, at_once)
    pages = _pages_of(group, name)
    for dictionary in (True, False):
        good = [] if pages is None else _readable_pages(group, pages, name, dictionary, context)
        if pages is not None and good:
            return _DamagedColumn(name, tuple(_merged(good)), _opener(group, pages, good, dictionary), at_once)
    prefix = _readable_rows(group.opened, group.number, name, _FEW_ROWS, context)
    return _DamagedColumn(name, ((0, prefix),) if prefix else (), group.whole, _FEW_ROWS)


def _pages_of(group: DamagedGroup, name: str) -> ColumnPages | None:
    source = group.opened.source_file
    size = source.seek(0, 2)
    try:
        footer = read_footer(source, size)
    except ValueError:
        return None
    return find_pages(source, footer, group.number, name)


def _opener(
    group: DamagedGroup, pages: ColumnPages, good: Sequence[Page], dictionary: bool
) -> Callable[[], tuple[Any, int]]:
    def opened() -> tuple[Any, int]:
        made = file_of_pages(group.opened.source_file, pages, good, dictionary=dictionary)
        return pq.ParquetFile(made, pre_buffer=False, page_checksum_verification=True), 0

    return opened


def _readable_pages(
    group: DamagedGroup, pages: ColumnPages, name: str, dictionary: bool, context: ReadContext
) -> list[Page]:
    """Return the readable pages, found by bisection."""

    def good(some: Sequence[Page]) -> list[Page]:
        rows = sum(page.rows for page in some)
        if rows and _is_readable(_opener(group, pages, some, dictionary), name, rows, context):
            return list(some)
        if len(some) <= 1:
            return []
        half = len(some) // 2
        return good(some[:half]) + good(some[half:])

    return good(pages.pages)


def _is_readable(opener: Callable[[], tuple[Any, int]], name: str, rows: int, context: ReadContext) -> bool:
    try:
        opened, group = opener()
    except FAULTS as error:
        raise_unless_damage(error)
        return False
    return _readable_rows(opened, group, name, rows, context) == rows


def _readable_rows(opened: Any, group: int, name: str, at_once: int, context: ReadContext) -> int:
    """Return the number of readable rows at the beginning of a column."""
    rows = 0
    try:
        for batch in _batches(opened, group, name, min(at_once, 8192), context):
            rows += batch.num_rows
    except FAULTS as error:
        raise_unless_damage(error)
    return rows


def _batches(opened: Any, group: int, name: str, at_once: int, context: ReadContext) -> Iterator[pa.RecordBatch]:
    facts = opened.metadata.row_group(group)
    nbytes = facts.total_byte_size // max(1, facts.num_rows) * at_once
    batches = opened.iter_batches(at_once, row_groups=[group], columns=[name], use_threads=False)
    while True:
        if nbytes > 2 * context.chunk_bytes:
            context.before_large(nbytes)
        batch = next(batches, None)
        if batch is None:
            return
        yield batch


# -- ranges of rows ---------------------------------------------------------------------------------------------------


def _merged(pages: Sequence[Page]) -> list[Stretch]:
    merged: list[Stretch] = []
    for page in pages:
        end = page.first_row + page.rows
        if merged and merged[-1][1] == page.first_row:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((page.first_row, end))
    return merged


def _common(some: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    """Return the rows that are in both."""
    both = [(max(a, c), min(b, d)) for a, b in some for c, d in others]
    return [stretch for stretch in both if stretch[0] < stretch[1]]


class _ColumnReader:
    """Reads a column forward, skipping rows that other columns lack."""

    def __init__(self, column: _DamagedColumn, context: ReadContext) -> None:
        opened, group = column.open()
        self._batches = _batches(opened, group, column.name, column.at_once, context)
        self._stretches = list(column.readable)
        self._held: list[pa.Array] = []
        self._row = self._stretches[0][0] if self._stretches else 0
        """Number of the first row that is held."""

    def take(self, begin: int, end: int) -> pa.ChunkedArray:
        """Return the values of the rows from `begin` to `end`; all of them are readable, and calls move forward."""
        while self._row < begin:
            stop = self._stretches[0][1]
            if stop <= begin:
                self._pass(stop - self._row)
                self._stretches.pop(0)
                self._row = self._stretches[0][0]
            else:
                self._pass(begin - self._row)
        return pa.chunked_array(self._pass(end - begin))

    def _pass(self, count: int) -> list[pa.Array]:
        self._row += count
        taken: list[pa.Array] = []
        while count:
            if not self._held:
                self._held.append(next(self._batches).column(0))
            array = self._held.pop(0)
            taken.append(array[:count])
            if len(array) > count:
                self._held.insert(0, array[count:])
            count -= len(taken[-1])
        return taken
