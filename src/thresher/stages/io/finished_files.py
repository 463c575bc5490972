# SPDX-License-Identifier: Apache-2.0
"""Counting and searching of records in finished files."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO

from thresher.core.files.filesystem import StorageOptions, open_read
from thresher.errors import InputError
from thresher.stages.io.compression.content import SNIFF_BYTES, Content, content_of
from thresher.stages.io.compression.unpack import unpack
from thresher.stages.io.damage import DamagedInputError

_READ_BYTES = 4 * 2**20


def count_records_in(path: str, storage_options: StorageOptions = None) -> int | None:
    """Return the number of lines of a JSON lines file, compressed or not, or of rows of a Parquet file; else `None`."""
    with contextlib.closing(open_read(path, 0, storage_options)) as opened:
        head = opened.read(SNIFF_BYTES)
        opened.seek(0)
        content = content_of(head, path)
        if content is Content.PARQUET:
            return _rows(opened)
        if content.unreadable:
            return None
        try:
            return sum(piece.count(b"\n") for piece in pieces_of(opened, content))
        except DamagedInputError:
            return None


def pieces_of(opened: BinaryIO, content: Content) -> Iterator[bytes]:
    """Yield the bytes of a file of lines, unpacked, a few megabytes at a time."""
    if content.compressed:
        yield from unpack(opened, content)
        return
    while piece := opened.read(_READ_BYTES):
        yield piece


def _rows(opened: BinaryIO) -> int | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.ParquetFile(opened, pre_buffer=False).metadata.num_rows)
    except (pa.ArrowException, OSError):
        return None


def find_line(path: str, line: bytes, storage_options: StorageOptions = None, *, is_start: bool = False) -> int | None:
    """Return the number of the line, from 1; `None` if it is not found, or the file cannot be read as lines.

    `is_start`: search for a line that starts with `line`.
    """
    try:
        with contextlib.closing(open_read(path, 0, storage_options)) as opened:
            head = opened.read(SNIFF_BYTES)
            opened.seek(0)
            content = content_of(head, path)
            if content.unreadable:
                return None
            number, rest = 0, b""
            for piece in pieces_of(opened, content):
                *lines, rest = (rest + piece).split(b"\n")
                same = [one.startswith(line) for one in lines] if is_start else [one == line for one in lines]
                if True in same:
                    return number + same.index(True) + 1
                number += len(lines)
    except (InputError, DamagedInputError):
        return None
    return None
