# SPDX-License-Identifier: Apache-2.0
"""Standard input as a file of JSON lines: one stream that a worker reads from front to back, once.

Workers have no standard input of their own. They open that of the listing process through `/proc`.
"""

from __future__ import annotations

import fcntl
import io
import os
import stat
from typing import Any, BinaryIO, cast

from thresher.core.files.filesystem import STANDARD_STREAM
from thresher.core.unit import Piece, Unit, file_stem, unit_id
from thresher.errors import InputError, RunFailedError
from thresher.stages.io.compression.content import SNIFF_BYTES

NAME = "stdin"
"""Its name in ids and output files."""
BLOCK_BYTES = 8_000_000
"""Largest unit of the stream, so that output is not delayed for long."""
_UNKNOWN_SIZE = -1
"""The size of the piece, by which readers recognize it."""
_tickets: list[int] = []
"""Open ends of pipes that hold one byte: the process that takes it may read standard input."""


def standard_input_unit() -> Unit:
    """Return the unit of the stream; a pipe gets a ticket, because it cannot be read twice."""
    path = f"/proc/{os.getpid()}/fd"
    ticket = "" if stat.S_ISREG(os.fstat(0).st_mode) else f"{path}/{_new_ticket()}"
    piece = Piece(path=f"{path}/0", relative=NAME, size=_UNKNOWN_SIZE, version=ticket)
    return Unit(id=unit_id(NAME, 0), order=(0, 0), pieces=(piece,), stem=file_stem(NAME), stream=True)


def check_standard_input() -> None:
    """Refuse standard input that is closed or unreadable: it must not be treated as empty input."""
    try:
        readable = fcntl.fcntl(0, fcntl.F_GETFL) & os.O_ACCMODE != os.O_WRONLY and not stat.S_ISDIR(os.fstat(0).st_mode)
    except OSError:
        readable = False
    if not readable:
        raise InputError(
            f"file_paths: {STANDARD_STREAM!r} is standard input, which is closed or cannot be read; pipe the input in, "
            "or name a file"
        )


def open_standard_input(piece: Piece) -> BinaryIO:
    """Open standard input; refuse a second opening if it cannot be read again."""
    if piece.version and not _take_ticket(piece.version):
        raise RunFailedError(
            "standard input can be read only once, and the worker that read it has failed; run the command again, or "
            "put the input into a file so that such a failure costs nothing"
        )
    try:
        return cast(BinaryIO, _Pipe(open(piece.path, "rb", buffering=0)))
    except OSError as error:
        raise InputError(
            f"file_paths: {STANDARD_STREAM!r} is standard input, which cannot be opened here ({error.strerror}); pipe "
            "the input through `cat`, or name a file"
        ) from error


def _new_ticket() -> int:
    taken, given = os.pipe()
    os.write(given, b"1")
    _tickets.extend((taken, given))  # kept open until the process ends: the descriptor number must not be reused
    return taken


def _take_ticket(path: str) -> bool:
    ticket = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(ticket, 1) == b"1"
    except BlockingIOError:
        return False
    finally:
        os.close(ticket)


class _Pipe(io.RawIOBase):
    """A file without random access, whose first bytes may be read twice: once to detect the content."""

    def __init__(self, opened: Any) -> None:
        self._opened = opened
        self._head = b""
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any, /) -> int:
        """Fill `target` with the result of one read; return 0 at the end."""
        kept = self._head[self._position : self._position + len(target)]
        if kept:
            target[: len(kept)] = kept
            count = len(kept)
        else:
            count = self._opened.readinto(target) or 0
            if self._position < SNIFF_BYTES:
                self._head += bytes(target[:count])
        self._position += count
        return count

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        parts: list[bytes] = []
        left = size
        while left and (part := super().read(left if left > 0 else 2**20)):
            parts.append(part)
            left -= len(part) if size > 0 else 0
        return b"".join(parts)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        """Seek back to the beginning, if no more than the first bytes were read."""
        if whence or not 0 <= offset <= self._position <= len(self._head):
            raise io.UnsupportedOperation("standard input can only be read from front to back")
        self._position = offset
        return offset

    def tell(self) -> int:
        return self._position

    def close(self) -> None:
        if not self.closed:
            self._opened.close()
        super().close()
