# SPDX-License-Identifier: Apache-2.0
"""Tasks as bytes: pickle protocol 5, the large parts beside the pickle so that a reader need not copy them.

Pickle is for our own living processes only, never for a file that outlives them. Classes and functions of the user's
main script travel by value (cloudpickle), because no process but the driver ever runs that script.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from thresher.core.batch import DocumentBatch
from thresher.core.task import RawChunk, Task
from thresher.errors import RunFailedError

ALIGNMENT = 64
"""Every part starts at a multiple of it, as Arrow likes its buffers."""
INLINE_BYTES = 64 * 1024
"""A smaller payload travels inside the message; measured, shared memory pays above this."""
IN_BAND_BYTES = 1024
"""A smaller buffer is copied into the pickle: a part of its own would cost more than the copy."""
NOWHERE = -1
"""The `arena` of a payload that lies in its message or in a file."""
_OURS = (DocumentBatch, RawChunk)
"""Types whose buffers nobody changes in place, even where the buffer itself would allow it."""


class Payload(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Where an encoded task lies."""

    lengths: tuple[int, ...]
    """Of its parts, the pickle first; negative: the reader may change that part, and gets a copy. Empty: one part."""
    data: bytes = b""
    """The bytes, where they travel in the message."""
    arena: int = NOWHERE
    """The worker whose shared memory holds it."""
    offset: int = 0
    """Its place there."""
    path: str = ""
    """The file that holds it (batch mode)."""
    sha256: bytes = b""
    """Of that file: a pickle is read from a file only if it is the one that a process of this run wrote."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes, padding included."""
        return layout(self.lengths)[1] if self.lengths else len(self.data)


class Encoded(msgspec.Struct, gc=False):
    """A task as bytes that still lie apart."""

    head: bytes
    """The pickle."""
    buffers: list[memoryview]
    """Its large parts."""
    lengths: tuple[int, ...]
    """As in `Payload`; empty where there are no buffers."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes when it is laid out."""
        return layout(self.lengths)[1] if self.lengths else len(self.head)

    def laid_out(self) -> list[bytes | memoryview]:
        """All parts with the padding between them, ready to be written one after the other."""
        pieces: list[bytes | memoryview] = [self.head]
        for part, buffer in zip(self.lengths, self.buffers, strict=False):
            gap = -abs(part) % ALIGNMENT
            if gap:
                pieces.append(bytes(gap))
            pieces.append(buffer)
        return pieces

    def inline(self) -> Payload:
        """As a payload that travels in the message."""
        if not self.lengths:
            return Payload((), self.head)
        return Payload(self.lengths, b"".join(self.laid_out()))


class EncodeError(TypeError):
    """A task that cannot leave its process."""


def layout(lengths: Sequence[int]) -> tuple[list[int], int]:
    """Where each part starts, and the size of the whole."""
    padded = list(accumulate((abs(n) + ALIGNMENT - 1 & -ALIGNMENT for n in lengths), initial=0))
    return padded[:-1], padded[-2] + abs(lengths[-1])


def encode(task: Task, *, from_main: bool = False) -> Encoded:
    """`from_main` is set in the driver, whose main script the readers have never seen."""
    buffers: list[memoryview] = []
    copied: list[bool] = []
    ours = type(task) in _OURS

    def keep_inside(buffer: pickle.PickleBuffer) -> bool:
        view = buffer.raw()
        if view.nbytes < IN_BAND_BYTES:
            return True
        buffers.append(view)
        copied.append(not (ours or view.readonly or type(view.obj).__module__.startswith("pyarrow")))
        return False

    try:
        head = pickle.dumps(task, 5, buffer_callback=keep_inside)
        by_value = from_main and b"__main__" in head
    except (pickle.PicklingError, AttributeError, TypeError):
        by_value = True  # a lambda, a class inside a function, or something that nothing can pickle
    if by_value:
        buffers.clear()
        copied.clear()
        head = _by_value(task, keep_inside)
    if not buffers:
        return Encoded(head, buffers, ())
    sizes = (-view.nbytes if copy else view.nbytes for view, copy in zip(buffers, copied, strict=True))
    return Encoded(head, buffers, (len(head), *sizes))


def _by_value(task: Task, keep_inside: Any) -> bytes:
    import cloudpickle

    file = io.BytesIO()
    try:
        cloudpickle.Pickler(file, protocol=5, buffer_callback=keep_inside).dump(task)
    except Exception as error:  # a user's own __reduce__ may raise anything
        raise EncodeError(
            f"{type(task).__name__} cannot be sent to another process: {error}. "
            "Put only data into a task; keep open files, locks and models in the stage (setup)"
        ) from error
    return file.getvalue()


def decode(head: Any, buffers: Iterable[Any] = ()) -> Task:
    """The task behind a pickle and its buffers."""
    task: Task = pickle.loads(head, buffers=buffers)
    return task


def decode_parts(lengths: Sequence[int], whole: memoryview) -> Task:
    """The task whose parts lie in `whole`; it looks at them in place, except for those that it may change."""
    starts, _ = layout(lengths)
    parts: list[Any] = []
    for start, length in zip(starts, lengths, strict=True):
        view = whole[start : start + abs(length)]
        parts.append(bytearray(view) if length < 0 else view.toreadonly())
    return decode(parts[0], parts[1:])


def decode_inline(payload: Payload) -> Task:
    """The task of a payload that came in a message."""
    if not payload.lengths:
        return decode(payload.data)
    return decode_parts(payload.lengths, memoryview(payload.data))


def spill(encoded: Encoded, path: str) -> Payload:
    """Put a task into a file (batch mode)."""
    pieces = encoded.laid_out()
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    with open(path, "xb", buffering=0) as file:
        _write_all(file.fileno(), pieces)
    return Payload(encoded.lengths or (len(encoded.head),), path=path, sha256=digest.digest())


def _write_all(fd: int, pieces: Sequence[bytes | memoryview]) -> None:
    views = [memoryview(piece) for piece in pieces]
    for view in views:
        while view.nbytes:
            view = view[os.write(fd, view) :]


def read_spilled(payload: Payload) -> Task:
    """The task in a file."""
    with open(payload.path, "rb") as file:
        content = file.read()
    if hashlib.sha256(content).digest() != payload.sha256:
        raise RunFailedError(
            f"{payload.path}: not as this run wrote it; somebody else, or a broken disk, changed it. "
            "Run the same command again, and keep others out of the run folder"
        )
    return decode_parts(payload.lengths, memoryview(content))
