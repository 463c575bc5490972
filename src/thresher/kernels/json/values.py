# SPDX-License-Identifier: Apache-2.0
"""Skip JSON values, strictly according to RFC 8259.

Every function takes the bytes, a position and the end of the line, and returns the position after what it skipped, or
-1 for anything that is not plain JSON: the caller then uses a real decoder. So what these functions accept is JSON, and
what they reject may be.
"""

from __future__ import annotations

import numpy as np

from thresher.kernels.build.intrinsics import helper
from thresher.kernels.json.scan import Bytes, byte_at, first_bit, inlined, string_stops

BLOCK = 64
"""Number of bytes that are processed together."""
MOST_LEVELS = 60
"""Deeper nesting is left to a real decoder: each level takes one bit of a word."""
_SPACE, _TAB, _LINE_FEED, _RETURN, _QUOTE, _BACKSLASH = b' \t\n\r"\\'
_COMMA, _COLON, _OBJECT, _OBJECT_END, _ARRAY, _ARRAY_END = b",:{}[]"
_ZERO, _NINE, _MINUS, _PLUS, _POINT, _SMALL_E, _LARGE_E = b"09-+.eE"
_T, _R, _U, _F, _A, _L, _S, _N = b"trufalsn"
_E = _SMALL_E
SIMPLE_ESCAPES = np.zeros(256, dtype=np.uint8)
"""The character that a letter after a backslash stands for; 0 for other letters, and for `u`."""
SIMPLE_ESCAPES[list(b'"\\/bfnrt')] = list(b'"\\/\b\f\n\r\t')
HEX_DIGITS = np.full(256, 255, dtype=np.uint8)
"""The value of a hexadecimal digit; 255 for all other characters."""
HEX_DIGITS[list(b"0123456789abcdefABCDEF")] = [*range(16), *range(10, 16)]
HIGH, LOW, AFTER_LOW = 0xD800, 0xDC00, 0xE000
"""Surrogates: high ones from `HIGH` on, low ones from `LOW` on."""


@inlined
def skip_white(data: Bytes, position: int, end: int) -> int:
    """Return the position after white space, possibly the end."""
    while position < end:
        byte = byte_at(data, position)
        if byte != _SPACE and byte != _TAB and byte != _RETURN and byte != _LINE_FEED:
            break
        position += 1
    return position


@inlined
def hex_unit(data: Bytes, position: int, end: int) -> int:
    """Return the value of four hexadecimal digits; -1 if there are none."""
    if position + 4 > end:
        return -1
    first = byte_at(HEX_DIGITS, byte_at(data, position))
    second = byte_at(HEX_DIGITS, byte_at(data, position + 1))
    third = byte_at(HEX_DIGITS, byte_at(data, position + 2))
    fourth = byte_at(HEX_DIGITS, byte_at(data, position + 3))
    if (first | second | third | fourth) > 15:
        return -1
    return (first << 12) | (second << 8) | (third << 4) | fourth


@helper
def escaped_unit(data: Bytes, position: int, end: int) -> int:
    """Return the code point of the `\\u` escape, or pair of escapes, whose backslash is at `position`; -1 if it is
    invalid."""
    if byte_at(data, position + 1) != _U:
        return -1
    unit = hex_unit(data, position + 2, end)
    if unit < HIGH or unit >= AFTER_LOW:
        return unit
    if unit >= LOW or position + 12 > end:
        return -1
    if byte_at(data, position + 6) != _BACKSLASH or byte_at(data, position + 7) != _U:
        return -1
    second = hex_unit(data, position + 8, end)
    if second < LOW or second >= AFTER_LOW:
        return -1
    return 0x10000 + ((unit - HIGH) << 10) + (second - LOW)


@inlined
def escape_length(character: int) -> int:
    """Return the length of the `\\u` escapes of a character."""
    return 12 if character >= 0x10000 else 6


@inlined
def skip_escape(data: Bytes, position: int, end: int) -> int:
    """Return the position after the escape at `position`; -1 if it is invalid or a lone surrogate."""
    if position + 2 > end or byte_at(data, position) != _BACKSLASH:
        return -1
    if byte_at(SIMPLE_ESCAPES, byte_at(data, position + 1)) != 0:
        return position + 2
    character = escaped_unit(data, position, end)
    return -1 if character < 0 else position + escape_length(character)


@helper
def skip_string(data: Bytes, size: int, position: int, end: int) -> int:
    """Return the position after the closing mark of a string; `position` is after the opening one. `size` is the number
    of bytes that may be read."""
    while position + BLOCK <= size and position < end:
        stops = string_stops(data, position)
        first = position
        position += BLOCK
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
                position = behind
                break
            stops &= -1 << (behind - first)
    while position < end:
        byte = byte_at(data, position)
        if byte == _QUOTE:
            return position + 1
        if byte >= _SPACE and byte != _BACKSLASH:
            position += 1
            continue
        position = skip_escape(data, position, end)
        if position < 0:
            return -1
    return -1


