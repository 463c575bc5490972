# SPDX-License-Identifier: Apache-2.0
"""Transport between a worker and the driver over Ray: messages in frames, payloads in the object store.

Each worker has two streaming calls that last as long as it does: one yields frames of messages, the other payloads.
What it yields belongs to the driver, which is the caller. A worker therefore owns no object, and everything it has
yielded survives its crash. A frame states how many payloads its messages refer to; those were stored before it.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import msgspec
import numpy as np
import ray
from numpy.typing import NDArray

from thresher.core.task import Task
from thresher.runtime.payloads.payload import (
    NOWHERE,
    Encoded,
    Payload,
    PayloadMissing,
    decode,
    decode_inline,
    decode_own,
)
from thresher.runtime.processes import messages as msg
from thresher.runtime.processes.wire import PeerGone

Key = tuple[int, int]
"""Worker that stored a payload, and the payload's number there."""
Parts = list[Any]
"""A payload as a Ray object: the pickle, then its buffers."""
Lent = list[tuple[Key, Any]]
"""Payloads that messages refer to, once per reference, with the objects that hold them."""
Frame = tuple[bytes, int, list[int]]
"""Encoded messages, number of payloads stored since the last frame, numbers of payloads that no message will refer to.
"""
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[list[msg.ToWorker]] = msgspec.msgpack.Decoder(list[msg.ToWorker])


LOOK_S = 1.0
"""Interval at which a blocked read or write checks whether it can still succeed."""


class RayLink:
    """A worker's connection to the driver."""

    closed = False
    """Always False: Ray ends workers with their driver."""

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._in: deque[list[msg.ToWorker]] = deque()
        self._early: dict[int, tuple[bytes, Lent]] = {}
        """Frames that arrived out of order, by number."""
        self._next = 0
        self._unsent: list[Any] = []
        self._frames: SimpleQueue[Frame | None] = SimpleQueue()
        self.store: ObjectStore | None = None
        """Store of the payloads that messages refer to."""
        self.refs: dict[Key, list[Any]] = {}
        """References that arrived with messages and were not opened yet; one that was taken back may have arrived
        again."""
        self.lost: set[int] = set()
        """Workers whose nodes are lost, and their payloads with them."""

    # -- called by Ray -------------------------------------------------------------------------------------------------

    def deliver(self, number: int, frame: bytes, refs: Lent) -> None:
        """Accept a frame from the driver."""
        self._early[number] = (frame, refs)
        while (came := self._early.pop(self._next, None)) is not None:
            self._next += 1
            for key, ref in came[1]:
                self.refs.setdefault(key, []).append(ref)
            self._in.append(_decoder.decode(came[0]))
            os.eventfd_write(self._bell, 1)

    def frames(self) -> Iterator[Frame]:
        """Yield frames for the driver until the connection is closed."""
        while (frame := self._frames.get()) is not None:
            yield frame

    # -- called by the worker ------------------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """True if messages wait to be sent."""
        return bool(self._unsent)

    def fileno(self) -> int:
        """Return a descriptor that is readable when a message has arrived."""
        return self._bell

    def queue(self, message: Any) -> None:
        """Send a message with the next `flush`."""
        self._unsent.append(message)

    def flush(self) -> bool:
        """Send the queued messages as a frame."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            count, freed = self.store.take_news() if self.store is not None else (0, [])
            self._frames.put((_encode(unsent), count, freed))
        return True

    def receive(self, *, wait: bool = False) -> list[msg.ToWorker]:
        """Return the messages that have arrived; with `wait` at least one."""
        messages: list[msg.ToWorker] = []
        while True:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._bell)
            while self._in:
                messages.extend(self._in.popleft())
            if messages or not wait:
                return messages
            select.select([self._bell], [], [])

    def take_fd(self) -> int:
        """Fail: descriptors are never passed here."""
        raise AssertionError("payloads are objects here, not arenas")

    def close(self) -> None:
        """End the stream of frames."""
        self.flush()
        self._frames.put(None)


class ObjectStore:
    """Store for a worker's outputs: they are yielded to the driver, which then owns them."""

    def __init__(self, link: RayLink, number: int = 0) -> None:
        self._link = link
        self.number = number
        """Number of the worker, once it is known."""
        self._serial = self._count = 0
        self._freed: list[int] = []
        self._waiting: SimpleQueue[tuple[Parts, threading.Event] | None] = SimpleQueue()
        self._stored = threading.Event()
        self._is_broken = False
        link.store = self

    def objects(self) -> Iterator[Parts]:
        """Yield payloads until the store is closed."""
        try:
            while (waiting := self._waiting.get()) is not None:
                parts, self._stored = waiting
                yield parts
                del parts, waiting
                self._stored.set()
        except GeneratorExit:
            self._is_broken = True  # Ray could not store the last one
            self._stored.set()
            raise

    def put(self, encoded: Encoded) -> Payload:
        """Store a task and wait until Ray has copied it, since its buffers may change afterwards."""
        self._serial += 1
        self._count += 1
        stored = threading.Event()
        self._waiting.put(([encoded.head, *(np.frombuffer(view, np.uint8) for view in encoded.buffers)], stored))
        while not stored.wait(LOOK_S) and not self._is_broken:
            pass  # the timeout lets this thread be interrupted
        if self._is_broken:
            raise PeerGone(f"Ray could not take a payload of {encoded.nbytes / 1e6:.1f} MB into its object store")
        return Payload(encoded.lengths or (len(encoded.head),), b"", self.number, self._serial)

    def take_news(self) -> tuple[int, list[int]]:
        """Return how many payloads were stored since the last call, and which of them no message will refer to."""
        count, self._count = self._count, 0
        freed, self._freed = self._freed, []
        return count, freed

    def free(self, offset: int) -> None:
        """Drop a payload that no message will refer to; the driver, which owns it, releases it."""
        self._freed.append(offset)

    def reader(self) -> RefReader:
        """Return a reader for payloads that the driver sends by reference."""
        return RefReader(self._link.refs, self._link.lost)

    def close(self) -> None:
        """End the stream of payloads."""
        self._waiting.put(None)


