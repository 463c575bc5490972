# SPDX-License-Identifier: Apache-2.0
"""Kernels over a whole chunk of lines: find its line feeds, and check that it is valid UTF-8.

UTF-8 is valid as Python defines it: no overlong forms, no surrogates, nothing above U+10FFFF. Blocks of ASCII are
skipped. In all others a mask shows where continuation bytes are required and where they are; only first bytes that do
not allow every second byte are checked one by one.
"""

from __future__ import annotations

import numpy as np

from thresher.kernels.build.intrinsics import (
    BYTES,
    NONE,
    ONE,
    get,
    helper,
    kernel,
    mask_equal,
    popcount,
    put,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Rows
from thresher.kernels.json.scan import Bytes, byte_at, first_bit, high_bytes, utf8_kinds

_BLOCK = 64
_FEED = np.uint8(10)
_FIRST = 0xC0
"""Smallest first byte of a character that is not ASCII."""


def find_line_feeds(data: Bytes) -> Rows:
    """Return the positions of all line feeds."""
    positions = np.empty(count_line_feeds(data), dtype=np.int64)
    note_line_feeds(data, positions)
    return positions


@kernel(types.int64(BYTES))
def count_line_feeds(data: Bytes) -> int:
    """Return the number of line feeds."""
    size = len(data)
    count = 0
    position = 0
    while position + _BLOCK <= size:
        count += popcount(mask_equal(data, position, _FEED))
        position += _BLOCK
    while position < size:
        count += 1 if get(data, position) == _FEED else 0
        position += 1
    return count


@kernel(types.int64(BYTES, types.int64[::1]))
def note_line_feeds(data: Bytes, positions: Rows) -> int:
    """Write the positions of line feeds to `positions`, which must be long enough; return how many there are."""
    size = len(data)
    count = 0
    position = 0
    while position + _BLOCK <= size:
        feeds = mask_equal(data, position, _FEED)
        while feeds != NONE:
            put(positions, count, position + trailing_zeros(feeds))
            feeds &= feeds - ONE
            count += 1
        position += _BLOCK
    while position < size:
        if get(data, position) == _FEED:
            put(positions, count, position)
            count += 1
        position += 1
    return count


@helper
def character_length(data: Bytes, position: int, end: int) -> int:
    """Return the length of the character at `position`, whose first byte is not ASCII; 0 if it is invalid."""
    first = byte_at(data, position)
    if first < 0xC2 or first > 0xF4 or position + 2 > end:
        return 0
    second = byte_at(data, position + 1)
    if second & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if position + 3 > end or byte_at(data, position + 2) & 0xC0 != 0x80:
        return 0
    start = (first << 8) | second
    if first < 0xF0:
        return 0 if start < 0xE0A0 or 0xEDA0 <= start < 0xEE80 else 3
    if position + 4 > end or byte_at(data, position + 3) & 0xC0 != 0x80:
        return 0
    return 4 if 0xF090 <= start < 0xF490 else 0


@helper
def is_utf8_bytewise(data: Bytes, position: int, end: int) -> bool:
    """Check byte by byte."""
    while position < end:
        length = 1 if byte_at(data, position) < 0x80 else character_length(data, position, end)
        if length == 0:
            return False
        position += length
    return True


@kernel(types.boolean(BYTES))
def is_utf8(data: Bytes) -> bool:
    """Return True if all of `data` is valid UTF-8."""
    size = len(data)
    position = 0
    expected = 0  # which of the next bytes must be continuation bytes
    while position + _BLOCK <= size:
        if high_bytes(data, position) == 0:
            if expected != 0:
                return False
        else:
            following, of_two, of_three, of_four, doubtful = utf8_kinds(data, position)
            if following != ((of_two << 1) | (of_three << 2) | (of_four << 3) | expected):
                return False
            expected = ((of_two >> 63) & 1) | ((of_three >> 62) & 3) | ((of_four >> 61) & 7)
            while doubtful != 0:
                if character_length(data, position + first_bit(doubtful), size) == 0:
                    return False
                doubtful &= doubtful - 1
        position += _BLOCK
    if expected != 0:
        position -= 1
        while byte_at(data, position) < _FIRST:
            position -= 1
    return is_utf8_bytewise(data, position, size)
