# SPDX-License-Identifier: Apache-2.0
"""Large records: how many of them the workers of a run may hold at the same time.

A record takes several times its size while it is worked on: as bytes, as text, as a column, as a line. For chunks of a
few megabytes that is nothing; for a record of a sixteenth of the memory it is half of it. So a worker asks before it
holds one, and waits while the others leave no room. Whoever is alone is let in, so a record is worked on alone if need
be.

What the workers say stands in a table in shared memory that the zygote makes and every worker inherits. How many times
its size a record takes is measured by each worker and kept in the table for all.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from thresher.runtime.memory import private_bytes, proportional_bytes, release_freed

FIRST_FACTOR = 8.0
"""So many times its size is a record expected to take before any was measured. Accented text, rewritten, takes 7."""
LEAST_FACTOR = 3.0
READING_FACTOR = 1.7
"""As much as a record takes while it is read: its buffer, and the smaller one that it outgrew."""
MARGIN = 1.05
"""The next record may take this much more than the last."""
USABLE = 0.95
"""The part of the memory that is planned with."""
DRIVER_BYTES = 80 * 10**6
"""What the driver and the zygote take."""
WAIT_S = 0.01
_NAME = "thresher-large"
_ROWS = 4096
_HEADER = struct.Struct("<d8x")
_ROW = struct.Struct("<qqqq")
"""Of each worker: its process, what it takes without large records, what its large record will take at most, and
whether it works on it already or still reads it."""
_SIZE = _HEADER.size + _ROWS * _ROW.size

_table_fd: int | None = None


def create_table() -> None:
    """Make the table that all workers which are forked from this process share."""
    global _table_fd  # one per process, inherited by its workers
    _table_fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    os.ftruncate(_table_fd, _SIZE)


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


class _Others(NamedTuple):
    """What the other workers say."""

    taken: int
    """What their large records will take."""
    room: int
    """What is left for all large records together."""
    works: bool
    """Whether one of them works on a large record, and so needs nothing more to come to its end."""


class LargeGate:
    """Where one worker asks for room."""

    def __init__(self, fd: int, memory_bytes: int, own_bytes: Callable[[], int] | None = None) -> None:
        """`fd`: the table; `memory_bytes`: the limit of the run; `own_bytes`: how what this process takes is measured."""
        self._fd = fd
        self._memory = memory_bytes
        self._own_bytes = own_bytes or _own_bytes
        self._map = mmap.mmap(fd, _SIZE)
        self._inside = False
        self._base = self._own_bytes()
        self._row = self._take_row()

    @property
    def inside(self) -> bool:
        """Whether a large record may be held now."""
        return self._inside

    def read(self, most_bytes: int) -> None:
        """Wait until there is room to read a record of at most `most_bytes`; `enter` follows when its size is known."""
        if not self._inside:
            self._begin()
            while not self._may_read(most_bytes):
                time.sleep(WAIT_S)

    def enter(self, nbytes: int) -> None:
        """Wait until there is room to work on a record of `nbytes`."""
        if not self._inside:
            self._begin()
        while not self._may_work(nbytes):
            time.sleep(WAIT_S)

    def _begin(self) -> None:
        release_freed()
        _reset_peak()
        self._inside = True

    def leave(self, nbytes: int) -> None:
        """The record of `nbytes` is done; what it took is remembered."""
        if not self._inside:
            return
        self._inside = False
        peak = _peak_bytes()
        release_freed()
        self._base = self._own_bytes()
        with self._locked():
            if peak and nbytes:
                measured = MARGIN * max(0, peak - private_bytes()) / nbytes
                _HEADER.pack_into(self._map, 0, max(LEAST_FACTOR, measured, 0.9 * self._factor()))
            self._write(0)

    # -- the table ----------------------------------------------------------------------------------------------------

    def _may_read(self, most_bytes: int) -> bool:
        """Whoever reads holds little, and waits for more before it works. So that somebody can always go on, there is
        room for one of the readers to work, unless somebody works already and will leave."""
        with self._locked():
            wanted = int(READING_FACTOR * most_bytes)
            others = self._look_around()
            spare = 0 if others.works else int(self._factor() * most_bytes)
            if others.taken and others.taken + wanted + spare > others.room:
                return False
            self._write(wanted)
            return True

    def _may_work(self, nbytes: int) -> bool:
        with self._locked():
            wanted = int(self._factor() * nbytes)
            others = self._look_around()
            if others.works and others.taken + wanted > others.room:
                return False
            self._write(wanted, works=True)
            return True

    def _look_around(self) -> _Others:
        base = taken = works = 0
        for pid, others_base, others_taken, others_works in self._rows():
            if _lives(pid):
                base += others_base
                taken += others_taken
                works += others_works
        room = int(USABLE * self._memory) - DRIVER_BYTES - base - self._base
        return _Others(taken, room, bool(works))

    def _rows(self) -> Iterator[tuple[int, int, int, int]]:
        """The rows of the others."""
        for row in range(_ROWS):
            if row != self._row:
                found: tuple[int, int, int, int] = _ROW.unpack_from(self._map, _HEADER.size + row * _ROW.size)
                if not found[0]:
                    return
                yield found

    def _factor(self) -> float:
        factor: float = _HEADER.unpack_from(self._map)[0]
        return factor or FIRST_FACTOR

    def _write(self, taken: int, *, works: bool = False) -> None:
        _ROW.pack_into(self._map, _HEADER.size + self._row * _ROW.size, os.getpid(), self._base, taken, works)

    def _take_row(self) -> int:
        """The first row that is free, or was a worker's that is gone."""
        self._row = -1
        with self._locked():
            rows = list(self._rows())
            self._row = next((row for row, found in enumerate(rows) if not _lives(found[0])), len(rows)) % _ROWS
            self._write(0)
            return self._row

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone with the table; the kernel unlocks it when a process dies."""
        fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._fd, fcntl.LOCK_UN)


class OpenGate:
    """Where there is no limit, or only one worker: nobody waits."""

    inside = False

    def read(self, most_bytes: int) -> None:
        """There is room."""

    def enter(self, nbytes: int) -> None:
        """There is room."""

    def leave(self, nbytes: int) -> None:
        """Nobody asks."""


_gates: dict[int, LargeGate | OpenGate] = {}


def gate_for(memory_bytes: int) -> LargeGate | OpenGate:
    """This process's gate; made when it is first asked for."""
    process = os.getpid()
    found = _gates.get(process)
    if found is None:
        fd = find_table() if memory_bytes else None
        found = OpenGate() if fd is None else LargeGate(fd, memory_bytes)
        _gates.clear()
        _gates[process] = found
    return found


def _own_bytes() -> int:
    """What this process takes; pages that it shares with others, by its part."""
    return proportional_bytes(os.getpid()) or private_bytes()


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _reset_peak() -> None:
    """Let the kernel measure the peak of this process anew."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak_bytes() -> int:
    """The most private memory since `_reset_peak`, as far as the kernel tells: pages of shared memory are taken off."""
    peak = shared = 0
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                peak = int(line.split()[1]) * 1024
            elif line.startswith((b"RssFile:", b"RssShmem:")):
                shared += int(line.split()[1]) * 1024
    return max(0, peak - shared)
