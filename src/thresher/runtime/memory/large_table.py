# SPDX-License-Identifier: Apache-2.0
"""Shared table of the large records of all workers: created by the zygote in shared memory, inherited by every
worker."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from thresher.ledger.folder.lock import process_exists

_NAME = "thresher-large"
_ROWS = 4096
STEPS = 512
"""Number of steps with ratios of their own; a plan with more steps shares some."""
_FACTOR = struct.Struct("<d")
_ROW = struct.Struct("<qqqqq")
_FACTORS_BYTES = STEPS * _FACTOR.size
_SIZE = _FACTORS_BYTES + _ROWS * _ROW.size

_table_fd: int | None = None


class WorkerRow(NamedTuple):
    """The row of one worker."""

    pid: int
    """Its process."""
    base: int = 0
    """Its memory without large records."""
    taken: int = 0
    """Bytes granted for its large record in the current step; 0: it has none."""
    claim: int = 0
    """Maximum bytes of the record before it is done."""
    waits: int = 0
    """1 if it waits for more than `taken`."""


def is_safe(room: int, records: Iterable[tuple[int, int]]) -> bool:
    """Return True if records that hold `taken` bytes and may need `claim` can all finish within `room`, one after the
    other: the one that needs the least goes first and leaves its bytes to the others."""
    held = sorted(records, key=lambda record: record[1] - record[0])
    left = room - sum(taken for taken, _ in held)
    for taken, claim in held:
        if left < 0 or claim - taken > left:
            return False
        left += taken
    return True


def create_table() -> None:
    """Create the table that all workers forked from this process share."""
    global _table_fd  # one per process, inherited by its workers
    _table_fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    os.ftruncate(_table_fd, _SIZE)


def take_turn() -> None:
    """Wait until no other worker that exceeds its memory limit is running. The lock is released when this process
    exits, soon, to be replaced by a new one."""
    fd = find_table()
    if fd is not None:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, _SIZE)


def find_table() -> int | None:
    """Return the descriptor of the table: inherited, or opened from the parent; `None` if there are no other
    workers."""
    if _table_fd is not None:
        return _table_fd
    parent = f"/proc/{os.getppid()}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if os.readlink(f"{parent}/{name}").startswith(f"/memfd:{_NAME}"):
                return os.open(f"{parent}/{name}", os.O_RDWR | os.O_CLOEXEC)
    return None


class LargeTable:
    """The table, with the row of one worker."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, _SIZE)
        self._row = -1
        with self.locked():
            rows = list(self._rows())
            free = next((row for row, entry in enumerate(rows) if not process_exists(entry.pid)), len(rows))
            self._row = free % _ROWS
            self.write(WorkerRow(os.getpid()))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the table; the kernel unlocks it when a process exits."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX, _SIZE)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, _SIZE)

    def others(self) -> list[WorkerRow]:
        """Return the rows of the other running workers."""
        return [entry for entry in self._rows() if process_exists(entry.pid)]

    def write(self, entry: WorkerRow) -> None:
        """Write the row of this worker."""
        _ROW.pack_into(self._map, _FACTORS_BYTES + self._row * _ROW.size, *entry)

    def factor(self, step: int) -> float:
        """Return the measured ratio of memory to record size in a step; 0: not measured yet."""
        found: float = _FACTOR.unpack_from(self._map, step % STEPS * _FACTOR.size)[0]
        return found

    def set_factor(self, step: int, factor: float) -> None:
        """Store the ratio of a step for all workers."""
        _FACTOR.pack_into(self._map, step % STEPS * _FACTOR.size, factor)

    def _rows(self) -> Iterator[WorkerRow]:
        """Yield the rows of the others, up to the first unused one."""
        for row in range(_ROWS):
            if row != self._row:
                entry = WorkerRow(*_ROW.unpack_from(self._map, _FACTORS_BYTES + row * _ROW.size))
                if not entry.pid:
                    return
                yield entry
