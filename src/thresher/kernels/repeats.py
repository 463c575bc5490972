# SPDX-License-Identifier: Apache-2.0
"""Which pieces of a text were there before: a table of one batch's pieces, asked piece by piece.

A piece is known by a hash and compared byte by byte, so the answer is exact. Every text has its own number in the
table, so that nothing has to be cleared between texts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.intrinsics import get, hash_bytes, helper, put, same_bytes
from thresher.kernels.signatures import types

TABLE = types.int64[::1]
"""The type of a table."""
_SLOT = 4
"""A slot has the number of the text, the hash of the piece, its start and its length."""


def table_for(pieces: int) -> npt.NDArray[np.int64]:
    """A table for texts with up to so many pieces each."""
    slots = 16
    while slots < 2 * pieces:
        slots *= 2
    return np.zeros(slots * _SLOT, dtype=np.int64)


@helper
def part_for(table: Any, pieces: int) -> Any:
    """The first part of a table, which is enough for a text of so many pieces and stays in a fast cache."""
    slots = 16
    while slots < 2 * pieces:
        slots *= 2
    return table[: slots * _SLOT]


@helper
def seen_before(table: Any, text: int, data: Any, start: int, end: int) -> bool:
    """Whether a text (its number is 1 or more) had this piece before; if not, it has now."""
    code = np.int64(hash_bytes(data, start, end))
    length = end - start
    last = len(table) // _SLOT - 1
    slot = code & last
    while get(table, _SLOT * slot) == text:
        place = _SLOT * slot
        is_like = get(table, place + 1) == code and get(table, place + 3) == length
        if is_like and same_bytes(data, get(table, place + 2), start, length):
            return True
        slot = (slot + 1) & last
    place = _SLOT * slot
    put(table, place, text)
    put(table, place + 1, code)
    put(table, place + 2, start)
    put(table, place + 3, length)
    return False
