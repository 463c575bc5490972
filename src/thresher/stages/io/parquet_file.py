# SPDX-License-Identifier: Apache-2.0
"""One Parquet file: opening it, and reading its rows batch by batch, saving what can be saved from a damaged one."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from thresher.core.filesystem import FileInfo, StorageOptions, explained
from thresher.core.source import ReadContext
from thresher.core.unit import Piece
from thresher.stages.io import compiled
from thresher.stages.io.unchanged import open_piece

_MAX_ROWS = 8192
"""Rows that are unpacked at once: what a file says of its size may be far below what it unpacks to."""
_PAGE_ROWS = 1024
"""Rows after which a writer looks at the size of the page that it fills."""
_FAULTS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowTypeError, ValueError, OSError)
"""What Arrow raises for a damaged file."""


@dataclass(frozen=True)
class ReadRows:
    """Consecutive rows of a file."""

    first: int
    """Number of the first row in the file."""
    table: pa.Table
    """The rows."""

    @property
    def count(self) -> int:
        """How many."""
        return int(self.table.num_rows)


@dataclass(frozen=True)
class LostRows:
    """Rows that cannot be read."""

    first: int
    """Number of the first row in the file."""
    count: int
    """How many; 1 for a file of which nobody knows."""
    error: str
    """A short word."""
    message: str
    """What is wrong and what to do."""


@contextlib.contextmanager
def open_parquet(piece: Piece, storage_options: StorageOptions = None) -> Iterator[Any]:
    """A `pyarrow.parquet.ParquetFile`, or `LostRows` that say why the file cannot be read at all."""
    with explained(piece.path):
        source = open_piece(piece, 0, storage_options)
    with contextlib.closing(source):
        try:
            opened = pq.ParquetFile(source, pre_buffer=False, page_checksum_verification=True)
        except _FAULTS as error:
            _raise_unless_damage(error)
            yield LostRows(
                0,
                1,
                "unreadable-parquet",
                f"the file cannot be read as Parquet ({_short(error)}); "
                "it is cut short, damaged, or something else: fetch it again",
            )
            return
        yield opened


def column_names(files: Sequence[FileInfo], storage_options: StorageOptions = None) -> list[str] | None:
    """Every column that one of the files has; `None` when a file does not tell."""
    names: dict[str, None] = {}
    for info in files:
        piece = Piece(path=info.path, relative=info.relative, size=info.size, version=info.version)
        with open_parquet(piece, storage_options) as opened:
            if isinstance(opened, LostRows):
                return None
            names.update(dict.fromkeys(opened.schema_arrow.names))
    return list(names)


def read_row_groups(
    opened: Any, groups: Sequence[int], first_row: int, fields: Sequence[str] | None, context: ReadContext
) -> Iterator[ReadRows | LostRows]:
    """The rows of some row groups. The rest of a damaged group is lost, reading goes on with the next one."""
    columns = None if fields is None else [name for name in opened.schema_arrow.names if name in set(fields)]
    row = first_row
    for number in groups:
        end = row + opened.metadata.row_group(number).num_rows
        try:
            for table in _tables(opened, number, columns, context):
                yield ReadRows(row, table)
                row += table.num_rows
        except _FAULTS as error:
            _raise_unless_damage(error)
            message = (
                f"rows {row} to {end - 1} of row group {number} cannot be read ({_short(error)}); "
                "the other rows are read: write the file again to get these"
            )
            yield LostRows(row, end - row, "corrupt-page", message)
        row = end


def _tables(opened: Any, group: int, columns: list[str] | None, context: ReadContext) -> Iterator[pa.Table]:
    """The rows of a group in tables of about a chunk."""
    facts = opened.metadata.row_group(group)
    batch_bytes = context.chunk_bytes
    page_bytes = _largest_page(facts, columns)
    per_row = max(1, facts.total_byte_size // max(1, facts.num_rows))
    at_once = max(1, min(_MAX_ROWS, batch_bytes // per_row))
    gathered: list[pa.RecordBatch] = []
    fault: Exception | None = None
    batches = opened.iter_batches(at_once, row_groups=[group], columns=columns, use_threads=False)
    while True:
        if page_bytes > 2 * batch_bytes:
            context.before_large(page_bytes)
        try:
            batch = next(batches, None)
        except _FAULTS as error:
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


def _largest_page(facts: Any, columns: list[str] | None) -> int:
    """Bytes that may be unpacked at once: writers look at the size of a page only after so many rows, so one of rows
    that are large may hold all of them."""
    largest = 0
    for place in range(facts.num_columns):
        column = facts.column(place)
        if columns is None or column.path_in_schema.split(".")[0] in columns:
            per_row = column.total_uncompressed_size // max(1, column.num_values)
            largest = max(largest, min(column.total_uncompressed_size, per_row * _PAGE_ROWS))
    return largest


def find_invalid_rows(table: pa.Table) -> list[int]:
    """Rows that hold something that Arrow does not allow: text that is not UTF-8."""
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
    kernels = compiled.kernels()
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
    """Whether every text is valid. All of them together are, and none begins in the middle of a character."""
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
    """Rows that share a dictionary would all be at fault for one bad value in it."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column


def raw_row(table: pa.Table, row: int) -> bytes:
    """A row as a line of JSON with its texts as they are, valid or not; other columns are left out."""
    texts = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            value = column.slice(row, 1).cast(pa.large_binary())[0].as_py()
            texts[name] = None if value is None else value.decode("utf-8", "surrogateescape")
    return json.dumps(texts, ensure_ascii=False).encode("utf-8", "surrogateescape")


def _raise_unless_damage(error: Exception) -> None:
    """A disk or network that fails now may work later: such faults carry a number or a type of their own."""
    if isinstance(error, OSError) and (type(error) is not OSError or error.errno is not None):
        raise error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
