# SPDX-License-Identifier: Apache-2.0
"""Encoding of tasks: pickle protocol 5, with large buffers and `bytes` outside the pickle.

A writer copies each of them once, to where it is sent from, and a reader gets read-only views. Only a `bytes` object,
which cannot refer to memory of others, is copied by the reader too. Buffers that a stage writes to in place are copied
when it tries to (`CopyNeeded`).

Pickle is used only between running processes of one run, never for a file that outlives them. Classes and functions of
the user's main script are encoded by value (cloudpickle), because only the driver runs that script.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Protocol, cast

import msgspec

from thresher.core.task import Task
from thresher.credentials import message_of
from thresher.errors import RunFailedError
from thresher.runtime.payloads.large_bytes import BytesApart, bytes_of, has_large_bytes, writable_copy
from thresher.stage_errors import ControlSignal, is_read_only

ALIGNMENT = 64
"""Alignment of every part, as Arrow prefers for its buffers."""
INLINE_BYTES = 64 * 1024
"""A smaller payload is sent inside the message; shared memory was measured to pay off above this size."""
IN_BAND_BYTES = 1024
"""A smaller buffer is copied into the pickle, which costs less than a separate part."""
LARGE_PICKLE_BYTES = 2**20
"""A larger pickle is searched for `bytes` objects that should be parts of their own."""
NOWHERE = -1
"""The `arena` of a payload that is in its message or in a file."""


class Payload(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Location of an encoded task."""

    lengths: tuple[int, ...]
    """Lengths of its parts, the pickle first; negative: that part is a `bytes` object. Empty: one part."""
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
    made = _pickled(task, from_main=from_main, apart=type(task) in _types_with_bytes)
    if len(made.head) > LARGE_PICKLE_BYTES and type(task) not in _types_with_bytes and has_large_bytes(vars(task)):
        _types_with_bytes.add(type(task))
        made = _pickled(task, from_main=from_main, apart=True)
    return made


_types_with_bytes: set[type[Task]] = set()
"""Types of tasks in which large `bytes` objects were found. To look for them costs time for each object of a task."""


