# SPDX-License-Identifier: Apache-2.0
"""Count a phrase in a text, also inside longer words, like `str.count`: matches do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.bytes.documents import Document
from thresher.kernels.bytes.intrinsics import NONE, ONE, get, helper, load8, low_bits, mask_equal, put, trailing_zeros

_SPACE = np.uint8(32)


@helper
def write_phrase(document: Document, word: int, n: int, phrase: Any) -> Any:
    """Write `n` words, separated by single spaces, to `phrase`; return its length and the position of its first space.

    Without a space that is the position of the last byte.
    """
    length = 0
    space = -1
    for number in range(document.first + word, document.first + word + n):
        if length:
            put(phrase, length, _SPACE)
            if space < 0:
                space = length
            length += 1
        for position in range(get(document.edges, 2 * number), get(document.edges, 2 * number + 1)):
            put(phrase, length, get(document.data, document.start + position))
            length += 1
    return length, (space if space >= 0 else length - 1)


@helper
def count_phrase(document: Document, phrase: Any, length: int, space: int) -> int:
    """Return how often the phrase occurs. Four of its bytes are compared first, at 64 positions at once."""
    data = document.data
    after = min(space + 1, length - 1)
    first, second = get(phrase, 0), get(phrase, space)
    third, fourth = get(phrase, after), get(phrase, length - 1)
    found = 0
    free = document.start
    beyond = document.start + document.length - length + 1
    for block in range(document.start, beyond, 64):
        mask = mask_equal(data, block, first) & mask_equal(data, block + length - 1, fourth)
        mask &= mask_equal(data, block + space, second) & mask_equal(data, block + after, third)
        if beyond - block < 64:
            mask &= low_bits(beyond - block)
        while mask != NONE:
            position = block + trailing_zeros(mask)
            if position >= free and _is_phrase(data, position, phrase, length):
                found += 1
                free = position + length
            mask &= mask - ONE
    return found


@helper
def _is_phrase(data: Any, position: int, phrase: Any, length: int) -> bool:
    done = 0
    while length - done >= 8:
        if load8(data, position + done) != load8(phrase, done):
            return False
        done += 8
    left = low_bits(8 * (length - done))
    return bool((load8(data, position + done) & left) == (load8(phrase, done) & left))
