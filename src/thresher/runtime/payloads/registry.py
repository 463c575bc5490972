# SPDX-License-Identifier: Apache-2.0
"""The driver's registry of payloads: their locations, the workers that hold leases, and the segments that are free.

A segment is free when the scheduler has released its task *and* every worker that received it has ended its lease.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field

from thresher.runtime.payloads.arena import resident_bytes
from thresher.runtime.payloads.payload import NOWHERE, Payload, layout


@dataclass
class _Segment:
    """A payload in an arena."""

    released: bool = False
    """True if the scheduler has released it."""
    holders: Counter[int] = field(default_factory=Counter)
    """Number of leases by worker."""


class PayloadRegistry:
    """All payloads of a run."""

    def __init__(self) -> None:
        self._last_task = 0
        self._payloads: dict[int, Payload] = {}
        self._segments: dict[tuple[int, int], _Segment] = {}
        self._arenas: dict[int, int] = {}
        """Descriptors of arenas by worker; that of a dead worker is kept while a payload in it is needed."""
        self._dead: set[int] = set()
        self._live_in: Counter[int] = Counter()
        self.to_free: dict[int, list[int]] = {}
        """Free offsets by worker; emptied by the code that sends them."""
        self.closed_arenas: list[int] = []
        """Closed arenas; emptied by the code that informs the workers."""

    # -- tasks --------------------------------------------------------------------------------------------------------

    def add(self, payload: Payload) -> int:
        """Add the payload of a new task; return the task id."""
        self._last_task = task = self._last_task + 1
        self._payloads[task] = payload
        if payload.arena != NOWHERE:
            self._segments[payload.arena, payload.offset] = _Segment()
            self._live_in[payload.arena] += 1
        return task

    def lend(self, task: int, worker: int) -> Payload:
        """Return the payload of a task, and add a lease of a worker."""
        payload = self._payloads[task]
        if payload.arena != NOWHERE:
            self._segments[payload.arena, payload.offset].holders[worker] += 1
        return payload

    def release(self, task: int) -> None:
        """Release a payload that the scheduler no longer needs. Unknown tasks are ignored: their result was taken."""
        payload = self._payloads.pop(task, None)
        if payload is None:
            return
        if payload.path:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(payload.path)
        if payload.arena != NOWHERE:
            key = (payload.arena, payload.offset)
            self._segments[key].released = True
            self._free_if_unused(key)

    def take(self, task: int) -> Payload:
        """Release the payload of a task, and return it with its bytes inline."""
        payload = self._payloads[task]
        if payload.path:
            with open(payload.path, "rb") as file:
                payload = Payload(payload.lengths, file.read())
        elif payload.arena != NOWHERE:
            size = layout(payload.lengths)[1]
            payload = Payload(payload.lengths, _read(self._arenas[payload.arena], size, payload.offset))
        self.release(task)
        return payload

    def returned(self, worker: int, leases: list[tuple[int, int]]) -> None:
        """End leases of a worker."""
        for key in leases:
            segment = self._segments.get(key)
            if segment is not None:
                segment.holders[worker] -= 1
                if segment.holders[worker] <= 0:
                    del segment.holders[worker]
                self._free_if_unused(key)

    def _free_if_unused(self, key: tuple[int, int]) -> None:
        segment = self._segments[key]
        if not segment.released or segment.holders:
            return
        del self._segments[key]
        arena, offset = key
        self._live_in[arena] -= 1
        if arena in self._dead:
            self._close_if_empty(arena)
        else:
            self.to_free.setdefault(arena, []).append(offset)

    # -- arenas -------------------------------------------------------------------------------------------------------

    def add_arena(self, worker: int, fd: int) -> None:
        """Add the arena of a new worker; takes ownership of the descriptor."""
        self._arenas[worker] = fd

    def duplicate(self, worker: int) -> int:
        """Return a new descriptor of a worker's arena, to be sent to another process."""
        return os.dup(self._arenas[worker])

    def worker_gone(self, worker: int) -> None:
        """Remove a worker that has exited, and its leases. Its arena stays while a payload in it is needed."""
        for key in [key for key, segment in self._segments.items() if worker in segment.holders]:
            del self._segments[key].holders[worker]
            self._free_if_unused(key)
        self.to_free.pop(worker, None)
        self._dead.add(worker)
        self._close_if_empty(worker)

    def _close_if_empty(self, worker: int) -> None:
        if self._live_in[worker] == 0:
            del self._live_in[worker]
            os.close(self._arenas.pop(worker))
            self._dead.discard(worker)
            self.closed_arenas.append(worker)

    def arena_bytes(self) -> int:
        """Return the memory of all arenas."""
        return sum(resident_bytes(fd) for fd in self._arenas.values())

    def close(self) -> None:
        """Close all arenas."""
        for fd in self._arenas.values():
            os.close(fd)
        self._arenas.clear()
        self._segments.clear()
        self._payloads.clear()


def _read(fd: int, size: int, offset: int) -> bytes:
    pieces = []
    while size:
        piece = os.pread(fd, size, offset)
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