def _pickled(task: Task, *, from_main: bool, apart: bool) -> Encoded:
    """Encode a task; `apart`: with large `bytes` objects as parts of their own."""
    buffers: list[memoryview] = []

    def is_in_band(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < IN_BAND_BYTES:
            return True
        buffers.append(view)
        return False

    found = BytesApart() if apart else None
    try:
        if found is None:
            head = pickle.dumps(task, 5, buffer_callback=is_in_band)
        else:
            head = _dump(pickle.Pickler, task, is_in_band, found)
        by_value = from_main and b"__main__" in head
    except (pickle.PicklingError, AttributeError, TypeError):
        by_value = True  # a lambda, a local class, or something that cannot be pickled at all
    if by_value:
        buffers.clear()
        found = BytesApart() if apart else None
        head = _by_value(task, is_in_band, found)
    objects = [memoryview(value) for value in found.objects] if found is not None else []
    if not buffers and not objects:
        return Encoded(head, [], ())
    lengths = (len(head), *(view.nbytes for view in buffers), *(-view.nbytes for view in objects))
    return Encoded(head, [*buffers, *objects], lengths)


def _dump(pickler: Any, task: Task, is_in_band: Any, found: BytesApart | None) -> bytes:
    file = io.BytesIO()
    made = pickler(file, protocol=5, buffer_callback=is_in_band)
    if found is not None:
        made.persistent_id = found.place_of
    made.dump(task)
    return file.getvalue()


def _by_value(task: Task, is_in_band: Any, found: BytesApart | None) -> bytes:
    import cloudpickle

    try:
        return _dump(cloudpickle.Pickler, task, is_in_band, found)
    except ControlSignal:
        raise
    except BaseException as error:  # a user's own __reduce__ may raise anything
        raise EncodeError(
            f"{type(task).__name__} cannot be sent to another process: {message_of(error)}. "
            "Put only data into a task; keep open files, locks and models in the stage (setup)"
        ) from error


def decode(head: Any, lengths: Sequence[int] = (), parts: Sequence[Any] = ()) -> Task:
    """Decode a task from its pickle and the parts beside it, whose `lengths` are as in `Payload`."""
    if not lengths or lengths[-1] >= 0:
        task: Task = pickle.loads(head, buffers=parts)
        return task
    objects = [part for length, part in zip(lengths, parts, strict=True) if length < 0]
    unpickler = pickle.Unpickler(io.BytesIO(head), buffers=parts[: len(parts) - len(objects)])
    copied: dict[int, bytes] = {}

    def load(place: int) -> bytes:
        if place not in copied:
            copied[place] = bytes_of(memoryview(objects[place]))
        return copied[place]

    unpickler.persistent_load = load  # type: ignore[method-assign]  # may be set on an unpickler as well
    return cast(Task, unpickler.load())


def decode_parts(lengths: Sequence[int], whole: memoryview, *, own: bool = False) -> Task:
    """Decode the task whose parts are in `whole`, in place or (`own`) with copies of its buffers."""
    starts, _ = layout(lengths)
    head, *parts = [whole[start : start + abs(length)] for start, length in zip(starts, lengths, strict=True)]
    return (decode_own if own else decode)(head, lengths[1:], parts)


def decode_own(head: Any, lengths: Sequence[int], parts: Sequence[Any]) -> Task:
    """Decode a task with copies of its buffers, which it may change, also where its producer had read-only views."""
    copies = [part if length < 0 else writable_copy(part) for length, part in zip(lengths, parts, strict=True)]
    return decode(_without_read_only(bytes(head)), lengths, copies)


def _without_read_only(head: bytes) -> bytes:
    """Return a pickle that does not ask for read-only buffers; as long as before, since frames have lengths."""
    pair = pickle.NEXT_BUFFER + pickle.READONLY_BUFFER
    if pair not in head:
        return head
    import pickletools  # slow to import, and rarely needed

    found = [at for opcode, _, at in pickletools.genops(head) if opcode.name == "READONLY_BUFFER" and at is not None]
    ends = [*found, len(head)]
    starts = [0, *(at + 1 for at in found)]
    return b"".join(head[start:end] for start, end in zip(starts, ends, strict=True)) + bytes(len(found))


class CopyNeeded(ControlSignal):
    """Raised if a stage tried to change a buffer that is shared with other processes: its call starts again, with
    copies."""


_are_views_lent = False


@contextlib.contextmanager
def views_lent(are_lent: bool) -> Iterator[None]:
    """Run stages of this process whose tasks may have read-only views where their producer had writable buffers."""
    global _are_views_lent  # one worker per process; a stage that fails does not know where its buffers are
    _are_views_lent = are_lent
    try:
        yield
    finally:
        _are_views_lent = False


def raise_if_view_written(error: BaseException) -> None:
    """Raise `CopyNeeded` if an error of a stage says that it tried to change a view."""
    if _are_views_lent and is_read_only(error):
        raise CopyNeeded from None


def decode_inline(payload: Payload, *, own: bool = False) -> Task:
    """Decode a payload whose bytes are inline; `own` as for `decode_parts`."""
    if not payload.lengths:
        return decode(payload.data)
    return decode_parts(payload.lengths, memoryview(payload.data), own=own)


def decode_result(payload: Payload) -> Task:
    """Decode an inline payload for the caller of a run, who may change all that belongs to the task."""
    task = decode_inline(payload)
    is_constant = "has_constant_buffers" in type(task).__dict__ and task.has_constant_buffers
    return task if is_constant or not payload.lengths else decode_inline(payload, own=True)


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


def read_spilled(payload: Payload, *, own: bool = False) -> Task:
    """Read and decode a task from a file; `own` as for `decode_parts`."""
    with open(payload.path, "rb") as file:
        content = file.read()
    if hashlib.sha256(content).digest() != payload.sha256:
        raise RunFailedError(
            f"{payload.path}: changed since this run wrote it, by another process or a faulty disk. "
            "Run the same command again, and keep other processes out of the run folder"
        )
    return decode_parts(payload.lengths, memoryview(content), own=own)


class PayloadReader(Protocol):
    """Reader of the payloads of all workers."""

    can_reopen: bool
    """True if a payload can be opened once more while its lease lasts."""

    held_bytes: int
    """Bytes of payloads with open leases, as of the last call of `ended`."""

    def open(self, payload: Payload, *, own: bool = False) -> Task:
        """Return the task of a payload, with copies of its buffers if `own`. Raises `PayloadMissing`."""

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
