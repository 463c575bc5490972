# SPDX-License-Identifier: Apache-2.0
"""Replace texts in JSON lines; everything else in a line keeps its bytes.

    lines = patched(data, starts, ends, "text", texts)

A line must be plain JSON and have the key once; others are left to a real decoder.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT64, OUT, get, helper, kernel
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import PADDING, Rows, Texts
from thresher.kernels.edits.rewrite import copy_stretch
from thresher.kernels.json.scan import (
    BYTES_OUT,
    Bytes,
    byte_at,
    copy_block,
    count_bits,
    first_bit,
    put_byte,
    string_stops,
)
from thresher.kernels.json.values import BLOCK, skip_string, skip_value, skip_white

_SPACE, _QUOTE, _BACKSLASH, _OBJECT, _OBJECT_END, _COLON, _COMMA, _U, _ZERO = b' "\\{}:,u0'
_LONGEST_ESCAPE = 6
_MOST_KEYS = 32
"""Keys of a line are compared with each other; lines with more are left to a real decoder."""
ESCAPES = np.zeros(32, dtype=np.uint8)
"""The letters that stand for control characters after a backslash; 0 for characters that have none."""
ESCAPES[list(b"\b\t\n\f\r")] = list(b"btnfr")
_DIGITS = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)


class Patched(NamedTuple):
    """Lines with new texts."""

    data: npt.NDArray[np.uint8]
    """The bytes of all lines."""
    starts: Rows
    """Start of each line."""
    ends: Rows
    """End of each line; equal to its start for a line that needs a real decoder."""


def patched(data: Bytes, starts: Rows, ends: Rows, field: str, texts: Texts) -> Patched:
    """Return the lines of `data` with `texts`, one for each, under the key `field`."""
    positions = np.zeros((2, len(starts)), dtype=np.int64)
    key = np.frombuffer(field.encode("utf-8", "surrogatepass"), dtype=np.uint8)
    longest = int((ends - starts).sum()) + _escaped_size(texts.data, texts.starts, texts.ends)
    out = np.empty(longest + 2 * PADDING, dtype=np.uint8)
    if all(character >= " " and character not in '"\\' for character in field):
        keys = np.empty((2, _MOST_KEYS), dtype=np.int64)
        _patch(data, starts, ends, key, texts.data, texts.starts, texts.ends, out, positions, keys)
    return Patched(out, positions[0], positions[1])


@kernel(types.int64(BYTES, INT64, INT64))
def _escaped_size(data: Any, starts: Any, ends: Any) -> int:
    """Return an upper bound of the bytes that texts take in JSON with their quotation marks."""
    size = 0
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        size += end - start + 2
        at = start
        while at < end:
            stops = string_stops(data, at)
            if stops != 0:
                size += (_LONGEST_ESCAPE - 1) * count_bits(stops)
            at += BLOCK
    return size


@helper
def _put_escape(byte: int, out: Any, to: int) -> int:
    """Write the escape of a byte; return the position after it."""
    put_byte(out, to, _BACKSLASH)
    if byte == _QUOTE or byte == _BACKSLASH:
        put_byte(out, to + 1, byte)
        return to + 2
    letter = byte_at(ESCAPES, byte)
    if letter != 0:
        put_byte(out, to + 1, letter)
        return to + 2
    put_byte(out, to + 1, _U)
    put_byte(out, to + 2, _ZERO)
    put_byte(out, to + 3, _ZERO)
    put_byte(out, to + 4, byte_at(_DIGITS, byte >> 4))
    put_byte(out, to + 5, byte_at(_DIGITS, byte & 15))
    return to + 6


@helper
def _put_string(data: Any, start: int, end: int, out: Any, to: int) -> int:
    """Write a text as a JSON string; return the position after it."""
    put_byte(out, to, _QUOTE)
    to += 1
    copied = start
    at = start
    while at < end:
        stops = string_stops(data, at)
        while stops != 0:
            stop = at + first_bit(stops)
            stops &= stops - 1
            if stop >= end:
                break
            copy_block(data, copied, out, to)
            if stop - copied > BLOCK:
                copy_stretch(data, copied + BLOCK, stop, out, to + BLOCK)
            to = _put_escape(byte_at(data, stop), out, to + stop - copied)
            copied = stop + 1
        at += BLOCK
    to = copy_stretch(data, copied, end, out, to)
    put_byte(out, to, _QUOTE)
    return to + 1


@helper
def _copy_part(data: Any, start: int, end: int, out: Any, to: int) -> int:
    """Copy a part of a line without reading beyond the end of `data`."""
    if end + BLOCK <= len(data):
        return copy_stretch(data, start, end, out, to)
    for position in range(start, end):
        put_byte(out, to, byte_at(data, position))
        to += 1
    return to


@helper
def _same_key(data: Any, start: int, end: int, other: Any, first: int, last: int) -> bool:
    if end - start != last - first:
        return False
    for offset in range(end - start):
        if byte_at(data, start + offset) != byte_at(other, first + offset):
            return False
    return True


@helper
def _value(data: Any, start: int, end: int, key: Any, keys: Any) -> tuple[int, int]:
    """Return the start and end of the value of a key in a line from `{` to `}`; -1 if that needs a real decoder."""
    size = len(data)
    first = last = -1
    count = 0
    position = skip_white(data, start + 1, end)
    while position < end and byte_at(data, position) == _QUOTE:
        begin = position + 1
        position = skip_string(data, size, begin, end)
        if position < 0 or count == _MOST_KEYS:
            return -1, -1
        for at in range(begin, position - 1):
            if byte_at(data, at) == _BACKSLASH:
                return -1, -1
        for other in range(count):
            if _same_key(data, begin, position - 1, data, keys[0, other], keys[1, other]):
                return -1, -1
        keys[0, count] = begin
        keys[1, count] = position - 1
        count += 1
        is_wanted = _same_key(data, begin, position - 1, key, 0, len(key))
        position = skip_white(data, position, end)
        if position >= end or byte_at(data, position) != _COLON:
            return -1, -1
        begin = skip_white(data, position + 1, end)
        position = skip_value(data, size, begin, end)
        if position < 0:
            return -1, -1
        if is_wanted:
            first, last = begin, position
        position = skip_white(data, position, end)
        if position >= end:
            return -1, -1
        if byte_at(data, position) == _OBJECT_END:
            return (first, last) if position + 1 == end else (-1, -1)
        if byte_at(data, position) != _COMMA:
            return -1, -1
        position = skip_white(data, position + 1, end)
    return -1, -1


@kernel(types.int64(BYTES, INT64, INT64, BYTES, BYTES, INT64, INT64, BYTES_OUT, OUT, OUT))
def _patch(
    data: Any, starts: Any, ends: Any, key: Any, texts: Any, first: Any, last: Any, out: Any, positions: Any, keys: Any
) -> int:
    """Write every line that is plain JSON, and its start and end; return the end of the last one."""
    to = 0
    for row in range(len(starts)):
        start, end = skip_white(data, get(starts, row), get(ends, row)), get(ends, row)
        while end > start and skip_white(data, end - 1, end) == end:
            end -= 1
        positions[0, row] = to
        if start < end and byte_at(data, start) == _OBJECT:
            begin, behind = _value(data, start, end, key, keys)
            if begin >= 0:
                to = _copy_part(data, start, begin, out, to)
                to = _put_string(texts, get(first, row), get(last, row), out, to)
                to = _copy_part(data, behind, end, out, to)
        positions[1, row] = to
    return to
