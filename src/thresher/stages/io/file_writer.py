# SPDX-License-Identifier: Apache-2.0
"""Writers of files: their settings, validated before a run, and local files whose size and hash are computed while they
are written, so that they need not be read again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.json_records import lacks_text, shown_fields, split_object
from thresher.core.files.filesystem import STANDARD_STREAM
from thresher.core.source import FileFacts
from thresher.core.stage import SinkStage
from thresher.core.task import FileGroupTask
from thresher.credentials import split_urls
from thresher.errors import UsageError, nearest
from thresher.stages.io.missing_fields import count_missing, missing_in

if TYPE_CHECKING:
    from thresher.core.documents.records import Rows


MODES = ("error", "overwrite", "append")


class FileWriter(SinkStage[DocumentBatch, FileGroupTask]):
    """A writer that creates one file per unit in a folder. Nothing is opened or created before the run."""

    takes_standard_output: ClassVar[bool] = False
    """True if `-` may be written to."""

    def __init__(
        self,
        path: str,
        fields: list[str] | None = None,
        compression: str | None = None,
        target_file_size: int | str | None = None,
        mode: str = "error",
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """Nothing is opened or made before the run.

        `path`: the folder or URL for the files.
        `fields`: write only these.
        `compression`: `gz`, `zst`, `bz2` or `xz`; none by default.
        `target_file_size`: join the files of units to about this size, such as "256MB".
        `mode`: what to do with a folder that holds something: `error` refuses it, `overwrite` replaces the data files,
        `append` adds files with names of their own.
        `storage_options`: what fsspec is given for URLs.
        """
        kind = type(self).__name__
        self.fields = _checked_fields(kind, fields)
        self.compression = _checked_compression(kind, compression, self.legal_compressions())
        self.target_file_size = (
            None if target_file_size is None else parse_size(target_file_size, f"{kind}.target_file_size")
        )
        if mode not in MODES:
            raise UsageError(f"{kind}.mode: {mode!r} is not one of {', '.join(MODES)}.{nearest(str(mode), MODES)}")
        self.mode = mode
        if storage_options is not None and not isinstance(storage_options, dict):
            raise UsageError(f"{kind}.storage_options: the value (not shown) is not a mapping of names to values")
        given = _checked_path(kind, path)
        (self.path,), self.storage_options = split_urls(f"{kind}.path", [given], storage_options, UsageError)
        if self.path == STANDARD_STREAM and (not self.takes_standard_output or target_file_size is not None):
            what = "has one file" if self.takes_standard_output else "takes JSON lines, which JsonlWriter writes"
            raise UsageError(f"{kind}.path: {STANDARD_STREAM!r} is standard output, which {what}")

    def fitting(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch without records that have none of the `fields`: nothing of them would be written."""
        if self.fields is None or not len(batch):
            return batch
        rows, missing, there = _lacking(batch, self.fields)
        count_missing(self, missing, there, len(batch) - len(rows))
        if not rows:
            return batch
        lines = batch.take(rows).json_lines()
        return batch.set_aside(rows, "field-missing", [lacks_text(self.fields, shown_fields(line)) for line in lines])

    @classmethod
    def legal_compressions(cls) -> Sequence[str]:
        """Return the compressions that this writer supports."""
        raise TypeError(f"{cls.__name__} must define legal_compressions()")


def _lacking(batch: DocumentBatch, fields: list[str]) -> tuple[list[int], list[str], Iterable[str]]:
    """Return the rows of records that have none of `fields`, the fields that no record has, and names that are
    there."""
    if batch.raw_lines is None:
        missing = [name for name in fields if name not in batch.columns]
        return list(range(len(batch) if len(missing) == len(fields) else 0)), missing, batch.columns
    quoted = [json.dumps(name).encode() for name in fields]
    lines = [bytes(line) for line in (batch.raw_lines.lines() if batch.untouched else batch.json_lines())]
    # Most lines contain one of the names in this spelling; only the others are parsed.
    doubtful = [row for row, line in enumerate(lines) if not any(name in line for name in quoted)]
    rows = [row for row in doubtful if set(fields).isdisjoint(split_object(lines[row]))]
    missing = missing_in(lines, fields)
    return rows, missing, split_object(lines[0]) if missing else ()


def _checked_path(kind: str, path: Any) -> str:
    try:
        text = os.fspath(path)
    except TypeError:
        raise UsageError(f"{kind}.path: {path!r} is not a path; give a folder or a URL") from None
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"{kind}.path: {path!r} is not a path; give a folder or a URL")
    return text


def _checked_fields(kind: str, fields: Any) -> list[str] | None:
    if fields is None:
        return None
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise UsageError(f"{kind}.fields: {fields!r} is not a list of names; write [{fields!r}] for one field")
    names = list(fields)
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{kind}.fields: {fields!r} must hold at least one name, and all names must be strings")
    return names


def _checked_compression(kind: str, compression: Any, legal: Sequence[str]) -> str | None:
    if compression is None:
        return None
    if compression not in legal:
        raise UsageError(
            f"{kind}.compression: {compression!r} is not one of None, {', '.join(legal)}."
            + nearest(str(compression), legal)
        )
    return str(compression)


_BUFFER_BYTES = 256 * 1024
_WRITEBACK_BYTES = 8 * 2**20


class LineFile(Protocol):
    """Writes whole lines to a file."""

    def write(self, text: bytes | memoryview, lengths: Rows) -> None:
        """Add lines: their text, each with its line feed, and the length of each line."""

    def close(self) -> FileFacts:
        """Finish the file; its data is on disk."""

    def abort(self) -> None:
        """Remove the file."""


class LocalFile:
    """A file with a running size and SHA-256."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.nbytes = 0
        self._hash = hashlib.sha256()
        self._file = open(path, "wb", buffering=_BUFFER_BYTES)  # noqa: SIM115  # closed by close() and abort()
        self._pushed = 0

    def append(self, data: bytes | memoryview) -> None:
        """Add bytes."""
        self._hash.update(data)
        self._file.write(data)
        self.nbytes += memoryview(data).nbytes
        if self.nbytes - self._pushed >= _WRITEBACK_BYTES:
            self._start_writeback()

    def _start_writeback(self) -> None:
        """Ask the kernel to start writing back, so that the final sync is short."""
        with contextlib.suppress(AttributeError, OSError):  # a hint: not supported on every system
            os.posix_fadvise(self._file.fileno(), self._pushed, self.nbytes - self._pushed, os.POSIX_FADV_DONTNEED)
        self._pushed = self.nbytes

    def close(self, records: int) -> FileFacts:
        """Sync the data to disk; a file without records is removed."""
        if not records:
            self.abort()
            return FileFacts(0, 0, hashlib.sha256().hexdigest())
        self._file.flush()
        sync_data(self._file.fileno())
        self._file.close()
        return FileFacts(self.nbytes, records, self._hash.hexdigest())

    def abort(self) -> None:
        """Remove the file."""
        with contextlib.suppress(OSError):  # the file is removed anyway, flushed or not
            self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


class PlainLines:
    """Lines in a plain file."""

    def __init__(self, path: str) -> None:
        self._file = LocalFile(path)
        self._records = 0

    def write(self, text: bytes | memoryview, lengths: Rows) -> None:
        """Add lines."""
        self._file.append(text)
        self._records += len(lengths)

    def close(self) -> FileFacts:
        """Finish the file."""
        return self._file.close(self._records)

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()


def sync_data(descriptor: int) -> None:
    """Wait until the data of an open file is on disk."""
    getattr(os, "fdatasync", os.fsync)(descriptor)
