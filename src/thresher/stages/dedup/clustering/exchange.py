# SPDX-License-Identifier: Apache-2.0
"""Rows of tables by range of a number, on disk where they are many: the memory that is used does not grow with them."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from thresher.stages.dedup.files.arrow_columns import arrow_column, arrow_table, numpy_column

_MOST_BUCKETS = 2048
"""With more ranges, what is written at once to the file of each would be small."""
_HELD_BYTES = 16
"""Bytes of rows that are held in memory, for each number of a range."""
_LEAST_HELD = 64 * 1024


class Buckets:
    """Ranges of the numbers from 0 to `total` - 1."""

    def __init__(self, total: int, size: int, folder: str) -> None:
        """`size`: how many numbers a range should have. `folder`: for files, if there is more than one range."""
        self.size = max(1, size, -(-total // _MOST_BUCKETS))
        self.count = max(1, -(-total // self.size))
        self.total = total
        self.held_bytes = max(_LEAST_HELD, self.size * _HELD_BYTES)
        self._folder = folder
        self._made = itertools.count()

    def bounds(self, bucket: int) -> tuple[int, int]:
        """Return the first number of a range, and the one after its last."""
        return bucket * self.size, min(self.total, (bucket + 1) * self.size)

    def exchange(self) -> Exchange:
        """Return a new set of rows."""
        return Exchange(self, os.path.join(self._folder, str(next(self._made))))

    @contextlib.contextmanager
    def flags(self) -> Iterator[Any]:
        """Give a byte for each number, 0 at first; in a file if there is more than one range."""
        if self.count == 1:
            yield bytearray(self.total)
            return
        os.makedirs(self._folder, exist_ok=True)
        with open(os.path.join(self._folder, "flags"), "w+b") as file:
            file.truncate(self.total)
            with mmap.mmap(file.fileno(), self.total) as flags:
                yield flags

    def remove(self) -> None:
        """Remove all files."""
        shutil.rmtree(self._folder, ignore_errors=True)


class Exchange:
    """Rows that are put in by number and taken out by range, in any order of both."""

    def __init__(self, buckets: Buckets, folder: str) -> None:
        self.buckets = buckets
        self._folder = folder
        self._added: list[pa.Table] = []
        self._numbers: list[Any] = []
        self._by_bucket: dict[int, list[pa.Table]] = {}
        self._held_bytes = 0
        self._on_disk: set[int] = set()

    def add(self, key: str, **columns: Any) -> None:
        """Add rows; the column `key` holds the number of each."""
        table = arrow_table(columns)
        if not table.num_rows:
            return
        self._added.append(table)
        if self.buckets.count > 1:
            numbers = numpy_column(table[key]) // np.uint64(self.buckets.size)
            self._numbers.append(numbers.astype(np.uint16))  # which sorts in linear time
        self._held_bytes += table.nbytes
        if self._held_bytes > self.buckets.held_bytes:
            self._write()

    def _divide(self) -> None:
        """Divide the rows that were added into those of each range."""
        if self.buckets.count == 1:
            self._by_bucket.setdefault(0, []).extend(self._added)
        elif self._added:
            numbers = np.concatenate(self._numbers)
            order = np.argsort(numbers, kind="stable")
            table, numbers = pa.concat_tables(self._added).take(arrow_column(order)), numbers[order]
            edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
            for start, end in itertools.pairwise(edges):
                self._by_bucket.setdefault(int(numbers[start]), []).append(table.slice(start, end - start))
        self._added, self._numbers = [], []

    def _write(self) -> None:
        """Append everything that is held to the files of its ranges."""
        self._divide()
        os.makedirs(self._folder, exist_ok=True)
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        for bucket, tables in self._by_bucket.items():
            with (
                open(self._path(bucket), "ab") as file,
                pa.ipc.new_stream(file, tables[0].schema, options=options) as stream,
            ):
                for table in tables:
                    stream.write_table(table)
            self._on_disk.add(bucket)
        self._by_bucket, self._held_bytes = {}, 0

    def _path(self, bucket: int) -> str:
        return os.path.join(self._folder, str(bucket))

    def read(self, bucket: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of a range in parts, each as columns; numbers are arrays, texts Arrow arrays.

        Rows may be added meanwhile, and are not among them.
        """
        self._divide()
        held = list(self._by_bucket.get(bucket, []))
        if bucket in self._on_disk:
            with pa.OSFile(self._path(bucket)) as file:
                end = file.size()
                while file.tell() < end:
                    with pa.ipc.open_stream(file) as stream:
                        for batch in stream:
                            yield _columns(pa.Table.from_batches([batch]))
        yield from map(_columns, held)

    def discard(self, bucket: int) -> None:
        """Remove the rows of a range."""
        self._held_bytes -= sum(table.nbytes for table in self._by_bucket.pop(bucket, []))
        if bucket in self._on_disk:
            self._on_disk.remove(bucket)
            os.unlink(self._path(bucket))

    def remove(self) -> None:
        """Remove all rows."""
        self._added, self._numbers, self._by_bucket, self._held_bytes = [], [], {}, 0
        self._on_disk = set()
        shutil.rmtree(self._folder, ignore_errors=True)


def _columns(table: pa.Table) -> dict[str, Any]:
    found = {name: table[name].combine_chunks() for name in table.column_names}
    return {
        name: column if pa.types.is_large_string(column.type) else numpy_column(column)
        for name, column in found.items()
    }
