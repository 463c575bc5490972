# SPDX-License-Identifier: Apache-2.0
"""Shared memory without a name: one memfd per worker, made by the driver, so the kernel frees it whatever dies.

A worker puts what it emits into segments of its own arena; other workers map that arena once and look at the bytes in
place. A segment is used again only when nobody looks at it any more: a reader holds a *lease* that ends when the last
view of the segment dies, not when the task is done, because a stage may keep a slice.

Fresh pages are what costs (10-20 times a copy into pages that are there), so freed segments are kept warm up to a
limit; beyond it their pages go back to the kernel.
"""

from __future__ import annotations

import bisect
import mmap
import os
import weakref
from collections import deque
from collections.abc import Iterator

from thresher.core.task import Task
from thresher.runtime.death_notes import NOTE_BYTES
from thresher.runtime.payload import NOWHERE, Encoded, Payload, decode_inline, decode_parts, layout, read_spilled

PAGE = mmap.PAGESIZE
_PUNCH_HOLE_KEEP_SIZE = 0x02 | 0x01
_MAP_NORESERVE = 0x4000
_TIDY_BEYOND = 64
"""With more free pieces than this, an arena that holds nothing starts over as one piece."""


class ArenaFull(MemoryError):
    """A payload larger than what an arena has left."""


