# SPDX-License-Identifier: Apache-2.0
"""How many records a finished file holds, by looking into it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO

from thresher.core.filesystem import StorageOptions, open_read
from thresher.stages.io.compression import unpack
from thresher.stages.io.content import SNIFF_BYTES, Content, content_of
from thresher.stages.io.damage import DamagedInputError

_READ_BYTES = 4 * 2**20


def count_records_in(path: str, storage_options: StorageOptions = None) -> int | None:
    """Lines of a file of JSON lines, packed or not, or rows of a Parquet file; `None` if it can be neither."""
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
    """The bytes of a file of lines, unpacked, a few megabytes at a time."""
    if content.packed:
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
