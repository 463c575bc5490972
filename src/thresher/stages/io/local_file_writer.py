# SPDX-License-Identifier: Apache-2.0
"""Local file whose size and hash are computed while it is written, so that it need not be read again."""

from __future__ import annotations

import contextlib
import hashlib
import os
from typing import TYPE_CHECKING, Protocol

from thresher.core.source import FileFacts

if TYPE_CHECKING:
    from thresher.core.documents.records import Rows

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