@helper
def skip_digits(data: Bytes, position: int, end: int) -> int:
    """Return the position after one or more digits."""
    first = position
    while position < end:
        byte = byte_at(data, position)
        if byte < _ZERO or byte > _NINE:
            break
        position += 1
    return position if position > first else -1


@helper
def skip_number(data: Bytes, position: int, end: int) -> int:
    """Return the position after a number."""
    if byte_at(data, position) == _MINUS:
        position += 1
    if position >= end:
        return -1
    position = position + 1 if byte_at(data, position) == _ZERO else skip_digits(data, position, end)
    if position >= 0 and position < end and byte_at(data, position) == _POINT:
        position = skip_digits(data, position + 1, end)
    if (
        position >= 0
        and position < end
        and (byte_at(data, position) == _SMALL_E or byte_at(data, position) == _LARGE_E)
    ):
        position += 1
        if position < end and (byte_at(data, position) == _PLUS or byte_at(data, position) == _MINUS):
            position += 1
        position = skip_digits(data, position, end)
    return position


@helper
def skip_word(data: Bytes, position: int, end: int) -> int:
    """Return the position after `true`, `false` or `null`."""
    if position + 4 > end:
        return -1
    first, second, third, fourth = (
        byte_at(data, position),
        byte_at(data, position + 1),
        byte_at(data, position + 2),
        byte_at(data, position + 3),
    )
    if first == _N and second == _U and third == _L and fourth == _L:
        return position + 4
    if first == _T and second == _R and third == _U and fourth == _E:
        return position + 4
    if first == _F and second == _A and third == _L and fourth == _S and position + 5 <= end:
        return position + 5 if byte_at(data, position + 4) == _E else -1
    return -1


@helper
def skip_key(data: Bytes, size: int, position: int, end: int) -> int:
    """Skip a key and its colon; return the position of the value."""
    if position >= end or byte_at(data, position) != _QUOTE:
        return -1
    position = skip_string(data, size, position + 1, end)
    if position < 0:
        return -1
    position = skip_white(data, position, end)
    if position >= end or byte_at(data, position) != _COLON:
        return -1
    return skip_white(data, position + 1, end)


@helper
def skip_scalar(data: Bytes, size: int, position: int, end: int) -> int:
    """Return the position after a string, a word or a number."""
    byte = byte_at(data, position)
    if byte == _QUOTE:
        return skip_string(data, size, position + 1, end)
    if byte in (_T, _F, _N):
        return skip_word(data, position, end)
    return skip_number(data, position, end)


@helper
def close_levels(data: Bytes, position: int, end: int, depth: int, kinds: int) -> tuple[int, int, int]:
    """Close levels after a value, up to the next comma or the end of the outermost value; return the position, and
    depth and kinds of the open levels. For invalid JSON the position is -1 and no level is open."""
    while depth > 0:
        position = skip_white(data, position, end)
        if position >= end:
            return -1, 0, 0
        byte = byte_at(data, position)
        if byte == _COMMA:
            return position, depth, kinds
        if byte != (_OBJECT_END if kinds & 1 else _ARRAY_END):
            return -1, 0, 0
        depth -= 1
        kinds >>= 1
        position += 1
    return position, 0, 0


@helper
def skip_value(data: Bytes, size: int, position: int, end: int) -> int:
    """Return the position after a value of any kind, nested up to `MOST_LEVELS` deep."""
    depth = 0
    kinds = 0  # a bit per open level, the innermost lowest: 1 for an object, 0 for an array
    while 0 <= position < end:
        byte = byte_at(data, position)
        if byte not in (_OBJECT, _ARRAY):
            position = skip_scalar(data, size, position, end)
        else:
            is_object = byte == _OBJECT
            position = skip_white(data, position + 1, end)
            if position >= end or depth == MOST_LEVELS:
                return -1
            if byte_at(data, position) != (_OBJECT_END if is_object else _ARRAY_END):
                depth += 1
                kinds = (kinds << 1) | (1 if is_object else 0)
                if is_object:
                    position = skip_key(data, size, position, end)
                continue
            position += 1
        if position < 0:
            return -1
        position, depth, kinds = close_levels(data, position, end, depth, kinds)
        if depth == 0:
            return position
        position = skip_white(data, position + 1, end)
        if kinds & 1:
            position = skip_key(data, size, position, end)
    return -1
