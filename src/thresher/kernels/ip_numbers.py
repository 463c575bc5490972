# SPDX-License-Identifier: Apache-2.0
"""IP addresses as they are written: whether they are legal, and public."""

from __future__ import annotations

import ipaddress
from typing import Any

import numpy as np

from thresher.kernels.intrinsics import helper
from thresher.kernels.json_bytes import byte_at
from thresher.kernels.networks import NOT_PUBLIC
from thresher.kernels.pii_bytes import is_digit, is_letter

_ZERO, _NINE, _DOT, _COLON, _LOW = b"09.:_"
_CASE = 0x20
_SMALL_A, _SMALL_F = b"af"
MOST_PARTS = 9
"""Between the colons of an address of version 6, with the empty ones."""
_WORDS = 8
_NOT_PUBLIC = np.array(
    [(int(network.network_address), 32 - network.prefixlen) for network in map(ipaddress.IPv4Network, NOT_PUBLIC)],
    dtype=np.int64,
)
"""Networks that are not public: the first address of each, and how many of its bits are free."""


@helper
def address_v4(data: Any, begin: int, end: int) -> tuple[int, int]:
    """The number that four numbers with dots between them stand for, and where they end; -1 where it is no address,
    and 0 for the place where they are not even of that form."""
    value = 0
    legal = True
    place = begin
    for part in range(4):
        if part > 0:
            if place >= end or byte_at(data, place) != _DOT:
                return -1, 0
            place += 1
        first = place
        number = 0
        while place < end and is_digit(byte_at(data, place)):
            if place - first == 3:
                return -1, 0
            number = 10 * number + byte_at(data, place) - _ZERO
            place += 1
        if place == first:
            return -1, 0
        legal = legal and number <= 255 and (place - first == 1 or byte_at(data, first) != _ZERO)
        value = (value << 8) | number
    if place < end:
        byte = byte_at(data, place)
        if is_letter(byte) or byte == _LOW:
            return -1, 0
        if byte == _DOT and place + 1 < end and is_digit(byte_at(data, place + 1)):
            return -1, 0
    return (value if legal else -1), place


@helper
def is_public_v4(address: int) -> bool:
    """Whether an address of version 4 lies in no network that is kept for another purpose."""
    for network in range(len(_NOT_PUBLIC)):
        if (address ^ _NOT_PUBLIC[network, 0]) >> _NOT_PUBLIC[network, 1] == 0:
            return False
    return True


@helper
def _word(data: Any, start: int, end: int) -> int:
    """The number that up to four hexadecimal digits make; -1 where there is something else."""
    if end - start > 4:
        return -1
    value = 0
    for place in range(start, end):
        byte = byte_at(data, place)
        if is_digit(byte):
            value = 16 * value + byte - _ZERO
        elif _SMALL_A <= byte | _CASE <= _SMALL_F:
            value = 16 * value + (byte | _CASE) - _SMALL_A + 10
        else:
            return -1
    return value


@helper
def _parts(data: Any, start: int, end: int, parts: Any) -> int:
    """Fill in the number of each part between colons, -1 for an empty one; how many there are, -1 for no address."""
    count = 0
    colons = 0
    first = start
    for place in range(start, end + 1):
        if place < end and byte_at(data, place) != _COLON:
            continue
        if count >= MOST_PARTS:
            return -1
        value = _word(data, first, place)
        if value < 0:
            address, behind = address_v4(data, first, place)
            if place < end or address < 0 or behind != place or count + 2 > MOST_PARTS:
                return -1
            parts[count] = address >> 16
            count += 1
            value = address & 0xFFFF
        parts[count] = value if place > first else -1
        count += 1
        colons += 1 if place < end else 0
        first = place + 1
    return count if colons >= 2 else -1


@helper
def _spread(parts: Any, count: int, words: Any) -> bool:
    """The eight words of an address, with zeros in the place of `::`; whether it is one."""
    gap = -1
    for part in range(1, count - 1):
        if parts[part] < 0:
            if gap >= 0:
                return False
            gap = part
    high, low = gap, count - gap - 1
    if gap < 0:
        if count != _WORDS or parts[0] < 0 or parts[count - 1] < 0:
            return False
        high, low = count, 0
    if gap >= 0 and parts[0] < 0:
        high -= 1
        if high > 0:
            return False
    if gap >= 0 and parts[count - 1] < 0:
        low -= 1
        if low > 0:
            return False
    if gap >= 0 and high + low >= _WORDS:
        return False
    for word in range(_WORDS):
        words[word] = 0
    for word in range(high):
        words[word] = parts[word]
    for word in range(low):
        words[_WORDS - low + word] = parts[count - low + word]
    return True


@helper
def is_public_v6(data: Any, start: int, end: int, parts: Any, words: Any) -> bool:
    """Whether this is an address of version 6, written as it may be, and public. `parts`, `words`: room to work in."""
    count = _parts(data, start, end, parts)
    if count < 0 or not _spread(parts, count, words):
        return False
    if words[0] | words[1] | words[2] | words[3] | words[4] == 0 and words[5] == 0xFFFF:
        return is_public_v4((words[6] << 16) | words[7])
    if words[0] >> 13 != 1:  # 2000::/3
        return False
    if words[0] == 0x2001 and (words[1] < 0x200 or words[1] == 0xDB8):  # 2001::/23, 2001:db8::/32
        return False
    return bool(words[0] != 0x3FFF or words[1] >= 0x1000)  # 3fff::/20
