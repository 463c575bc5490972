# SPDX-License-Identifier: Apache-2.0
"""Detect repeated pieces of a text with a hash table for the pieces of one batch.

A piece is found by its hash and compared byte by byte, so the answer is exact. Every text has its own number in the
table, so that nothing has to be cleared between texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import get, hash_bytes, helper, put, same_bytes
from thresher.kernels.build.signatures import types

TABLE = types.int64[::1]
"""The type of a table."""
_SLOT = 4
"""A slot has the number of the text, the hash of the piece, its start and its length."""


def table_for(pieces: int) -> npt.NDArray[np.int64]:
    """Return a table for texts of up to this number of pieces each."""
    slots = 16
    while slots < 2 * pieces:
        slots *= 2
    return np.zeros(slots * _SLOT, dtype=np.int64)


@helper
def part_for(table: Any, pieces: int) -> Any:
    """Return the first part of a table, which suffices for a text of this number of pieces and stays in a fast
    cache."""
    slots = 16
    while slots < 2 * pieces:
        slots *= 2
    return table[: slots * _SLOT]


@helper
def seen_before(table: Any, text: int, data: Any, start: int, end: int) -> bool:
    """Return True if a text (numbered from 1) has had this piece before; otherwise add it."""
    code = np.int64(hash_bytes(data, start, end))
    length = end - start
    last = len(table) // _SLOT - 1
    slot = code & last
    while get(table, _SLOT * slot) == text:
        position = _SLOT * slot
        is_like = get(table, position + 1) == code and get(table, position + 3) == length
        if is_like and same_bytes(data, get(table, position + 2), start, length):
            return True
        slot = (slot + 1) & last
    position = _SLOT * slot
    put(table, position, text)
    put(table, position + 1, code)
    put(table, position + 2, start)
    put(table, position + 3, length)
    return False
