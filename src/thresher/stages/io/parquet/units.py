# SPDX-License-Identifier: Apache-2.0
"""Splitting of Parquet files into units: consecutive row groups up to `blocksize` unpacked bytes; small files are
grouped.

A file with an unreadable footer becomes a unit of its own: reading it gives one failed record, and the run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from thresher.core.files.filesystem import FileInfo, StorageOptions
from thresher.core.unit import Piece, Unit, file_stem, unit_id
from thresher.stages.io.listing import PACK_FILES
from thresher.stages.io.parquet.file import LostRows, duplicate_names, open_parquet

_SMALL = 64
"""A file below this fraction of `blocksize` is grouped with its neighbours."""


@dataclass(frozen=True)
class ParquetSplitting:
    """How to split files into units."""

    blocksize: int
    """Unpacked bytes of a unit."""
    files_per_partition: int | None = None
    """Whole files per unit, instead of cutting by bytes."""
    limit: int | None = None
    """Number of rows of the input to read."""
    storage_options: StorageOptions = None
    """For URLs."""
    note_schema: Callable[[Any], None] = lambda schema: None
    """Called with the Arrow schema of each file."""


@dataclass(frozen=True)
class _Stretch:
    """Consecutive row groups of one file."""

    number: int
    """Index of the file in the input."""
    block: int
    """Number of the unit within the file."""
    piece: Piece
    """The row groups."""
    nbytes: int
    """Unpacked bytes."""
    rows: int
    """Number of rows; an unreadable file counts as one."""
    packable: bool
    """True if it may share a unit with its neighbours."""


def list_parquet_units(files: Iterator[FileInfo], splitting: ParquetSplitting) -> Iterator[Unit]:
    """Yield the units of `files`, in input order; listing stops at the row that reaches the limit."""
    pack: list[_Stretch] = []
    weight = 0
    left = splitting.limit
    for stretch in _stretches(files, splitting):
        full = weight + stretch.nbytes > splitting.blocksize or len(pack) >= PACK_FILES
        full = full and splitting.files_per_partition is None
        if pack and (full or not stretch.packable):
            yield _unit(pack, None)
            pack, weight = [], 0
        pack.append(stretch)
        weight += stretch.nbytes
        if left is not None:
            if stretch.rows >= left:
                yield _unit(pack, left + sum(before.rows for before in pack[:-1]))
                return
            left -= stretch.rows
        if not stretch.packable or len(pack) == splitting.files_per_partition:
            yield _unit(pack, None)
            pack, weight = [], 0
    if pack:
        yield _unit(pack, None)


def _stretches(files: Iterator[FileInfo], splitting: ParquetSplitting) -> Iterator[_Stretch]:
    for number, info in enumerate(files):
        piece = Piece(path=info.path, relative=info.relative, size=info.size, version=info.version)
        with open_parquet(piece, splitting.storage_options) as opened:
            if isinstance(opened, LostRows):
                yield _Stretch(number, 0, piece, info.size, 1, splitting.files_per_partition is not None)
                continue
            if not duplicate_names(opened.schema_arrow.names):
                splitting.note_schema(opened.schema_arrow)
            groups = [opened.metadata.row_group(n) for n in range(opened.metadata.num_row_groups)]
            sizes = [(int(group.num_rows), int(group.total_byte_size)) for group in groups]
        whole, rows = sum(size for _, size in sizes), sum(rows for rows, _ in sizes)
        if splitting.files_per_partition is None and whole * _SMALL >= splitting.blocksize:
            yield from _groups(number, piece, sizes, splitting.blocksize)
        elif rows:
            yield _Stretch(number, 0, piece, whole, rows, True)


def _groups(number: int, piece: Piece, sizes: list[tuple[int, int]], blocksize: int) -> Iterator[_Stretch]:
    start, row, block = 0, 0, 0
    while start < len(sizes):
        end, rows, nbytes = start, 0, 0
        while end < len(sizes) and (end == start or nbytes + sizes[end][1] <= blocksize):
            rows += sizes[end][0]
            nbytes += sizes[end][1]
            end += 1
        stretch: dict[str, Any] = {"start": start, "end": end, "row": row}
        yield _Stretch(number, block, msgspec.structs.replace(piece, **stretch), nbytes, rows, False)
        start, row, block = end, row + rows, block + 1


def _unit(stretches: list[_Stretch], limit: int | None) -> Unit:
    first = stretches[0]
    return Unit(
        id=unit_id(first.piece.relative, first.block),
        order=(first.number, first.block),
        pieces=tuple(stretch.piece for stretch in stretches),
        stem=file_stem(first.piece.relative),
        nbytes=sum(stretch.nbytes for stretch in stretches),
        limit=limit,
    )
