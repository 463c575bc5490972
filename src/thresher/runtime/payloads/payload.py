# SPDX-License-Identifier: Apache-2.0
"""Encoding of tasks: pickle protocol 5, with large buffers outside the pickle, so that a reader need not copy them.

Pickle is used only between running processes of one run, never for a file that outlives them. Classes and functions of
the user's main script are encoded by value (cloudpickle), because only the driver runs that script.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Protocol

import msgspec

from thresher.core.task import Task
from thresher.credentials import message_of
from thresher.errors import RunFailedError
from thresher.stage_errors import ControlSignal

ALIGNMENT = 64
"""Alignment of every part, as Arrow prefers for its buffers."""
INLINE_BYTES = 64 * 1024
"""A smaller payload is sent inside the message; shared memory was measured to pay off above this size."""
IN_BAND_BYTES = 1024
"""A smaller buffer is copied into the pickle, which costs less than a separate part."""
NOWHERE = -1
"""The `arena` of a payload that is in its message or in a file."""


class Payload(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Location of an encoded task."""

    lengths: tuple[int, ...]
    """Lengths of its parts, the pickle first; negative: the reader may change that part and gets a copy. Empty: one
    part."""
    data: bytes = b""
    """The bytes, if they are sent in the message."""
    arena: int = NOWHERE
    """The worker whose arena holds it."""
    offset: int = 0
    """Its offset in the arena."""
    path: str = ""
    """The file that holds it (batch mode)."""
    sha256: bytes = b""
    """Checksum of that file: a pickle is loaded from a file only if a process of this run wrote it."""

    @property
    def nbytes(self) -> int:
        """Size in bytes, padding included."""
        return layout(self.lengths)[1] if self.lengths else len(self.data)


class Encoded(msgspec.Struct, gc=False):
    """An encoded task whose parts are still separate."""

    head: bytes
    """The pickle."""
    buffers: list[memoryview]
    """The buffers outside the pickle."""
    lengths: tuple[int, ...]
    """As in `Payload`; empty if there are no buffers."""

    @property
    def nbytes(self) -> int:
        """Size in bytes, padding included."""
        return layout(self.lengths)[1] if self.lengths else len(self.head)

    def laid_out(self) -> list[bytes | memoryview]:
        """Return all parts with the padding between them, in the order in which they are written."""
        pieces: list[bytes | memoryview] = [self.head]
        for part, buffer in zip(self.lengths, self.buffers, strict=False):
            gap = -abs(part) % ALIGNMENT
            if gap:
                pieces.append(bytes(gap))
            pieces.append(buffer)
        return pieces

    def inline(self) -> Payload:
        """Return a payload with the bytes inline."""
        if not self.lengths:
            return Payload((), self.head)
        return Payload(self.lengths, b"".join(self.laid_out()))


class EncodeError(TypeError):
    """Raised for a task that cannot be sent to another process."""


class PayloadMissing(Exception):
    """Raised for a payload that can no longer be read: its machine is gone, or its object was lost."""


def layout(lengths: Sequence[int]) -> tuple[list[int], int]:
    """Return the start of each part, and the total size."""
    padded = list(accumulate((abs(n) + ALIGNMENT - 1 & -ALIGNMENT for n in lengths), initial=0))
    return padded[:-1], padded[-2] + abs(lengths[-1])


def encode(task: Task, *, from_main: bool = False) -> Encoded:
    """Encode a task. `from_main` is set in the driver, whose main script the readers do not run."""
    buffers: list[memoryview] = []
    copied: list[bool] = []
    constant = "has_constant_buffers" in type(task).__dict__ and task.has_constant_buffers

    def is_in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < IN_BAND_BYTES:
            return True
        buffers.append(view)
        copied.append(not (constant or view.readonly or type(view.obj).__module__.startswith("pyarrow")))
        return False

    try:
        head = pickle.dumps(task, 5, buffer_callback=is_in_band)
        by_value = from_main and b"__main__" in head
    except (pickle.PicklingError, AttributeError, TypeError):
        by_value = True  # a lambda, a local class, or something that cannot be pickled at all
    if by_value:
        buffers.clear()
        copied.clear()
        head = _by_value(task, is_in_band)
    if not buffers:
        return Encoded(head, buffers, ())
    sizes = (-view.nbytes if copy else view.nbytes for view, copy in zip(buffers, copied, strict=True))
    return Encoded(head, buffers, (len(head), *sizes))