def create_arena(size: int) -> int:
    """The descriptor of a new arena. It takes address space only; memory comes page by page as it is written."""
    fd = os.memfd_create("thresher-arena", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    return fd


def resident_bytes(fd: int) -> int:
    """Memory that an arena takes now, exactly and cheaply; no PSS shows pages that nobody maps."""
    return os.fstat(fd).st_blocks * 512


class _FreePieces:
    """Free stretches of an arena: neighbours are joined, the smallest that is large enough is found by bisection."""

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
        """Add a stretch."""
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
        """The start of a stretch of `size` bytes, cut from the smallest piece that is large enough."""
        place = bisect.bisect_left(self._by_size, (size, -1))
        if place == len(self._by_size):
            return None
        _, start = self._by_size[place]
        found = self._remove(start)
        if found > size:
            self.add(start + size, found - size)
        return start

    def clear(self) -> None:
        """Forget all."""
        self.__init__()  # type: ignore[misc]  # the empty state is written down once


class Segments:
    """Which stretches of an arena are in use. Only arithmetic: no memory is touched here."""

    def __init__(self, size: int, keep_bytes: int) -> None:
        """`keep_bytes` of freed memory at most stay warm, to be used again."""
        self._size = size
        self._keep = keep_bytes
        self._top = 0
        self._live: dict[int, int] = {}
        self._warm = _FreePieces()
        self._cold = _FreePieces()

    @property
    def live_bytes(self) -> int:
        """In use."""
        return sum(self._live.values())

    @property
    def warm_bytes(self) -> int:
        """Free, with pages that are still there."""
        return self._warm.total

    def allocate(self, nbytes: int) -> tuple[int, bool]:
        """A place for `nbytes`, and whether its pages are there already."""
        size = max(nbytes, 1) + PAGE - 1 & -PAGE
        start = self._warm.take(size)
        warm = start is not None
        if start is None:
            start = self._cold.take(size)
        if start is None:
            start = self._extend(size)
        if start is None:
            self._gather()
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

    def _gather(self) -> None:
        """The last resort of a full arena: everything that is free becomes as large pieces as possible."""
        for start, size in list(self._warm):
            self._cold.add(start, size)
        self._warm.clear()
        if self._top < self._size:
            self._cold.add(self._top, self._size - self._top)
            self._top = self._size

    def free(self, start: int) -> list[tuple[int, int]]:
        """Free a segment; the result says which stretches go back to the kernel."""
        size = self._live.pop(start)
        given_back = []
        if self._warm.total + size > self._keep:
            self._cold.add(start, size)
            given_back.append((start, size))
        else:
            self._warm.add(start, size)
        if not self._live and len(self._warm) + len(self._cold) > _TIDY_BEYOND:
            given_back.extend(self._start_over())
        return given_back

    def _start_over(self) -> list[tuple[int, int]]:
        kept = min(self._top, self._keep) & -PAGE
        given_back = [(max(start, kept), start + size - max(start, kept)) for start, size in self._warm]
        self._warm.clear()
        self._cold.clear()
        self._top = kept
        if kept:
            self._warm.add(0, kept)
        return [(start, size) for start, size in given_back if size > 0]


class OwnArena:
    """The arena that a worker writes to."""

    def __init__(self, number: int, fd: int, keep_bytes: int) -> None:
        self.number = number
        self._fd = fd
        size = os.fstat(fd).st_size
        self.segments = Segments(size - NOTE_BYTES, keep_bytes)
        self.map = map_arena(fd, size)
        self._view = memoryview(self.map)

    @property
    def note_page(self) -> memoryview:
        """Where the worker writes what it is at."""
        return self._view[len(self._view) - NOTE_BYTES :]

    def put(self, encoded: Encoded) -> Payload:
        """Copy a task into a segment."""
        lengths = encoded.lengths or (len(encoded.head),)
        starts, total = layout(lengths)
        offset, warm = self.segments.allocate(total)
        if warm:
            parts: list[bytes | memoryview] = [encoded.head, *encoded.buffers]
            for start, part in zip(starts, parts, strict=True):
                begin = offset + start
                self._view[begin : begin + len(part)] = part
        else:
            self._write(encoded.laid_out(), offset)
        return Payload(lengths, b"", self.number, offset)

    def _write(self, pieces: list[bytes | memoryview], offset: int) -> None:
        """For pages that are not there: twice as fast as touching them, and a full memory is an error, not a SIGBUS."""
        for piece in pieces:
            view = memoryview(piece)
            while view.nbytes:
                written = os.pwrite(self._fd, view, offset)
                offset += written
                view = view[written:]

    def reader(self) -> Reader:
        """Opens what this worker and others put into their arenas."""
        reader = Reader()
        reader.add(self.number, self.map)
        return reader

    def free(self, offset: int) -> None:
        """A segment that nobody looks at any more."""
        for start, size in self.segments.free(offset):
            give_back(self._fd, start, size)


def map_arena(fd: int, size: int) -> mmap.mmap:
    """The whole arena; memory is not reserved for it."""
    return mmap.mmap(fd, size, flags=mmap.MAP_SHARED | _MAP_NORESERVE)


def give_back(fd: int, start: int, size: int) -> None:
    """Return the pages of a stretch to the kernel."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(size)) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"giving back {size} bytes of shared memory: {os.strerror(code)}")


class Reader:
    """Opens payloads in place and notes when nobody looks at them any more."""

    def __init__(self) -> None:
        self._maps: dict[int, mmap.mmap] = {}
        self._ended: deque[tuple[int, int, int]] = deque()
        """Leases that ended, with their bytes. The last view may die in any thread, at any moment."""
        self.held_bytes = 0
        """Bytes of segments that were still looked at when leases were last asked for."""

    def add(self, number: int, arena: int | mmap.mmap) -> None:
        """Make an arena readable: its descriptor (which is closed) or a map of it."""
        if isinstance(arena, int):
            self._maps[number] = map_arena(arena, os.fstat(arena).st_size)
            os.close(arena)
        else:
            self._maps[number] = arena

    def drop(self, number: int) -> None:
        """Forget an arena; its map goes when nobody looks at it."""
        self._maps.pop(number, None)

    def open(self, payload: Payload) -> Task:
        """The task of a payload. For one in an arena, a lease ends when the last view of it has died."""
        if payload.path:
            return read_spilled(payload)
        if payload.arena == NOWHERE:
            return decode_inline(payload)
        import numpy as np

        _, total = layout(payload.lengths)
        base = np.frombuffer(self._maps[payload.arena], np.uint8, total, payload.offset)
        self.held_bytes += total
        finalizer = weakref.finalize(base, self._end, payload.arena, payload.offset, total)
        finalizer.atexit = False
        return decode_parts(payload.lengths, base.data)

    def _end(self, arena: int, offset: int, nbytes: int) -> None:
        self._ended.append((arena, offset, nbytes))

    def give_up(self, payload: Payload) -> None:
        """A payload that came and was never opened."""
        if payload.arena != NOWHERE:
            self._ended.append((payload.arena, payload.offset, 0))

    def ended(self) -> list[tuple[int, int]]:
        """Leases that ended since this was last asked: arena and offset."""
        ended: list[tuple[int, int]] = []
        while self._ended:
            arena, offset, nbytes = self._ended.popleft()
            self.held_bytes -= nbytes
            ended.append((arena, offset))
        return ended
