# SPDX-License-Identifier: Apache-2.0
"""A second type of records: items with metadata columns and one payload each, with a reader and a writer.

It uses public names alone, so it shows what the engine asks of a type. Payloads are bytes, or arrays where a stage has
decoded them.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from thresher import RecordTask, SourceStage, Task
from thresher.records import EncodedWriter, Piece, RawChunk, ReadContext, RecordIds, Unit, file_units, open_piece

_HEAD = struct.Struct("<II")
"""Lengths of the metadata (JSON) and of the payload, before each item of a file."""


class ItemBatch(RecordTask):
    """Items: `columns` of metadata, and one payload per item."""

    def __init__(self, columns: dict[str, list[Any]], payloads: list[Any]) -> None:
        super().__init__()
        self.columns = columns
        self.payloads = payloads

    @property
    def num_items(self) -> int:
        return len(self.payloads)

    def column_names(self) -> list[str]:
        return list(self.columns)

    def to_dicts(self) -> list[dict[str, Any]]:
        return [{**self.metadata_of(row), "payload": payload} for row, payload in enumerate(self.payloads)]

    @classmethod
    def from_dicts(cls, records: Sequence[dict[str, Any]]) -> Self:
        names = [name for name in records[0] if name != "payload"] if records else []
        columns = {name: [record[name] for record in records] for name in names}
        return cls(columns, [record["payload"] for record in records])

    def metadata_of(self, row: int) -> dict[str, Any]:
        return {name: values[row] for name, values in self.columns.items()}


class ItemChunk(RawChunk):
    """Items as they lie in a file."""

    def items(self) -> Iterator[tuple[int, dict[str, Any], bytes]]:
        """Position in the file, metadata and payload of each item."""
        view, start = memoryview(self.data), 0
        while start < len(view):
            head_bytes, payload_bytes = _HEAD.unpack_from(view, start)
            middle = start + _HEAD.size + head_bytes
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
    """Reads `.items` files, one unit per file, in chunks of whole items."""

    name = "items"

    def __init__(self, folder: str, most_items: int = 10**9) -> None:
        """`most_items`: parsing more at a time fails as if memory ran out."""
        self.folder = folder
        self.most_items = most_items

    def list_units(self) -> Iterator[Unit]:
        return file_units(self.folder, [".items"])

    def known_columns(self) -> list[str]:
        return ["width"]

    def read_piece(self, piece: Piece, context: ReadContext) -> Iterator[ItemChunk]:
        with open_piece(piece) as file:
            start, data = 0, bytearray()
            while head := file.read(_HEAD.size):
                data += head + file.read(sum(_HEAD.unpack(head)))
                if len(data) >= context.chunk_bytes:
                    yield ItemChunk(bytes(data), start, piece.source)
                    start, data = start + len(data), bytearray()
            if data:
                yield ItemChunk(bytes(data), start, piece.source)

    def parse(self, task: Task) -> ItemBatch:
        if isinstance(task, ItemBatch):
            return task
        assert isinstance(task, ItemChunk)
        found = list(task.items())
        if len(found) > self.most_items:
            raise MemoryError
        batch = ItemBatch.from_dicts([{**metadata, "payload": payload} for _, metadata, payload in found])
        return batch.with_ids(RecordIds((task.source,), [position for position, _, _ in found]))


class ItemWriter(EncodedWriter[ItemBatch]):
    """Writes `.items` files."""

    name = "writer"

    def __init__(self, path: str) -> None:
        """While there is a file `<path>.full`, the unit that it names cannot be written."""
        self.path = path

    def extension(self) -> str:
        return ".items"

    def encode(self, batch: ItemBatch) -> Iterator[bytes]:
        for row, payload in enumerate(batch.payloads):
            yield encode_item(batch.metadata_of(row), bytes(payload))

    def open_writer(self, local_path: str) -> Any:
        full = Path(f"{self.path}.full")
        if full.exists() and os.path.basename(local_path).startswith(full.read_text()):
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().open_writer(local_path)


def encode_item(metadata: dict[str, Any], payload: bytes) -> bytes:
    """One item as it lies in a file."""
    head = json.dumps(metadata).encode()
    return _HEAD.pack(len(head), len(payload)) + head + payload
