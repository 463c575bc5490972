# SPDX-License-Identifier: Apache-2.0
"""What the driver knows about payloads: where each task lies, who still looks at it, and when its memory is free.

A segment is free when the scheduler has released its task *and* every worker that was given it has ended its lease.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from dataclasses import dataclass, field

from thresher.runtime.arena import resident_bytes
from thresher.runtime.payload import NOWHERE, Payload, layout


@dataclass
class _Segment:
    """A payload in an arena."""

    released: bool = False
    """The scheduler needs it no more."""
    holders: Counter[int] = field(default_factory=Counter)
    """Workers that were given it, and how often."""


class PayloadBook:
    """All payloads of a run."""

    def __init__(self) -> None:
        self._last_task = 0
        self._payloads: dict[int, Payload] = {}
        self._segments: dict[tuple[int, int], _Segment] = {}
        self._arenas: dict[int, int] = {}
        """Worker to the descriptor of its arena; kept after its death while somebody needs a payload in it."""
        self._dead: set[int] = set()
        self._live_in: Counter[int] = Counter()
        self.to_free: dict[int, list[int]] = {}
        """Worker to offsets in its arena that are free; whoever sends them empties it."""
        self.gone_arenas: list[int] = []
        """Arenas that were closed; whoever tells the workers empties it."""

    # -- tasks --------------------------------------------------------------------------------------------------------

    def add(self, payload: Payload) -> int:
        """Number a new task."""
        self._last_task = task = self._last_task + 1
        self._payloads[task] = payload
        if payload.arena != NOWHERE:
            self._segments[payload.arena, payload.offset] = _Segment()
            self._live_in[payload.arena] += 1
        return task

    def lend(self, task: int, worker: int) -> Payload:
        """The payload of a task, for a worker to look at."""
        payload = self._payloads[task]
        if payload.arena != NOWHERE:
            self._segments[payload.arena, payload.offset].holders[worker] += 1
        return payload

    def release(self, task: int) -> None:
        """The scheduler needs a payload no more. Unknown tasks are ignored: their result was taken."""
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
        """The payload of a task as one that needs no arena and no file; it is released."""
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
        """A worker no longer looks at these segments."""
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
        """The arena of a new worker; the descriptor now belongs to the book."""
        self._arenas[worker] = fd

    def duplicate(self, worker: int) -> int:
        """A new descriptor of a worker's arena, to be sent away."""
        return os.dup(self._arenas[worker])

    def worker_gone(self, worker: int) -> None:
        """A worker has ended: its leases too. Its arena stays while a payload in it is needed."""
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
            self.gone_arenas.append(worker)

    def arena_bytes(self) -> int:
        """Memory that all arenas take."""
        return sum(resident_bytes(fd) for fd in self._arenas.values())

    def close(self) -> None:
        """Free everything."""
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
