# SPDX-License-Identifier: Apache-2.0
"""A second type of records: items with metadata columns and one binary payload each, with a reader and a writer.

It is written against `RecordTask`, `SourceStage` and `SinkStage` alone, so it shows what the engine asks of a type.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from thresher import FileGroupTask, Task
from thresher.core.records.record_ids import RecordIds, Rows
from thresher.core.records.record_task import RecordTask
from thresher.core.source import FileFacts, ReadContext, SourceItem
from thresher.core.stage import SinkStage, SourceStage
from thresher.core.task import RawChunk
from thresher.core.unit import Piece, Unit, file12, file_stem, unit_id
from thresher.stages.io.local_file_writer import LocalFile

_HEAD = struct.Struct("<II")
"""Lengths of the metadata (JSON) and of the payload, before each item of a file."""


class ItemBatch(RecordTask):
    """Items: `columns` of metadata, and one payload of bytes per item."""

    def __init__(self, columns: dict[str, list[Any]], payloads: list[bytes]) -> None:
        super().__init__()
        self.columns = columns
        self.payloads = payloads

    @property
    def num_items(self) -> int:
        return len(self.payloads)

    @property
    def nbytes(self) -> int:
        return sum(map(len, self.payloads))

    def pick(self, rows: Sequence[int] | Rows) -> Self:
        index = np.asarray(rows, dtype=np.int64)
        columns = {name: [values[row] for row in index] for name, values in self.columns.items()}
        return self._with_rows_of(index, type(self)(columns, [self.payloads[row] for row in index]))

    def joined(self, others: Sequence[Self]) -> Self:
        parts = [self, *others]
        columns = {name: [value for part in parts for value in part.columns[name]] for name in self.columns}
        made = type(self)(columns, [payload for part in parts for payload in part.payloads])
        return self._with_notes_of(parts, made)

    def metadata_of(self, row: int) -> dict[str, Any]:
        return {name: values[row] for name, values in self.columns.items()}

    def json_lines(self) -> list[bytes | memoryview]:
        payloads = (base64.b64encode(payload).decode() for payload in self.payloads)
        return [json.dumps({**self.metadata_of(row), "payload": text}).encode() for row, text in enumerate(payloads)]

    @classmethod
    def from_json_lines(cls, lines: Sequence[bytes], ids: RecordIds) -> Self:
        found = [json.loads(line) for line in lines]
        payloads = [base64.b64decode(item.pop("payload")) for item in found]
        return cls({name: [item[name] for item in found] for name in found[0]}, payloads).with_ids(ids)


class ItemChunk(RawChunk):
    """Items as they lie in a file."""

    def items(self) -> Iterator[tuple[int, dict[str, Any], bytes]]:
        """Position in the file, metadata and payload of each item."""
        view, start = memoryview(self.data), 0
        while start < len(view):
            name_bytes, payload_bytes = _HEAD.unpack_from(view, start)
            middle = start + _HEAD.size + name_bytes
            end = middle + payload_bytes
            yield self.offset + start, json.loads(bytes(view[start + _HEAD.size : middle])), bytes(view[middle:end])
            start = end

    def halves(self) -> list[RawChunk]:
        ends = [position - self.offset for position, _, _ in self.items()][1:]
        if not ends:
            return []
        cut, view = ends[len(ends) // 2], memoryview(self.data)
        parts = ((0, view[:cut]), (cut, view[cut:]))
        return [ItemChunk(part, self.offset + start, self.source) for start, part in parts]


class ItemReader(SourceStage[ItemBatch]):
    """Reads `.items` files, one unit per file."""

    name = "items"

    def __init__(self, folder: str, most_items: int = 10**9) -> None:
        """`most_items`: parsing more at a time fails as if memory ran out."""
        self.folder = folder
        self.most_items = most_items

    def list_units(self) -> Iterator[Unit]:
        for number, file_name in enumerate(sorted(os.listdir(self.folder))):
            path = os.path.join(self.folder, file_name)
            piece = Piece(path, file_name, os.path.getsize(path))
            yield Unit(unit_id(file_name, 0), (number, 0), (piece,), file_stem(file_name), piece.size)

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        (piece,) = unit.pieces
        with open(piece.path, "rb") as file:
            yield SourceItem(unit, ItemChunk(file.read(), 0, (f"{file12(piece.relative)}:", piece.path)))

    def parse(self, task: Task) -> ItemBatch:
        assert isinstance(task, ItemChunk)
        found = list(task.items())
        if len(found) > self.most_items:
            raise MemoryError
        names = found[0][1] if found else {}
        batch = ItemBatch({name: [item[1][name] for item in found] for name in names}, [item[2] for item in found])
        return batch.with_ids(RecordIds((task.source,), np.array([item[0] for item in found], dtype=np.int64)))

    def restore(self, lines: Sequence[bytes], ids: RecordIds) -> ItemBatch:
        return ItemBatch.from_json_lines(lines, ids)


class ItemFile:
    """Writes one `.items` file."""

    def __init__(self, path: str) -> None:
        self._file = LocalFile(path)
        self._records = 0

    def write(self, batch: ItemBatch) -> None:
        for row, payload in enumerate(batch.payloads):
            self._file.append(encode_item(batch.metadata_of(row), payload))
        self._records += len(batch)

    def close(self) -> FileFacts:
        return self._file.close(self._records)

    def abort(self) -> None:
        self._file.abort()


class ItemWriter(SinkStage[ItemBatch, FileGroupTask]):
    """Writes `.items` files."""

    name = "writer"

    def __init__(self, path: str) -> None:
        """While there is a file `<path>.full`, the unit that it names cannot be written."""
        self.path = path

    def extension(self) -> str:
        return ".items"

    def open_writer(self, local_path: str) -> ItemFile:
        full = Path(f"{self.path}.full")
        if full.exists() and os.path.basename(local_path).startswith(full.read_text()):
            raise OSError(errno.ENOSPC, "no space left on device")
        return ItemFile(local_path)


def encode_item(metadata: dict[str, Any], payload: bytes) -> bytes:
    """One item as it lies in a file."""
    head = json.dumps(metadata).encode()
    return _HEAD.pack(len(head), len(payload)) + head + payload
