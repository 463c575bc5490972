# SPDX-License-Identifier: Apache-2.0
"""What the workers of a run say of their large records: a table in shared memory that the zygote makes and every worker
inherits."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from thresher.ledger.holder import process_exists

_NAME = "thresher-large"
_ROWS = 4096
STEPS = 512
"""Steps whose factors are kept apart; a plan with more of them lets some share one."""
_FACTOR = struct.Struct("<d")
_ROW = struct.Struct("<qqqqq")
_FACTORS_BYTES = STEPS * _FACTOR.size
_SIZE = _FACTORS_BYTES + _ROWS * _ROW.size

_table_fd: int | None = None


class Entry(NamedTuple):
    """The row of one worker."""

    pid: int
    """Its process."""
    base: int = 0
    """Bytes that it takes without large records."""
    taken: int = 0
    """Bytes that its large record may take in the step that it is at; 0: it has none."""
    claim: int = 0
    """Bytes that the record may take at most before it is done."""
    waits: int = 0
    """1 where it needs more than `taken` to go on, and waits for it."""


def is_safe(room: int, records: Iterable[tuple[int, int]]) -> bool:
    """Whether records that have taken so much, and may claim so much, can all come to their end within `room`, one
    after the other: whoever needs the least goes first and leaves what it had to the others."""
    held = sorted(records, key=lambda record: record[1] - record[0])
    left = room - sum(taken for taken, _ in held)
    for taken, claim in held:
        if left < 0 or claim - taken > left:
            return False
        left += taken
    return True


def create_table() -> None:
    """Make the table that all workers which are forked from this process share."""
    global _table_fd  # one per process, inherited by its workers
    _table_fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    os.ftruncate(_table_fd, _SIZE)


def take_turn() -> None:
    """Workers that have outgrown their share go on one at a time: wait until there is no other. The turn ends with this
    process, which makes room for a fresh one soon."""
    fd = find_table()
    if fd is not None:
        fcntl.lockf(fd, fcntl.LOCK_EX, 1, _SIZE)


def find_table() -> int | None:
    """The descriptor of the table: inherited, or taken from the parent; `None` where there are no other workers."""
    if _table_fd is not None:
        return _table_fd
    parent = f"/proc/{os.getppid()}/fd"
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if os.readlink(f"{parent}/{name}").startswith(f"/memfd:{_NAME}"):
                return os.open(f"{parent}/{name}", os.O_RDWR | os.O_CLOEXEC)
    return None


class LargeTable:
    """The table as one worker sees it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._map = mmap.mmap(fd, _SIZE)
        self._row = -1
        with self.locked():
            rows = list(self._rows())
            free = next((row for row, entry in enumerate(rows) if not process_exists(entry.pid)), len(rows))
            self._row = free % _ROWS
            self.write(Entry(os.getpid()))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with the table; the kernel unlocks it when a process dies."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX, _SIZE)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, _SIZE)

    def others(self) -> list[Entry]:
        """What the other workers say that are still there."""
        return [entry for entry in self._rows() if process_exists(entry.pid)]

    def write(self, entry: Entry) -> None:
        """Say something about this worker."""
        _ROW.pack_into(self._map, _FACTORS_BYTES + self._row * _ROW.size, *entry)

    def factor(self, step: int) -> float:
        """How many times its size a record was measured to take in a step; 0: not measured yet."""
        found: float = _FACTOR.unpack_from(self._map, step % STEPS * _FACTOR.size)[0]
        return found

    def set_factor(self, step: int, factor: float) -> None:
        """Keep it for all."""
        _FACTOR.pack_into(self._map, step % STEPS * _FACTOR.size, factor)

    def _rows(self) -> Iterator[Entry]:
        """The rows of the others, until the first that was never taken."""
        for row in range(_ROWS):
            if row != self._row:
                entry = Entry(*_ROW.unpack_from(self._map, _FACTORS_BYTES + row * _ROW.size))
                if not entry.pid:
                    return
                yield entry
