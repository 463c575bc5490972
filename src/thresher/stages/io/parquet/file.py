# SPDX-License-Identifier: Apache-2.0
"""Opening of Parquet files, and reading of their rows batch by batch, with salvage of damaged ones."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thresher.core.files.filesystem import FileInfo, StorageOptions, explained, open_piece
from thresher.core.source import ReadContext
from thresher.core.unit import Piece
from thresher.stages.io.jsonl import lines as line_reading
from thresher.stages.io.listing import whole_file

_MAX_ROWS = 8192
"""Rows that are unpacked at once: the size recorded in a file may be far below its unpacked size."""
_PAGE_ROWS = 1024
"""Rows after which a writer checks the size of the current page."""
FAULTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError, ValueError, OSError)
"""The exceptions that Arrow raises for a damaged file."""


@dataclass(frozen=True)
class ReadRows:
    """Consecutive rows of a file."""

    first: int
    """Number of the first row in the file."""
    table: pa.Table
    """The rows."""

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return int(self.table.num_rows)


@dataclass(frozen=True)
class LostRows:
    """Rows that cannot be read."""

    first: int
    """Number of the first row in the file."""
    count: int | None
    """Number of rows; `None` if unknown."""
    error: str
    """A short error code."""
    message: str
    """The problem and the next step."""


@contextlib.contextmanager
def open_parquet(piece: Piece, storage_options: StorageOptions = None) -> Iterator[Any]:
    """Yield a `pyarrow.parquet.ParquetFile`, or `LostRows` that explain why the file cannot be read at all."""
    with explained(piece.path):
        source = open_piece(piece, 0, storage_options)
    with contextlib.closing(source):
        try:
            opened = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
            opened.source_file = source
        except FAULTS as error:
            raise_unless_damage(error)
            yield _unreadable(source, error)
            return
        yield opened


def _unreadable(source: BinaryIO, error: Exception) -> LostRows:
    """Explain why a file cannot be opened; its number of rows is unknown."""
    source.seek(0)
    if source.read(4) == b"PARE":
        return LostRows(0, None, "encrypted-parquet", "the file is encrypted; decrypt it before the run")
    return LostRows(
        0,
        None,
        "unreadable-parquet",
        f"the file cannot be read as Parquet ({short_text(error)}); how many rows it had is not known. "
        "It is cut short, damaged, or something else: get it again",
    )


def duplicate_names(names: Sequence[str]) -> list[str]:
    """Return the duplicate names of columns."""
    return sorted(name for name, count in Counter(names).items() if count > 1)


def column_names(files: Sequence[FileInfo], storage_options: StorageOptions = None) -> list[str] | None:
    """Return all columns of the files; `None` if a file cannot be read."""
    names: dict[str, None] = {}
    for info in files:
        with open_parquet(whole_file(info), storage_options) as opened:
            if isinstance(opened, LostRows):
                return None
            names.update(dict.fromkeys(opened.schema_arrow.names))
    return list(names)


def count_rows(piece: Piece, storage_options: StorageOptions = None) -> int:
    """Return the number of rows of a piece; a file that cannot be read counts as one."""
    with open_parquet(piece, storage_options) as opened:
        if isinstance(opened, LostRows):
            return 1
        end = opened.metadata.num_row_groups if piece.end < 0 else piece.end
        return sum(opened.metadata.row_group(n).num_rows for n in range(piece.start, end))


def read_row_groups(
    opened: Any, groups: Sequence[int], first_row: int, fields: Sequence[str] | None, context: ReadContext
) -> Iterator[ReadRows | LostRows]:
    """Yield the rows of some row groups. The readable rows of a damaged one are yielded, the others as lost rows."""
    columns = None if fields is None else [name for name in opened.schema_arrow.names if name in set(fields)]
    row = first_row
    for number in groups:
        facts = opened.metadata.row_group(number)
        end = row + facts.num_rows
        try:
            for table in _tables(opened, number, columns, context):
                yield ReadRows(row, table)
                row += table.num_rows
        except FAULTS as error:
            raise_unless_damage(error)
            from thresher.stages.io.parquet.salvage import DamagedGroup, salvage

            names = opened.schema_arrow.names if columns is None else columns
            damaged = DamagedGroup(opened, number, end - facts.num_rows, tuple(names), short_text(error))
            yield from salvage(damaged, row, rows_at_once(facts, context), context)
        row = end


def _tables(opened: Any, group: int, columns: list[str] | None, context: ReadContext) -> Iterator[pa.Table]:
    """Yield the rows of a group in tables of about the chunk size."""
    facts = opened.metadata.row_group(group)
    batch_bytes = context.chunk_bytes
    page_bytes = _largest_page(facts, columns)
    at_once = rows_at_once(facts, context)
    gathered: list[pa.RecordBatch] = []
    fault: Exception | None = None
    batches = opened.iter_batches(at_once, row_groups=[group], columns=columns, use_threads=False)
    while True:
        if page_bytes > 2 * batch_bytes:
            context.before_large(page_bytes)
        try:
            batch = next(batches, None)
        except FAULTS as error:
            batch, fault = None, error
        if batch is None:
            break
        if batch.num_rows:
            gathered.append(batch)
        if sum(one.nbytes for one in gathered) >= batch_bytes:
            yield pa.Table.from_batches(gathered).combine_chunks()
            gathered = []
    if gathered:
        yield pa.Table.from_batches(gathered).combine_chunks()
    if fault is not None:
        raise fault


def rows_at_once(facts: Any, context: ReadContext) -> int:
    """Return the number of rows to read at a time."""
    per_row = max(1, int(facts.total_byte_size) // max(1, int(facts.num_rows)))
    return max(1, min(_MAX_ROWS, context.chunk_bytes // per_row))


def _largest_page(facts: Any, columns: list[str] | None) -> int:
    """Return the bytes that may be unpacked at once: writers check the size of a page only every `_PAGE_ROWS` rows, so
    a page of large rows may hold all of them."""
    largest = 0
    for index in range(facts.num_columns):
        column = facts.column(index)
        if columns is None or column.path_in_schema.split(".")[0] in columns:
            per_row = column.total_uncompressed_size // max(1, column.num_values)
            largest = max(largest, min(column.total_uncompressed_size, per_row * _PAGE_ROWS))
    return largest


def find_invalid_rows(table: pa.Table) -> list[int]:
    """Return the rows that Arrow considers invalid: those with text that is not UTF-8."""
    if _is_valid(table):
        return []
    plain = pa.table([_without_dictionary(column) for column in table.columns], names=table.column_names)
    return list(_invalid_rows(plain, 0))


def _invalid_rows(table: pa.Table, first: int) -> Iterator[int]:
    if _is_valid(table):
        return
    if table.num_rows == 1:
        yield first
        return
    half = table.num_rows // 2
    yield from _invalid_rows(table.slice(0, half), first)
    yield from _invalid_rows(table.slice(half), first + half)


def _is_valid(table: pa.Table) -> bool:
    kernels = line_reading.loaded_kernels()
    try:
        for column in table.columns:
            is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
            if kernels is None or not is_text:
                column.validate(full=True)
                continue
            column.validate()
            if not all(_is_utf8(chunk, kernels) for chunk in column.chunks):
                return False
    except pa.ArrowInvalid:
        return False
    return True


def _is_utf8(texts: pa.Array, kernels: Any) -> bool:
    """Return True if every text is valid: all of them together are, and none starts in the middle of a character."""
    _, offsets_buffer, data_buffer = texts.buffers()
    if not len(texts) or data_buffer is None:
        return True
    kind = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    offsets = np.frombuffer(offsets_buffer, dtype=kind)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(data_buffer, dtype=np.uint8)[offsets[0] : offsets[-1]]
    if not kernels.is_valid(data):
        return False
    starts = offsets[:-1][offsets[1:] > offsets[:-1]] - offsets[0]
    return not bool((data[starts] & 0xC0 == 0x80).any())


def _without_dictionary(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Decode a dictionary column, so that one bad value does not invalidate all rows that share the dictionary."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def raw_row(table: pa.Table, row: int) -> bytes:
    """Return a row as a line of JSON with its texts, valid or not; other columns are left out."""
    texts = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            value = column.slice(row, 1).cast(pa.large_binary())[0].as_py()
            texts[name] = None if value is None else value.decode("utf-8", "surrogateescape")
    return json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogateescape")


def raise_unless_damage(error: Exception) -> None:
    """Re-raise errors of the disk or network, which may be transient: they have an errno or a type of their own."""
    if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
        raise error


def short_text(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
