# SPDX-License-Identifier: Apache-2.0
"""Large `bytes` objects of tasks: sent beside the pickle, so that their sender does not copy them into it first.

Pickle takes buffers out of band, but never `bytes`. A `bytes` object owns its memory, so its reader must make a copy.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

APART_BYTES = 64 * 1024
"""A smaller `bytes` object is part of the pickle."""
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
