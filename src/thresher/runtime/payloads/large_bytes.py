# SPDX-License-Identifier: Apache-2.0
"""Large `bytes` objects of tasks, which are sent beside the pickle, so that their sender does not copy them into it
first; and copies for a reader that must own its memory.

Pickle takes buffers out of band, but never `bytes`. A `bytes` object owns its memory, so its reader must make a copy,
as for a buffer that a stage writes to. Four fifths of the time of such a copy are page faults of its fresh memory. In
huge pages, which the kernel uses where it is asked to, there are far fewer: it takes about half of the time or less.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from functools import cache as once
from itertools import islice
from typing import Any

APART_BYTES = 64 * 1024
"""A smaller `bytes` object is part of the pickle."""
HUGE_BYTES = 4 * 2**20
"""A larger copy is made in huge pages, as NumPy does for its arrays."""
_SAMPLED, _DEPTH = 16, 3
"""Of a collection this many values are searched, and collections in it this deep."""


def has_large_bytes(data: Any, depth: int = _DEPTH) -> bool:
    """Return True if large `bytes` objects are found among some values of a collection."""
    if type(data) is bytes:
        return len(data) >= APART_BYTES
    values = data.values() if isinstance(data, dict) else data if isinstance(data, list | tuple) else ()
    step = max(1, len(values) // _SAMPLED)
    return depth >= 0 and any(has_large_bytes(value, depth - 1) for value in islice(values, 0, None, step))


class BytesApart:
    """The large `bytes` objects of one task, as a pickler meets them."""

    def __init__(self) -> None:
        self.objects: list[bytes] = []
        self._places: dict[int, int] = {}

    def place_of(self, value: Any) -> int | None:
        """Return the place of a large `bytes` object among those of its task; `None` for everything else."""
        if type(value) is not bytes or len(value) < APART_BYTES:
            return None
        place = self._places.setdefault(id(value), len(self.objects))
        if place == len(self.objects):
            self.objects.append(value)
        return place


def writable_copy(part: Any) -> bytearray | memoryview:
    """Return a copy of a buffer that its owner may change."""
    if memoryview(part).nbytes < HUGE_BYTES:
        return bytearray(part)
    import numpy as np

    return np.frombuffer(part, np.uint8).copy().data  # NumPy asks for huge pages


def bytes_of(part: memoryview) -> bytes:
    """Return a copy of a buffer as a `bytes` object."""
    if part.nbytes < HUGE_BYTES:
        return bytes(part)
    import numpy as np

    made: bytes = _new_bytes()(None, part.nbytes)
    target = np.frombuffer(made, np.uint8).ctypes.data
    start, end = target + mmap.PAGESIZE - 1 & -mmap.PAGESIZE, target + part.nbytes & -mmap.PAGESIZE
    _advise()(start, end - start, mmap.MADV_HUGEPAGE)  # a refusal costs speed alone
    ctypes.memmove(target, np.frombuffer(part, np.uint8).ctypes.data, part.nbytes)
    return made


@once
def _new_bytes() -> Callable[..., bytes]:
    """Return CPython's function for a `bytes` object whose contents are written by the caller, before others see it."""
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
    return prototype(("PyBytes_FromStringAndSize", ctypes.pythonapi))


@once
def _advise() -> Callable[..., int]:
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return prototype(("madvise", ctypes.CDLL(None)))
