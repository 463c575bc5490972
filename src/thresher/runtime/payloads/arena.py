# SPDX-License-Identifier: Apache-2.0
"""Arenas: anonymous shared memory, one memfd per worker, created by the driver, so that the kernel frees it whatever
process crashes.

A worker writes its outputs to segments of its own arena; other workers map that arena once and read the bytes in place.
A segment is reused only when nobody reads it any more: a reader holds a *lease* that ends when the last view of the
segment is released, not when the task is done, because a stage may keep a slice.

Fresh pages are expensive (10-20 times a copy into existing pages), so freed segments are kept warm up to a limit;
beyond it their pages are returned to the kernel.
"""

from __future__ import annotations

import bisect
import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterator

from thresher.core.task import Task
from thresher.runtime.crashes.crash_notes import NOTE_BYTES
from thresher.runtime.payloads.payload import (
    NOWHERE,
    Encoded,
    Payload,
    decode_inline,
    decode_parts,
    layout,
    read_spilled,
    spill,
    write_pieces,
)

PAGE = mmap.PAGESIZE
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_MAP_NORESERVE = 0x4000
_TIDY_BEYOND = 64
"""Number of free pieces beyond which an empty arena starts over as one piece."""


class ArenaFull(MemoryError):
    """Raised for a payload that does not fit into its arena."""


def create_arena(size: int) -> int:
    """Create an arena; return its descriptor. It reserves address space only; pages are allocated as they are
    written."""
    fd = os.memfd_create("thresher-arena", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd


def resident_bytes(fd: int) -> int:
    """Return the exact memory of an arena, cheaply. No PSS includes pages that are not mapped."""
    return os.fstat(fd).st_blocks * 512


class _FreePieces:
    """Free pieces of an arena. Adjacent pieces are merged; the smallest sufficient one is found by bisection."""

    def __init__(self) -> None:
        self._size_at: dict[int, int] = {}
        self._start_of_end: dict[int, int] = {}
        self._by_size: list[tuple[int, int]] = []
        self.total = 0

    def __len__(self) -> int:
        return len(self._size_at)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(sorted(self._size_at.items()))

    def add(self, start: int, size: int) -> None:
        """Add a free piece."""
        before = self._start_of_end.get(start)
        if before is not None:
            size += self._remove(before)
            start = before
        if start + size in self._size_at:
            size += self._remove(start + size)
        self._size_at[start] = size
        self._start_of_end[start + size] = start
        bisect.insort(self._by_size, (size, start))
        self.total += size

    def _remove(self, start: int) -> int:
        size = self._size_at.pop(start)
        del self._start_of_end[start + size]
        del self._by_size[bisect.bisect_left(self._by_size, (size, start))]
        self.total -= size
        return size

    def take(self, size: int) -> int | None:
        """Return the start of `size` bytes, cut from the smallest sufficient piece; `None` if there is none."""
        place = bisect.bisect_left(self._by_size, (size, -1))
        if place == len(self._by_size):
            return None
        _, start = self._by_size[place]
        found = self._remove(start)
        if found > size:
            self.add(start + size, found - size)
        return start

    def clear(self) -> None:
        """Remove all pieces."""
        self.__init__()  # type: ignore[misc]  # the empty state is defined once


class Segments:
    """Allocation of the segments of an arena. Only arithmetic: no memory is touched here."""

    def __init__(self, size: int, keep_bytes: int) -> None:
        """`keep_bytes`: the most freed memory that stays warm for reuse."""
        self._size = size
        self._keep = keep_bytes
        self._top = 0
        self._live: dict[int, int] = {}
        self._warm = _FreePieces()
        self._cold = _FreePieces()

    @property
    def live_bytes(self) -> int:
        """Bytes in use."""
        return sum(self._live.values())

    @property
    def warm_bytes(self) -> int:
        """Free bytes whose pages still exist."""
        return self._warm.total

    def allocate(self, nbytes: int) -> tuple[int, bool]:
        """Allocate `nbytes`; return the start, and True if its pages exist already."""
        size = max(nbytes, 1) + PAGE - 1 & -PAGE
        start = self._warm.take(size)
        warm = start is not None
        if start is None:
            start = self._cold.take(size)
        if start is None:
            start = self._extend(size)
        if start is None:
            self._merge_free()
            start = self._cold.take(size)
        if start is None:
            raise ArenaFull(
                f"a payload of {nbytes} bytes does not fit: the arena has {self._size} bytes, "
                f"{self.live_bytes} in use. Make batches smaller, or let the stage yield its results one by one"
            )
        self._live[start] = size
        return start, warm

    def _extend(self, size: int) -> int | None:
        start = self._top
        if start + size > self._size:
            return None
        self._top += size
        return start

    def _merge_free(self) -> None:
        """Merge all free memory into pieces as large as possible; the last resort of a full arena."""
        for start, size in list(self._warm):
            self._cold.add(start, size)
        self._warm.clear()
        if self._top < self._size:
            self._cold.add(self._top, self._size - self._top)
            self._top = self._size

    def free(self, start: int) -> list[tuple[int, int]]:
        """Free a segment; return the pieces whose pages go back to the kernel."""
        size = self._live.pop(start)
        returned = []
        if self._warm.total + size > self._keep:
            self._cold.add(start, size)
            returned.append((start, size))
        else:
            self._warm.add(start, size)
        if not self._live and len(self._warm) + len(self._cold) > _TIDY_BEYOND:
            returned.extend(self._start_over())
        return returned

    def _start_over(self) -> list[tuple[int, int]]:
        kept = min(self._top, self._keep) & -PAGE
        returned = [(max(start, kept), start + size - max(start, kept)) for start, size in self._warm]
        self._warm.clear()
        self._cold.clear()
        self._top = kept
        if kept:
            self._warm.add(0, kept)
        return [(start, size) for start, size in returned if size > 0]


class OwnArena:
    """The arena that a worker writes to."""

    def __init__(self, number: int, fd: int, keep_bytes: int, spill_to: str = "") -> None:
        """`spill_to`: folder for payloads, which are then not in shared memory (batch mode)."""
        self.number = number
        self._fd = fd
        self._spill_to, self._spilled = spill_to, 0
        size = os.fstat(fd).st_size
        self.segments = Segments(size - NOTE_BYTES, keep_bytes)
        self.map = map_arena(fd, size)
        self._view = memoryview(self.map)

    @property
    def note_page(self) -> memoryview:
        """The page for the worker's crash note."""
        return self._view[len(self._view) - NOTE_BYTES :]

    def put(self, encoded: Encoded) -> Payload:
        """Copy an encoded task into a segment."""
        if self._spill_to:
            self._spilled += 1
            return spill(encoded, os.path.join(self._spill_to, f"payload-{self.number}-{self._spilled}"))
        lengths = encoded.lengths or (len(encoded.head),)
        starts, total = layout(lengths)
        offset, warm = self.segments.allocate(total)
        if warm:
            parts: list[bytes | memoryview] = [encoded.head, *encoded.buffers]
            for start, part in zip(starts, parts, strict=True):
                begin = offset + start
                self._view[begin : begin + len(part)] = part
        else:
            # Twice as fast as touching pages that do not exist yet, and full memory raises an error instead of SIGBUS.
            write_pieces(self._fd, encoded.laid_out(), offset)
        return Payload(lengths, b"", self.number, offset)

    def reader(self) -> Reader:
        """Return a reader of the arenas of this worker and others."""
        reader = Reader()
        reader.add(self.number, self.map)
        return reader

    def free(self, offset: int) -> None:
        """Free a segment that nobody reads any more."""
        for start, size in self.segments.free(offset):
            punch_hole(self._fd, start, size)


def map_arena(fd: int, size: int) -> mmap.mmap:
    """Map the whole arena, without reserving memory for it."""
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | _MAP_NORESERVE)


