# SPDX-License-Identifier: Apache-2.0
"""A pipe that takes what workers print, so that it can be shown above a live view instead of tearing it."""

from __future__ import annotations

import contextlib
import fcntl
import os

PIPE_BYTES = 2**20
"""What fits between two pictures; a worker that prints more waits for the next one."""
_F_SETPIPE_SZ = 1031


class PrintPipe:
    """The driver holds both ends; workers get the one to write to as their stdout and stderr."""

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe2(os.O_CLOEXEC)
        # Only this end: a worker must wait when the pipe is full, not fail.
        os.set_blocking(self._read_fd, False)
        with contextlib.suppress(OSError):  # beyond the limit of this user: then 64 kB must do
            fcntl.fcntl(self.write_fd, _F_SETPIPE_SZ, PIPE_BYTES)
        self._unfinished = b""

    def lines(self, *, all_of_it: bool = False) -> list[str]:
        """Whole lines that were printed since this was last asked; `all_of_it`: also one that was not ended."""
        data = self._unfinished
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._read_fd, PIPE_BYTES):
                data += piece
        whole, _, self._unfinished = data.rpartition(b"\n")
        if all_of_it:
            whole, self._unfinished = data.removesuffix(b"\n"), b""
        return whole.decode("utf-8", "replace").split("\n") if whole else []

    def close(self) -> None:
        """Close both ends. May be called twice."""
        for fd in (self._read_fd, self.write_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._read_fd = self.write_fd = -1