class RefReader:
    """Opens payloads in place, in the object store of this node; Ray transfers them there."""

    can_reopen = False

    def __init__(self, refs: dict[Key, list[Any]], lost: set[int]) -> None:
        """`lost`: workers whose payloads are lost unless a copy is on this node. The driver knows that long before Ray
        does."""
        self._refs, self._lost = refs, lost
        self._ended: deque[int] = deque()
        self.held_bytes = 0
        """Bytes of payloads that were still in use at the last call of `ended`."""

    def open(self, payload: Payload, *, own: bool = False) -> Task:
        """Return the task of a payload, with copies of its buffers if `own`. Raises `PayloadMissing`."""
        if payload.arena == NOWHERE:
            return decode_inline(payload, own=own)
        ref = self._take((payload.arena, payload.offset))
        parts: Parts | None = None
        while parts is None:
            try:
                parts = ray.get(ref, timeout=LOOK_S)
            except ray.exceptions.GetTimeoutError:
                if payload.arena in self._lost:
                    raise PayloadMissing(f"a payload of worker {payload.arena} is lost with its node") from None
            except ray.exceptions.RayError as error:
                raise PayloadMissing(f"a payload of worker {payload.arena} is lost: {error}") from None
        head, *buffers = parts
        lengths = payload.lengths[1:]
        return decode_own(head, lengths, buffers) if own else decode(head, lengths, list(map(self._view, buffers)))

    def _view(self, part: NDArray[np.uint8]) -> memoryview:
        self.held_bytes += part.nbytes
        finalizer = weakref.finalize(part, self._ended.append, part.nbytes)
        finalizer.atexit = False
        return part.data.toreadonly()

    def give_up(self, payload: Payload) -> None:
        """Drop a payload that was never opened."""
        if payload.arena != NOWHERE:
            self._take((payload.arena, payload.offset))

    def _take(self, key: Key) -> Any:
        refs = self._refs[key]
        ref = refs.pop()
        if not refs:
            del self._refs[key]
        return ref

    def ended(self) -> list[Key]:
        """Update `held_bytes`. Return nothing to release, since Ray counts references."""
        while self._ended:
            self.held_bytes -= self._ended.popleft()
        return []

    def add(self, number: int, arena: Any) -> None:
        """Do nothing: every object is readable on every node."""

    def drop(self, number: int) -> None:
        """Do nothing."""


class PayloadRefs:
    """All payloads of a run, as the driver tracks them: it owns the objects and releases each one."""

    def __init__(self) -> None:
        self._last_task = 0
        self._payloads: dict[int, Payload] = {}
        self._refs: dict[Key, Any] = {}
        """References to the objects that hold payloads."""

    def register(self, worker: int, first: int, refs: list[Any]) -> int:
        """Register objects of a worker, numbered from `first`; return the number of the next one."""
        self._refs.update(((worker, number), ref) for number, ref in enumerate(refs, first))
        return first + len(refs)

    def discard(self, worker: int, numbers: list[int]) -> None:
        """Release objects of a worker that no message will refer to."""
        for number in numbers:
            self._refs.pop((worker, number), None)

    def add(self, payload: Payload) -> int:
        """Add a payload and return its task id."""
        self._last_task = task = self._last_task + 1
        self._payloads[task] = payload
        return task

    def lend(self, task: int) -> tuple[Payload, Lent]:
        """Return the payload of a task and a reference to the object that holds it."""
        payload = self._payloads[task]
        if payload.arena == NOWHERE:
            return payload, []
        key = (payload.arena, payload.offset)
        return payload, [(key, self._refs[key])]

    def release(self, task: int) -> None:
        """Release the payload of a task. Unknown tasks are ignored: their result was taken."""
        payload = self._payloads.pop(task, None)
        if payload is not None and payload.arena != NOWHERE:
            self._refs.pop((payload.arena, payload.offset), None)

    def take(self, task: int) -> Payload:
        """Return the payload of a task inline, and release it."""
        payload = self.fetch(self._payloads[task])
        self.release(task)
        return payload

    def fetch(self, payload: Payload) -> Payload:
        """Return a payload inline and release its object. Raises `PayloadMissing`."""
        if payload.arena == NOWHERE:
            return payload
        try:
            parts: Parts = ray.get(self._refs.pop((payload.arena, payload.offset)))
        except ray.exceptions.RayError as error:
            raise PayloadMissing(f"a result of worker {payload.arena} is lost: {error}") from None
        head, *arrays = parts
        return Encoded(head, [array.data for array in arrays], payload.lengths if arrays else ()).inline()

    def made_by(self, workers: set[int]) -> list[int]:
        """Return the tasks whose payloads these workers stored."""
        return [task for task, payload in self._payloads.items() if payload.arena in workers]

    def close(self) -> None:
        """Release everything."""
        self._payloads.clear()
        self._refs.clear()
