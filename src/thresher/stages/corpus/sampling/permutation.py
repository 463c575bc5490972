# SPDX-License-Identifier: Apache-2.0
"""Random samples of an exact size, without a list of what is drawn."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from thresher.stages.corpus.hashing import mixed

_ROUNDS = 4


def drawn(numbers: npt.NDArray[np.int64], of: int, wanted: int, seed: int) -> npt.NDArray[np.bool_]:
    """Return which of some numbers from 0 to `of` - 1 are in the sample; of all of them exactly `wanted` are."""
    if wanted >= of or wanted <= 0 or not len(numbers):
        return np.full(len(numbers), fill_value=wanted > 0)
    return np.asarray(permuted(numbers, of, seed) < wanted)


def permuted(numbers: npt.NDArray[np.int64], of: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the places of numbers in a random order of all numbers below `of`: a Feistel network over the next power
    of four, applied again to what falls outside."""
    half = np.uint64(max(1, ((of - 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    keys = mixed(np.arange(1, _ROUNDS + 1, dtype=np.uint64) + np.uint64(seed % 2**63 * (_ROUNDS + 1) % 2**64))
    found = numbers.astype(np.uint64)
    outside = np.arange(len(found))
    while len(outside):
        left, right = found[outside] >> half, found[outside] & mask
        for key in keys:
            left, right = right, left ^ (mixed(right + key) & mask)
        found[outside] = left << half | right
        outside = outside[found[outside] >= np.uint64(of)]
    return found.astype(np.int64)
