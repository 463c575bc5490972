# SPDX-License-Identifier: Apache-2.0
"""Hashes of whole texts: XXH64, with two seeds for 128 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT64, get, helper, kernel, load8, put
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Texts

_P1, _P2, _P3, _P4, _P5 = (
    np.uint64(number)
    for number in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_SIXTY_FOUR, _LOW_32 = np.uint64(64), np.uint64(0xFFFFFFFF)
_SEEDS = (0, 0x5851F42D4C957F2D)


@helper
def _rotated(value: Any, bits: Any) -> Any:
    count = np.uint64(bits)
    return (value << count) | (value >> (_SIXTY_FOUR - count))


@helper
def _round(state: Any, word: Any) -> Any:
    return _rotated(state + word * _P2, 31) * _P1


@helper
def _merged(state: Any, lane: Any) -> Any:
    return (state ^ _round(np.uint64(0), lane)) * _P1 + _P4


@helper
def xxh64(data: Any, start: Any, end: Any, seed: Any) -> Any:
    """Return XXH64 of a range of bytes; eight bytes behind it must be readable."""
    position = start
    if end - start >= 32:
        one, two, three, four = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while position + 32 <= end:
            one = _round(one, load8(data, position))
            two = _round(two, load8(data, position + 8))
            three = _round(three, load8(data, position + 16))
            four = _round(four, load8(data, position + 24))
            position += 32
        state = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
        state = _merged(_merged(_merged(_merged(state, one), two), three), four)
    else:
        state = seed + _P5
    state += np.uint64(end - start)
    while position + 8 <= end:
        state = _rotated(state ^ _round(np.uint64(0), load8(data, position)), 27) * _P1 + _P4
        position += 8
    if position + 4 <= end:
        state = _rotated(state ^ ((load8(data, position) & _LOW_32) * _P1), 23) * _P2 + _P3
        position += 4
    while position < end:
        state = _rotated(state ^ (np.uint64(get(data, position)) * _P5), 11) * _P1
        position += 1
    state = (state ^ (state >> np.uint64(33))) * _P2
    state = (state ^ (state >> np.uint64(29))) * _P3
    return state ^ (state >> np.uint64(32))


@kernel(types.void(BYTES, INT64, INT64, types.int64, types.Array(types.uint64, 1, "C")))
def _hashes(data: Any, starts: Any, ends: Any, seed: Any, found: Any) -> None:
    for row in range(len(starts)):
        put(found, row, xxh64(data, get(starts, row), get(ends, row), np.uint64(seed)))


def hash_texts(texts: Texts) -> npt.NDArray[np.uint64]:
    """Return 128 bits for each text, as two columns."""
    found = np.empty((2, len(texts.starts)), dtype=np.uint64)
    for row, seed in enumerate(_SEEDS):
        _hashes(texts.data, texts.starts, texts.ends, seed, found[row])
    return found.T
