# SPDX-License-Identifier: Apache-2.0
"""Large `bytes` objects of tasks: sent beside the pickle, so that their sender does not copy them into it first.

Pickle takes buffers out of band, but never `bytes`. A `bytes` object owns its memory, so its reader must make a copy,
and most of the time of that copy is spent on fresh pages.
"""

from __future__ import annotations

import functools
import mmap
from itertools import islice
from typing import Any

APART_BYTES = 64 * 1024
"""A smaller `bytes` object is part of the pickle."""
_SAMPLED, _DEPTH = 16, 3
"""Of a collection this many values are searched, and collections in it this deep."""
_HUGE_PAGES_FROM = 4 * 2**20
"""A copy of this size is made on huge pages, if the system allows that: twice as fast where pages are fresh."""
_HEADER_BYTES = bytes.__basicsize__ - 1
"""Size of a `bytes` object before its content, which a zero byte follows."""


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


def copy_to_bytes(view: Any) -> bytes:
    """Return a copy of a buffer."""
    with memoryview(view) as source:
        return bytes(source) if source.nbytes < _HUGE_PAGES_FROM else _copy_on_huge_pages(source)


def _copy_on_huge_pages(source: memoryview) -> bytes:
    import ctypes

    import numpy as np

    new_bytes, madvise = _c_functions()
    size = source.nbytes
    made: bytes = new_bytes(None, size)  # without content: it is filled before anybody else sees it, as C code does
    start = id(made) + _HEADER_BYTES
    first = start + mmap.PAGESIZE - 1 & -mmap.PAGESIZE
    madvise(first, start + size - first & -mmap.PAGESIZE, mmap.MADV_HUGEPAGE)  # where it is refused, pages are small
    ctypes.memmove(start, np.frombuffer(source, np.uint8).ctypes.data, size)
    return made


@functools.cache
def _c_functions() -> tuple[Any, Any]:
    import ctypes

    new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
    new_bytes.restype, new_bytes.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_ssize_t)
    madvise = ctypes.CDLL(None).madvise
    madvise.restype, madvise.argtypes = ctypes.c_int, (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    return new_bytes, madvise
