# SPDX-License-Identifier: Apache-2.0
"""Splitting of Parquet files into units: consecutive row groups up to `blocksize` unpacked bytes; small files are
grouped.

A file with an unreadable footer becomes a unit of its own: reading it gives one failed record, and the run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from thresher.core.files.filesystem import FileInfo
from thresher.core.unit import Piece, Unit
from thresher.stages.io.listing import Splitting, Stretch, units_of, whole_file
from thresher.stages.io.parquet.file import LostRows, duplicate_names, open_parquet


def list_parquet_units(
    files: Iterator[FileInfo], splitting: Splitting, note_schema: Callable[[Any], None]
) -> Iterator[Unit]:
    """Yield the units of `files`, in input order; `note_schema` is called with the Arrow schema of each file."""
    return units_of(parquet_stretches(enumerate(files), splitting, note_schema), splitting)


def parquet_stretches(
    numbered: Iterator[tuple[int, FileInfo]], splitting: Splitting, note_schema: Callable[[Any], None]
) -> Iterator[Stretch]:
    """Yield the parts of files, each file with its index in the input."""
    for number, info in numbered:
        piece = whole_file(info)
        with open_parquet(piece, splitting.storage_options) as opened:
            if isinstance(opened, LostRows):
                packable = splitting.files_per_partition is not None
                yield Stretch(number, 0, piece, info.size, info.size, packable, rows=1)
                continue
            if not duplicate_names(opened.schema_arrow.names):
                note_schema(opened.schema_arrow)
            groups = [opened.metadata.row_group(n) for n in range(opened.metadata.num_row_groups)]
            sizes = [(int(group.num_rows), int(group.total_byte_size)) for group in groups]
        whole, rows = sum(size for _, size in sizes), sum(rows for rows, _ in sizes)
        if not splitting.packs(whole):
            yield from _groups(number, piece, sizes, splitting.blocksize)
        elif rows:
            yield Stretch(number, 0, piece, whole, whole, packable=True, rows=rows)


def _groups(number: int, piece: Piece, sizes: list[tuple[int, int]], blocksize: int) -> Iterator[Stretch]:
    start, row, block = 0, 0, 0
    while start < len(sizes):
        end, rows, nbytes = start, 0, 0
        while end < len(sizes) and (end == start or nbytes + sizes[end][1] <= blocksize):
            rows += sizes[end][0]
            nbytes += sizes[end][1]
            end += 1
        groups = msgspec.structs.replace(piece, start=start, end=end, row=row)
        yield Stretch(number, block, groups, nbytes, nbytes, packable=False, rows=rows)
        start, row, block = end, row + rows, block + 1
