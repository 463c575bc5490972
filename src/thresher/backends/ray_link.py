# SPDX-License-Identifier: Apache-2.0
"""A worker's side of Ray: messages in frames, payloads in the object store.

A worker has two streaming calls for its whole life. What it yields there belongs to the driver, which is the caller:
frames of messages in one, payloads in the other. So a worker owns no object, and what it has given away stays when it
dies. A frame says how many payloads it speaks of; those were stored before it.
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
from thresher.runtime import messages as msg
from thresher.runtime.payload import NOWHERE, Encoded, Payload, decode, decode_inline
from thresher.runtime.payload_store import PayloadMissing
from thresher.runtime.wire import PeerGone

Key = tuple[int, int]
"""Worker that made a payload, and its number there."""
Parts = list[Any]
"""A payload as an object: the pickle, then its buffers."""
Lent = list[tuple[Key, Any]]
"""Payloads that messages speak of, each as often as they do, and the objects that hold them."""
Frame = tuple[bytes, int, list[int]]
"""Messages; how many payloads were stored since the last frame; the numbers of those that nobody will speak of."""
_encode = msgspec.msgpack.Encoder().encode
_decoder: msgspec.msgpack.Decoder[list[msg.ToWorker]] = msgspec.msgpack.Decoder(list[msg.ToWorker])


LOOK_S = 1.0
"""Time between two looks whether a payload can be stored, or read, at all."""


class RayLink:
    """The connection to the driver, as a worker process sees it."""

    closed = False
    """Workers end with their driver: Ray sees to that."""

    def __init__(self) -> None:
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._in: deque[list[msg.ToWorker]] = deque()
        self._early: dict[int, tuple[bytes, Lent]] = {}
        """Frames that came before an older one."""
        self._next = 0
        self._unsent: list[Any] = []
        self._frames: SimpleQueue[Frame | None] = SimpleQueue()
        self.store: ObjectStore | None = None
        """Where payloads are put that messages speak of."""
        self.refs: dict[Key, list[Any]] = {}
        """Payloads that came with messages and were not opened yet; one that was taken back may have come again."""
        self.lost: set[int] = set()
        """Workers whose nodes are gone, and with them what they made."""

    # -- called by Ray ------------------------------------------------------------------------------------------------

    def deliver(self, number: int, frame: bytes, refs: Lent) -> None:
        """A frame came from the driver."""
        self._early[number] = (frame, refs)
        while (came := self._early.pop(self._next, None)) is not None:
            self._next += 1
            for key, ref in came[1]:
                self.refs.setdefault(key, []).append(ref)
            self._in.append(_decoder.decode(came[0]))
            os.eventfd_write(self._bell, 1)

    def frames(self) -> Iterator[Frame]:
        """What goes to the driver, until the end."""
        while (frame := self._frames.get()) is not None:
            yield frame

    # -- called by the worker -----------------------------------------------------------------------------------------

    @property
    def has_unsent(self) -> bool:
        """Whether anything waits to be sent."""
        return bool(self._unsent)

    def fileno(self) -> int:
        """Readable when a message is there."""
        return self._bell

    def queue(self, message: Any) -> None:
        """Send with the next `flush`."""
        self._unsent.append(message)

    def flush(self) -> bool:
        """Hand the frame over."""
        if self._unsent:
            unsent, self._unsent = self._unsent, []
            count, freed = self.store.take_news() if self.store is not None else (0, [])
            self._frames.put((_encode(unsent), count, freed))
        return True

    def receive(self, *, wait: bool = False) -> list[msg.ToWorker]:
        """Messages that are there; with `wait` at least one."""
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
        """No descriptor ever comes this way."""
        raise AssertionError("payloads are objects here, not arenas")

    def close(self) -> None:
        """Nothing more is sent."""
        self.flush()
        self._frames.put(None)


class ObjectStore:
    """Where a worker puts what it emits: yielded to the driver, so that the driver owns it."""

    def __init__(self, link: RayLink, number: int = 0) -> None:
        self._link = link
        self.number = number
        """Of the worker, once that is known."""
        self._serial = self._count = 0
        self._freed: list[int] = []
        self._waiting: SimpleQueue[tuple[Parts, threading.Event] | None] = SimpleQueue()
        self._stored = threading.Event()
        self._is_broken = False
        link.store = self

    def objects(self) -> Iterator[Parts]:
        """Payloads, until the end."""
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
        """Wait until a task lies in the store: what it is made of may change afterwards."""
        self._serial += 1
        self._count += 1
        stored = threading.Event()
        self._waiting.put(([encoded.head, *(np.frombuffer(view, np.uint8) for view in encoded.buffers)], stored))
        while not stored.wait(LOOK_S) and not self._is_broken:
            pass  # after each wait this thread can be told to end
        if self._is_broken:
            raise PeerGone(f"Ray could not take a payload of {encoded.nbytes / 1e6:.1f} MB into its object store")
        return Payload(encoded.lengths or (len(encoded.head),), b"", self.number, self._serial)

    def take_news(self) -> tuple[int, list[int]]:
        """How many payloads were stored since this was last asked, and which ones nobody will speak of."""
        count, self._count = self._count, 0
        freed, self._freed = self._freed, []
        return count, freed

    def free(self, offset: int) -> None:
        """A payload that no message will speak of; the driver owns it, and lets go of it."""
        self._freed.append(offset)

    def reader(self) -> RefReader:
        """Opens what came from the driver by reference."""
        return RefReader(self._link.refs, self._link.lost)

    def close(self) -> None:
        """Nothing more is put."""
        self._waiting.put(None)


class RefReader:
    """Opens payloads in place, in the object store of this node; Ray brings them there."""

    def __init__(self, refs: dict[Key, list[Any]], lost: set[int]) -> None:
        """`lost`: workers whose payloads are gone, unless a copy is here. The driver knows that long before Ray."""
        self._refs, self._lost = refs, lost
        self._ended: deque[int] = deque()
        self.held_bytes = 0
        """Bytes of payloads that were still looked at when `ended` was last asked."""

    def open(self, payload: Payload) -> Task:
        """The task of a payload. Raises `PayloadMissing`."""
        if payload.arena == NOWHERE:
            return decode_inline(payload)
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
        return decode(head, [self._view(n, part) for n, part in zip(payload.lengths[1:], buffers, strict=True)])

    def _view(self, length: int, part: NDArray[np.uint8]) -> Any:
        if length < 0:
            return bytearray(part)
        self.held_bytes += part.nbytes
        finalizer = weakref.finalize(part, self._ended.append, part.nbytes)
        finalizer.atexit = False
        return part.data.toreadonly()

    def give_up(self, payload: Payload) -> None:
        """A payload that came and was never opened."""
        if payload.arena != NOWHERE:
            self._take((payload.arena, payload.offset))

    def _take(self, key: Key) -> Any:
        refs = self._refs[key]
        ref = refs.pop()
        if not refs:
            del self._refs[key]
        return ref

    def ended(self) -> list[Key]:
        """Nobody need be told: Ray counts references."""
        while self._ended:
            self.held_bytes -= self._ended.popleft()
        return []

    def add(self, number: int, arena: Any) -> None:
        """Every object is readable everywhere."""

    def drop(self, number: int) -> None:
        """Nothing is kept for it."""
