# SPDX-License-Identifier: Apache-2.0
"""Writer of JSON lines. An unchanged record keeps its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, BinaryIO

from thresher.core.source import FileFacts
from thresher.stages.io.file_writer import FileWriter, LineFile, PlainLines
from thresher.stages.io.jsonl.compressed_writer import COMPRESSIONS, CompressedLines

if TYPE_CHECKING:
    from thresher.core.documents.batch import DocumentBatch

_CHUNK_BYTES = 4 * 2**20


class JsonlWriter(FileWriter):
    """Write JSON lines, one file per unit of the input; `-` is standard output."""

    takes_standard_output = True

    @classmethod
    def legal_compressions(cls) -> Sequence[str]:
        """Return all supported compressions."""
        return tuple(COMPRESSIONS)

    def needs_arrow(self) -> bool:
        """Return False: lines are written as they are."""
        return False

    def extension(self) -> str:
        """Return `.jsonl`, and the extension of the compression."""
        return ".jsonl" + (COMPRESSIONS[self.compression].extension if self.compression else "")

    def open_writer(self, local_path: str) -> JsonlFile:
        """Return a writer for one file."""
        return JsonlFile(self._open_lines(local_path), self.fields)

    def join_parts(self, part_paths: list[str], local_path: str, schema: str = "") -> FileFacts:
        """Write the lines of all parts to one file; frames are rebuilt, as if there had been no parts."""
        lines = self._open_lines(local_path)
        try:
            for path in part_paths:
                with COMPRESSIONS[self.compression].reader(path) if self.compression else open(path, "rb") as part:
                    _copy_lines(part, lines)
            return lines.close()
        except BaseException:
            lines.abort()
            raise

    def _open_lines(self, local_path: str) -> LineFile:
        return CompressedLines(local_path, self.compression) if self.compression else PlainLines(local_path)


class JsonlFile:
    """The records of one unit as JSON lines."""

    def __init__(self, lines: LineFile, fields: list[str] | None) -> None:
        self._lines = lines
        self._fields = None if fields is None else frozenset(fields)
        self.close, self.abort = lines.close, lines.abort

    def write(self, batch: DocumentBatch) -> None:
        """Add the records of a batch."""
        if not len(batch):
            return
        raw = batch.raw_lines
        if raw is not None and batch.untouched and self._fields is None:
            self._lines.write(raw.blob(), raw.ends - raw.starts + 1)
            return
        from thresher.core.documents.records import RawLines

        made = RawLines.join(batch.json_lines() if self._fields is None else _narrowed(batch, self._fields))
        self._lines.write(made.blob(), made.ends - made.starts + 1)


def _narrowed(batch: DocumentBatch, fields: frozenset[str]) -> list[bytes | memoryview]:
    """Return every record with only the given fields; one that has no others keeps its bytes."""
    from thresher.core.documents.json_records import patch_line, split_object

    lines = batch.json_lines()
    for row, line in enumerate(lines):
        surplus = frozenset(split_object(line)) - fields
        if surplus:
            lines[row] = patch_line(line, {}, surplus)
    return lines


def _copy_lines(source: BinaryIO, lines: LineFile) -> None:
    """Copy all lines of an open file to `lines`, a few megabytes at a time."""
    import numpy as np

    rest = b""
    while chunk := source.read(_CHUNK_BYTES):
        chunk = rest + chunk
        cut = chunk.rfind(b"\n") + 1
        ends = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8)[:cut] == ord("\n"))
        if cut:
            lines.write(chunk[:cut], np.diff(ends, prepend=-1))
        rest = chunk[cut:]
    assert not rest, "a part ends with a line feed"