def _by_value(task: Task, is_in_band: Any) -> bytes:
    import cloudpickle

    file = io.BytesIO()
    try:
        cloudpickle.Pickler(file, protocol=5, buffer_callback=is_in_band).dump(task)
    except ControlSignal:
        raise
    except BaseException as error:  # a user's own __reduce__ may raise anything
        raise EncodeError(
            f"{type(task).__name__} cannot be sent to another process: {message_of(error)}. "
            "Put only data into a task; keep open files, locks and models in the stage (setup)"
        ) from error
    return file.getvalue()


def decode(head: Any, buffers: Iterable[Any] = ()) -> Task:
    """Decode a task from its pickle and buffers."""
    task: Task = pickle.loads(head, buffers=buffers)
    return task


def decode_parts(lengths: Sequence[int], whole: memoryview) -> Task:
    """Decode the task whose parts are in `whole`; it uses them in place, except for those that it may change."""
    starts, _ = layout(lengths)
    parts: list[Any] = []
    for start, length in zip(starts, lengths, strict=True):
        view = whole[start : start + abs(length)]
        parts.append(bytearray(view) if length < 0 else view.toreadonly())
    return decode(parts[0], parts[1:])


def decode_inline(payload: Payload) -> Task:
    """Decode a payload whose bytes are inline."""
    if not payload.lengths:
        return decode(payload.data)
    return decode_parts(payload.lengths, memoryview(payload.data))


def spill(encoded: Encoded, path: str) -> Payload:
    """Write an encoded task to a file (batch mode)."""
    pieces = encoded.laid_out()
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    with open(path, "xb", buffering=0) as file:
        write_pieces(file.fileno(), pieces)
    return Payload(encoded.lengths or (len(encoded.head),), path=path, sha256=digest.digest())


def write_pieces(fd: int, pieces: Sequence[bytes | memoryview], offset: int = 0) -> None:
    """Write pieces one after the other, from `offset` on."""
    for piece in pieces:
        view = memoryview(piece)
        while view.nbytes:
            written = os.pwrite(fd, view, offset)
            offset += written
            view = view[written:]


def read_spilled(payload: Payload) -> Task:
    """Read and decode a task from a file."""
    with open(payload.path, "rb") as file:
        content = file.read()
    if hashlib.sha256(content).digest() != payload.sha256:
        raise RunFailedError(
            f"{payload.path}: changed since this run wrote it, by another process or a faulty disk. "
            "Run the same command again, and keep other processes out of the run folder"
        )
    return decode_parts(payload.lengths, memoryview(content))


class PayloadReader(Protocol):
    """Reader of the payloads of all workers."""

    held_bytes: int
    """Bytes of payloads with open leases, as of the last call of `ended`."""

    def open(self, payload: Payload) -> Task:
        """Return the task of a payload. Raises `PayloadMissing`."""

    def give_up(self, payload: Payload) -> None:
        """End the lease of a payload that was never opened."""

    def ended(self) -> list[tuple[int, int]]:
        """Return the leases that ended since the last call: arena and offset."""

    def add(self, number: int, arena: Any) -> None:
        """Make the payloads of another worker readable, if that requires a step."""

    def drop(self, number: int) -> None:
        """Remove the payloads of a worker."""


class PayloadStore(Protocol):
    """Store for the outputs of a worker."""

    number: int
    """Id of the worker."""

    def put(self, encoded: Encoded) -> Payload:
        """Store a copy of an encoded task."""

    def free(self, offset: int) -> None:
        """Free a payload of this worker."""

    def reader(self) -> PayloadReader:
        """Return a reader of the payloads of this worker and others."""
