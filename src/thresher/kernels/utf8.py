# SPDX-License-Identifier: Apache-2.0
"""Whether bytes are valid UTF-8, as Python decides it: no overlong forms, no surrogates, nothing beyond U+10FFFF.

Blocks of ASCII are passed over. In all others a mask says where a byte must follow another, and where one does; only
first bytes behind which not every second byte is allowed are looked at one by one.
"""

from __future__ import annotations

from thresher.kernels.intrinsics import BYTES, helper, kernel
from thresher.kernels.json_bytes import Bytes, byte_at, first_bit, high_bytes, utf8_kinds
from thresher.kernels.signatures import types

_BLOCK = 64
_FIRST = 0xC0
"""First bytes of characters that are not ASCII begin here."""


@helper
def character_length(data: Bytes, place: int, end: int) -> int:
    """Bytes of the character at `place`, whose first byte is not ASCII; 0 if it is none."""
    first = byte_at(data, place)
    if first < 0xC2 or first > 0xF4 or place + 2 > end:
        return 0
    second = byte_at(data, place + 1)
    if second & 0xC0 != 0x80:
        return 0
    if first < 0xE0:
        return 2
    if place + 3 > end or byte_at(data, place + 2) & 0xC0 != 0x80:
        return 0
    start = (first << 8) | second
    if first < 0xF0:
        return 0 if start < 0xE0A0 or 0xEDA0 <= start < 0xEE80 else 3
    if place + 4 > end or byte_at(data, place + 3) & 0xC0 != 0x80:
        return 0
    return 4 if 0xF090 <= start < 0xF490 else 0


@helper
def is_utf8_bytewise(data: Bytes, place: int, end: int) -> bool:
    """The plain definition."""
    while place < end:
        length = 1 if byte_at(data, place) < 0x80 else character_length(data, place, end)
        if length == 0:
            return False
        place += length
    return True


@kernel(types.boolean(BYTES))
def is_utf8(data: Bytes) -> bool:
    """Whether all of `data` is valid UTF-8."""
    size = len(data)
    place = 0
    expected = 0  # which of the next bytes belong to a character that began before
    while place + _BLOCK <= size:
        if high_bytes(data, place) == 0:
            if expected != 0:
                return False
        else:
            following, of_two, of_three, of_four, doubtful = utf8_kinds(data, place)
            if following != ((of_two << 1) | (of_three << 2) | (of_four << 3) | expected):
                return False
            expected = ((of_two >> 63) & 1) | ((of_three >> 62) & 3) | ((of_four >> 61) & 7)
            while doubtful != 0:
                if character_length(data, place + first_bit(doubtful), size) == 0:
                    return False
                doubtful &= doubtful - 1
        place += _BLOCK
    if expected != 0:
        place -= 1
        while byte_at(data, place) < _FIRST:
            place -= 1
    return is_utf8_bytewise(data, place, size)
