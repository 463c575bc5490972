# SPDX-License-Identifier: Apache-2.0
"""Hash tables for loops over one document after the other: nothing is cleared between two documents.

A slot is marked with one number: an epoch in the upper 32 bits, what it holds in the lower ones. A slot of another
epoch is empty, so a new table is a new epoch. The upper bits of a hash name the slot that is looked at first; the next
ones follow. A table uses only the first slots of its array, so that those of small documents stay in the fastest cache.
Epochs outlive documents and batches: an array and its epoch are kept together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import helper
from thresher.kernels.bytes.tie_hash import PHRASE_FACTOR, WORD_FACTOR

FACTOR = np.uint64(WORD_FACTOR)
"""Multiplying by it spreads a number over the upper bits."""
OTHER_FACTOR = np.uint64(PHRASE_FACTOR)
"""A second multiplier for the same purpose."""
LOWER = np.uint64(2**32 - 1)
"""The lower half of a number: what a slot holds."""
HALF = np.uint64(32)
"""Shifts a number into the upper half, or back."""
_FEWEST_BITS = 4
_ONE = np.uint64(1)
_NONE = np.uint64(0)


def slots_for(entries: int) -> int:
    """Return the number of slots of a table for this number of entries: a power of two, at least twice as many."""
    return 1 << max(_FEWEST_BITS, (2 * entries - 1).bit_length())


@helper
def bits_for(entries: int) -> int:
    """Return the number of bits of a slot number; see `slots_for`."""
    bits = _FEWEST_BITS
    while (1 << bits) < 2 * entries:
        bits += 1
    return bits


@helper
def new_epoch(epoch: Any, table: Any) -> Any:
    """Start an epoch, in which all slots are empty, and return its mark. The table is cleared only when epochs run
    out."""
    value = epoch[0] + _ONE
    if value > LOWER:
        table[:] = _NONE
        value = _ONE
    epoch[0] = value
    return value << HALF