def punch_hole(fd: int, start: int, size: int) -> None:
    """Return the pages of a piece to the kernel."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(size)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"returning {size} bytes of shared memory to the kernel: {os.strerror(code)}")


class Reader:
    """Reader of payloads in place, which tracks when their leases end."""

    can_reopen = True

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._ended: deque[tuple[int, int, int]] = deque()
        """Leases that ended, with their bytes. The last view may be released in any thread at any time."""
        self.held_bytes = 0
        """Bytes of segments with open leases, as of the last call of `ended`."""

    def add(self, number: int, arena: int | mmap.mmap) -> None:
        """Add an arena by its descriptor (which is closed) or its map."""
        if isinstance(arena, int):
            self._maps[number] = map_arena(arena, os.fstat(arena).st_size)
            os.close(arena)
        else:
            self._maps[number] = arena

    def drop(self, number: int) -> None:
        """Remove an arena; it is unmapped when its last view is released."""
        self._maps.pop(number, None)

    def open(self, payload: Payload, *, own: bool = False) -> Task:
        """Return the task of a payload, with copies of its buffers if `own`. For one in an arena, the lease ends when
        the last view of it is released."""
        if payload.path:
            return read_spilled(payload, own=own)
        if payload.arena == NOWHERE:
            return decode_inline(payload, own=own)
        import numpy as np

        _, total = layout(payload.lengths)
        base = np.frombuffer(self._maps[payload.arena], np.uint8, total, payload.offset)
        self.held_bytes += total
        finalizer = weakref.finalize(base, self._end, payload.arena, payload.offset, total)
        finalizer.atexit = False
        return decode_parts(payload.lengths, base.data.toreadonly(), own=own)

    def _end(self, arena: int, offset: int, nbytes: int) -> None:
        self._ended.append((arena, offset, nbytes))

    def give_up(self, payload: Payload) -> None:
        """End the lease of a payload that was never opened."""
        if payload.arena != NOWHERE:
            self._ended.append((payload.arena, payload.offset, 0))

    def ended(self) -> list[tuple[int, int]]:
        """Return the leases that ended since the last call: arena and offset."""
        ended: list[tuple[int, int]] = []
        while self._ended:
            arena, offset, nbytes = self._ended.popleft()
            self.held_bytes -= nbytes
            ended.append((arena, offset))
        return ended
