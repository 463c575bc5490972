# SPDX-License-Identifier: Apache-2.0
"""How often a phrase comes in a text, also inside longer words, as `str.count` has it: matches do not overlap."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.documents import Document
from thresher.kernels.intrinsics import NONE, ONE, get, helper, load8, low_bits, mask_equal, put, trailing_zeros

_SPACE = np.uint8(32)


@helper
def write_phrase(document: Document, word: int, n: int, phrase: Any) -> Any:
    """Put `n` words with single spaces between them into `phrase`; its length, and where its first space is.

    The space is the last byte if there is none.
    """
    length = 0
    space = -1
    for number in range(document.first + word, document.first + word + n):
        if length:
            put(phrase, length, _SPACE)
            if space < 0:
                space = length
            length += 1
        for place in range(get(document.edges, 2 * number), get(document.edges, 2 * number + 1)):
            put(phrase, length, get(document.data, document.start + place))
            length += 1
    return length, (space if space >= 0 else length - 1)


@helper
def count_phrase(document: Document, phrase: Any, length: int, space: int) -> int:
    """How often the phrase comes. 64 places are looked at together: at four of its bytes first."""
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
            place = block + trailing_zeros(mask)
            if place >= free and _is_phrase(data, place, phrase, length):
                found += 1
                free = place + length
            mask &= mask - ONE
    return found


@helper
def _is_phrase(data: Any, place: int, phrase: Any, length: int) -> bool:
    done = 0
    while length - done >= 8:
        if load8(data, place + done) != load8(phrase, done):
            return False
        done += 8
    left = low_bits(8 * (length - done))
    return bool((load8(data, place + done) & left) == (load8(phrase, done) & left))
