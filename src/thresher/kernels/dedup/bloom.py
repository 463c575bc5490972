# SPDX-License-Identifier: Apache-2.0
"""A Bloom filter: a set that may say of a hash that it has it although it has not, and never the reverse.

The bits of a hash are all in one block of 512 bits, so that a look-up costs one access to memory (Putze, Sanders and
Singler, "Cache-, hash- and space-efficient Bloom filters", 2007). Blocks do not fill evenly, which costs more bits for
the same rate of errors; `blocks_for` takes account of it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import get, kernel, put
from thresher.kernels.build.signatures import types

WORDS = 8
"""Words of 64 bits in a block."""
_BLOCK_BITS = 64 * WORDS
_MOST_BITS = 16
_NINE_BITS, _SIX_BITS = np.uint64(511), np.uint64(6)
_LOW_SIX, _ONE, _HALF = np.uint64(63), np.uint64(1), np.uint64(32)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_UINT64 = types.Array(types.uint64, 1, "C")


@kernel(types.void(_UINT64, _UINT64, _UINT64, types.int64, types.Array(types.uint8, 1, "C")))
def _add_all(words: Any, highs: Any, lows: Any, bits: Any, found: Any) -> None:
    blocks = np.uint64(len(words) // WORDS)
    for row in range(len(highs)):
        block = np.int64(((get(lows, row) >> _HALF) * blocks) >> _HALF) * WORDS
        state = get(highs, row) ^ (get(lows, row) << _HALF)
        known = 1
        for number in range(bits):
            if number % 7 == 0:
                state = (state ^ (state >> _HALF)) * _MIX
            place = (state >> np.uint64(1 + 9 * (number % 7))) & _NINE_BITS
            word = block + np.int64(place >> _SIX_BITS)
            bit = _ONE << (place & _LOW_SIX)
            if not get(words, word) & bit:
                known = 0
                put(words, word, get(words, word) | bit)
        put(found, row, np.uint8(known))


class BloomFilter:
    """A filter for a number of hashes that is known before."""

    def __init__(self, capacity: int, rate: float) -> None:
        """`rate`: the probability at most with which a hash that was not added is said to be known."""
        self._bits, blocks = blocks_for(capacity, rate)
        self._words = np.zeros(blocks * WORDS, dtype=np.uint64)

    def add(self, hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        """Add hashes of 128 bits, rows of two numbers, one after the other; return True for those known before."""
        found = np.zeros(len(hashes), dtype=np.uint8)
        highs, lows = (np.ascontiguousarray(hashes[:, column]) for column in (0, 1))
        _add_all(self._words, highs, lows, self._bits, found)
        return found.view(np.bool_)


def blocks_for(capacity: int, rate: float) -> tuple[int, int]:
    """Return how many bits to set for a hash, and the least number of blocks that keep to the rate."""
    best = (0, 0)
    for bits in range(1, _MOST_BITS + 1):
        low, high = 1.0, 4096.0  # bits of the filter for each hash
        while high - low > 0.01:
            middle = (low + high) / 2
            low, high = (low, middle) if error_rate(_BLOCK_BITS / middle, bits) <= rate else (middle, high)
        blocks = math.ceil(max(capacity, 1) * high / _BLOCK_BITS)
        if error_rate(_BLOCK_BITS / high, bits) <= rate and (not best[0] or blocks < best[1]):
            best = bits, blocks
    assert best[0], "the rate is checked by the stage"
    return best


def error_rate(per_block: float, bits: int) -> float:
    """Return the probability that a hash is wrongly said to be known, with `per_block` hashes in a block on average."""
    total = 0.0
    for held in range(1, int(per_block + 20 * math.sqrt(per_block) + 40)):
        weight = math.exp(held * math.log(per_block) - per_block - math.lgamma(held + 1))
        total += weight * (1 - (1 - 1 / _BLOCK_BITS) ** (held * bits)) ** bits
    return total
