# SPDX-License-Identifier: Apache-2.0
"""Passing over JSON values, byte for byte as RFC 8259 has them.

Every function gets the bytes, where to begin and where the line ends, and gives the place behind what it passed, or -1
for anything that is not plain JSON: the caller then asks a real decoder. So what these functions accept is JSON, and
what they refuse may be.
"""

from __future__ import annotations

import numpy as np

from thresher.kernels.intrinsics import helper
from thresher.kernels.json_bytes import Bytes, byte_at, first_bit, inlined, string_stops

BLOCK = 64
"""Bytes that are looked at together."""
MOST_LEVELS = 60
"""Deeper nesting is left to a real decoder: one bit of a word is kept for each level."""
_SPACE, _TAB, _LINE_FEED, _RETURN, _QUOTE, _BACKSLASH = b' \t\n\r"\\'
_COMMA, _COLON, _OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = b",:{}[]"
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _SMALL_E, _LARGE_E = b"09-+.eE"
_T, _R, _U, _F, _A, _L, _S, _N = b"trufalsn"
_E = _SMALL_E
SIMPLE_ESCAPES = np.zeros(256, dtype=np.uint8)
"""What a letter behind a backslash stands for; 0 for those that stand for nothing, and for `u`."""
SIMPLE_ESCAPES[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
HEX_DIGITS = np.full(256, 255, dtype=np.uint8)
"""The value of a hexadecimal digit; 255 for all other characters."""
HEX_DIGITS[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]
HIGH, LOW, AFTER_LOW = 0xD800, 0xDC00, 0xE000
"""Halves of surrogate pairs: first ones from `HIGH` on, second ones from `LOW` on."""


@inlined
def skip_white(data: Bytes, place: int, end: int) -> int:
    """Behind the white space; that may be the end."""
    while place < end:
        byte = byte_at(data, place)
        if byte != _SPACE and byte != _TAB and byte != _RETURN and byte != _LINE_FEED:
            break
        place += 1
    return place


@inlined
def hex_unit(data: Bytes, place: int, end: int) -> int:
    """The number that four hexadecimal digits make; -1 where there are none."""
    if place + 4 > end:
        return -1
    first = byte_at(HEX_DIGITS, byte_at(data, place))
    second = byte_at(HEX_DIGITS, byte_at(data, place + 1))
    third = byte_at(HEX_DIGITS, byte_at(data, place + 2))
    fourth = byte_at(HEX_DIGITS, byte_at(data, place + 3))
    if (first | second | third | fourth) > 15:
        return -1
    return (first << 12) | (second << 8) | (third << 4) | fourth


@helper
def escaped_unit(data: Bytes, place: int, end: int) -> int:
    """The code point of the escape with hexadecimal digits, or of two that make a pair, whose backslash is at `place`;
    -1 for none."""
    if byte_at(data, place + 1) != _U:
        return -1
    unit = hex_unit(data, place + 2, end)
    if unit < HIGH or unit >= AFTER_LOW:
        return unit
    if unit >= LOW or place + 12 > end:
        return -1
    if byte_at(data, place + 6) != _BACKSLASH or byte_at(data, place + 7) != _U:
        return -1
    second = hex_unit(data, place + 8, end)
    if second < LOW or second >= AFTER_LOW:
        return -1
    return 0x10000 + ((unit - HIGH) << 10) + (second - LOW)


@inlined
def escape_length(character: int) -> int:
    """How many bytes a character takes that is written with hexadecimal digits."""
    return 12 if character >= 0x10000 else 6


@inlined
def skip_escape(data: Bytes, place: int, end: int) -> int:
    """Behind the escape at `place`; -1 where there is none, or half a surrogate pair."""
    if place + 2 > end or byte_at(data, place) != _BACKSLASH:
        return -1
    if byte_at(SIMPLE_ESCAPES, byte_at(data, place + 1)) != 0:
        return place + 2
    character = escaped_unit(data, place, end)
    return -1 if character < 0 else place + escape_length(character)


@helper
def skip_string(data: Bytes, size: int, place: int, end: int) -> int:
    """Behind the closing mark of a string; `place` is behind the opening one. `size`: all bytes that may be read."""
    while place + BLOCK <= size and place < end:
        stops = string_stops(data, place)
        first = place
        place += BLOCK
        while stops != 0:
            stop = first + first_bit(stops)
            if stop >= end:
                return -1
            if byte_at(data, stop) == _QUOTE:
                return stop + 1
            behind = skip_escape(data, stop, end)
            if behind < 0:
                return -1
            if behind >= first + BLOCK:
                place = behind
                break
            stops &= -1 << (behind - first)
    while place < end:
        byte = byte_at(data, place)
        if byte == _QUOTE:
            return place + 1
        if byte >= _SPACE and byte != _BACKSLASH:
            place += 1
            continue
        place = skip_escape(data, place, end)
        if place < 0:
            return -1
    return -1


@helper
def skip_digits(data: Bytes, place: int, end: int) -> int:
    """Behind at least one digit."""
    first = place
    while place < end:
        byte = byte_at(data, place)
        if byte < _ZERO or byte > _NINE:
            break
        place += 1
    return place if place > first else -1


@helper
def skip_number(data: Bytes, place: int, end: int) -> int:
    """Behind a number."""
    if byte_at(data, place) == _MINUS:
        place += 1
    if place >= end:
        return -1
    place = place + 1 if byte_at(data, place) == _ZERO else skip_digits(data, place, end)
    if place >= 0 and place < end and byte_at(data, place) == _POINT:
        place = skip_digits(data, place + 1, end)
    if place >= 0 and place < end and (byte_at(data, place) == _SMALL_E or byte_at(data, place) == _LARGE_E):
        place += 1
        if place < end and (byte_at(data, place) == _PLUS or byte_at(data, place) == _MINUS):
            place += 1
        place = skip_digits(data, place, end)
    return place


@helper
def skip_word(data: Bytes, place: int, end: int) -> int:
    """Behind `true`, `false` or `null`."""
    if place + 4 > end:
        return -1
    first, second, third, fourth = (
        byte_at(data, place),
        byte_at(data, place + 1),
        byte_at(data, place + 2),
        byte_at(data, place + 3),
    )
    if first == _N and second == _U and third == _L and fourth == _L:
        return place + 4
    if first == _T and second == _R and third == _U and fourth == _E:
        return place + 4
    if first == _F and second == _A and third == _L and fourth == _S and place + 5 <= end:
        return place + 5 if byte_at(data, place + 4) == _E else -1
    return -1


@helper
def skip_key(data: Bytes, size: int, place: int, end: int) -> int:
    """From the opening mark of a key to the value behind it."""
    if place >= end or byte_at(data, place) != _QUOTE:
        return -1
    place = skip_string(data, size, place + 1, end)
    if place < 0:
        return -1
    place = skip_white(data, place, end)
    if place >= end or byte_at(data, place) != _COLON:
        return -1
    return skip_white(data, place + 1, end)


@helper
def skip_scalar(data: Bytes, size: int, place: int, end: int) -> int:
    """Behind a string, a word or a number."""
    byte = byte_at(data, place)
    if byte == _QUOTE:
        return skip_string(data, size, place + 1, end)
    if byte in (_T, _F, _N):
        return skip_word(data, place, end)
    return skip_number(data, place, end)


@helper
def close_levels(data: Bytes, place: int, end: int, depth: int, kinds: int) -> tuple[int, int, int]:
    """From behind a value to the comma behind it, or behind the end of everything that is open: the place, and what is
    open there. For what is not JSON the place is -1 and nothing is open."""
    while depth > 0:
        place = skip_white(data, place, end)
        if place >= end:
            return -1, 0, 0
        byte = byte_at(data, place)
        if byte == _COMMA:
            return place, depth, kinds
        if byte != (_OBJECT_END if kinds & 1 else _ARRAY_END):
            return -1, 0, 0
        depth -= 1
        kinds >>= 1
        place += 1
    return place, 0, 0


@helper
def skip_value(data: Bytes, size: int, place: int, end: int) -> int:
    """Behind a value of any kind, however deep up to `MOST_LEVELS`."""
    depth = 0
    kinds = 0  # a bit per open level, the innermost lowest: 1 for an object, 0 for an array
    while 0 <= place < end:
        byte = byte_at(data, place)
        if byte not in (_OBJECT, _ARRAY):
            place = skip_scalar(data, size, place, end)
        else:
            is_object = byte == _OBJECT
            place = skip_white(data, place + 1, end)
            if place >= end or depth == MOST_LEVELS:
                return -1
            if byte_at(data, place) != (_OBJECT_END if is_object else _ARRAY_END):
                depth += 1
                kinds = (kinds << 1) | (1 if is_object else 0)
                if is_object:
                    place = skip_key(data, size, place, end)
                continue
            place += 1
        if place < 0:
            return -1
        place, depth, kinds = close_levels(data, place, end, depth, kinds)
        if depth == 0:
            return place
        place = skip_white(data, place + 1, end)
        if kinds & 1:
            place = skip_key(data, size, place, end)
    return -1
