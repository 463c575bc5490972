# SPDX-License-Identifier: Apache-2.0
"""Extract the texts of one field of JSON lines, unescaped into one buffer, without a Python object per record.

    texts, statuses = extract_texts(data, starts, ends, "text")

The same pass checks which lines are JSON objects; lines that it cannot decide are `SLOW` and left to a real decoder.
Lines must be valid UTF-8: that is checked for a whole chunk at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT64, OUT, get, helper, kernel, put
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import PADDING, Rows, Texts
from thresher.kernels.json.chunks import find_line_feeds, is_utf8
from thresher.kernels.json.scan import (
    BYTES_OUT,
    Bytes,
    byte_at,
    copy_block,
    count_bits,
    first_bit,
    inlined,
    put_byte,
    string_marks,
)
from thresher.kernels.json.values import (
    BLOCK,
    SIMPLE_ESCAPES,
    escape_length,
    escaped_unit,
    skip_string,
    skip_value,
    skip_white,
)

__all__ = [
    "ABSENT",
    "OK",
    "OTHER",
    "SLOW",
    "are_objects",
    "extract_texts",
    "find_line_feeds",
    "is_valid",
    "last_field",
    "with_decoded",
]
OK, ABSENT, OTHER, SLOW = 0, 1, 2, 3
"""Statuses of a line: the field is a text; it is missing or null; it is another value; or a real decoder has to decide
(an escaped key, a lone surrogate, very deep nesting, anything that is not plain JSON)."""

Statuses = npt.NDArray[np.uint8]
_SPACE, _QUOTE, _BACKSLASH, _OBJECT, _OBJECT_END, _COLON, _COMMA, _NULL = b' "\\{}:,n'
_last_field: list[str] = []
_ODD_BITS = -0x5555555555555556
_NO_KEY = np.zeros(0, dtype=np.uint8)
_NO_TEXT = np.zeros(0, dtype=np.uint8)


def extract_texts(data: Bytes, starts: Rows, ends: Rows, field: str) -> tuple[Texts, Statuses]:
    """Return the text of `field` in every line of `data` (lines given by `starts` and `ends`), and a status per line.

    Of duplicate keys the last counts. Texts of lines that are not `OK` are empty. A line that is `SLOW` needs a real
    decoder; `with_decoded` adds its result.
    """
    _last_field[:] = [field] if _is_plain(field) else []
    lengths = ends - starts
    room = int(lengths.sum()) if len(starts) else 0
    out = np.empty(room + PADDING, dtype=np.uint8)
    found = np.zeros((3, len(starts)), dtype=np.int64)
    if _is_plain(field):
        key = np.frombuffer(field.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        used = _scan_lines(data, starts, ends, key, (out, _position_buffer()), found)
    else:
        used = 0
        found[2] = SLOW
    out[used : used + PADDING] = 0
    return Texts(out, found[0], found[1]), found[2].astype(np.uint8)


def _position_buffer() -> Rows:
    """Return a work buffer for positions."""
    return np.empty(4 * BLOCK + 4, dtype=np.int64)


def last_field() -> str | None:
    """Return the field that was last extracted in this process, so that a reader that checks lines can extract it in
    the same pass."""
    return _last_field[0] if _last_field else None


def is_valid(data: Bytes) -> bool:
    """Return True if all of `data` is valid UTF-8, which the other functions here require."""
    return bool(is_utf8(data))


def are_objects(data: Bytes, starts: Rows, ends: Rows) -> npt.NDArray[np.bool_]:
    """Return which lines are exactly one JSON object; `False` may also mean that a real decoder has to decide."""
    found = np.zeros((3, len(starts)), dtype=np.int64)
    _scan_lines(data, starts, ends, _NO_KEY, (_NO_TEXT, _position_buffer()), found)
    return np.asarray(found[2] != SLOW, dtype=np.bool_)


def with_decoded(texts: Texts, rows: Rows, values: Sequence[str]) -> Texts:
    """Return `texts` with `values` for some rows; lone surrogates are encoded as three bytes."""
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    lengths = np.array([len(one) for one in encoded], dtype=np.int64)
    first = len(texts.data) - PADDING
    added = np.frombuffer(b"".join([*encoded, bytes(PADDING)]), dtype=np.uint8)
    starts, ends = texts.starts.copy(), texts.ends.copy()
    ends[rows] = first + lengths.cumsum()
    starts[rows] = ends[rows] - lengths
    return Texts(np.concatenate([texts.data[:first], added]), starts, ends)


def _is_plain(field: str) -> bool:
    """Return True if a key needs no escapes in JSON; others are left to a real decoder."""
    return all(character >= " " and character not in '"\\' for character in field)


@inlined
def put_character(character: int, out: Bytes, position: int) -> int:
    """Write a code point as UTF-8; return the position after it."""
    if character < 0x80:
        put_byte(out, position, character)
        return position + 1
    if character < 0x800:
        put_byte(out, position, 0xC0 | (character >> 6))
        put_byte(out, position + 1, 0x80 | (character & 63))
        return position + 2
    if character < 0x10000:
        put_byte(out, position, 0xE0 | (character >> 12))
        put_byte(out, position + 1, 0x80 | ((character >> 6) & 63))
        put_byte(out, position + 2, 0x80 | (character & 63))
        return position + 3
    put_byte(out, position, 0xF0 | (character >> 18))
    put_byte(out, position + 1, 0x80 | ((character >> 12) & 63))
    put_byte(out, position + 2, 0x80 | ((character >> 6) & 63))
    put_byte(out, position + 3, 0x80 | (character & 63))
    return position + 4


@helper
def copy_escape(data: Bytes, position: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """Write the character of the escape at `position`; return the position after the escape (-1: it is invalid) and the
    position after the output."""
    if position + 2 > end or byte_at(data, position) != _BACKSLASH:
        return -1, to
    simple = byte_at(SIMPLE_ESCAPES, byte_at(data, position + 1))
    if simple != 0:
        put_byte(out, to, simple)
        return position + 2, to + 1
    character = escaped_unit(data, position, end)
    if character < 0:
        return -1, to
    return position + escape_length(character), put_character(character, out, to)


@inlined
def note_stops(stops: int, first: int, noted: int, positions: Rows) -> int:
    """Append the positions of the set bits of a mask; return the new number of positions. At least four are written,
    because a loop of unknown length costs more."""
    behind = noted + count_bits(stops)
    for offset in range(4):
        put(positions, noted + offset, first + first_bit(stops))
        stops &= stops - 1
    noted += 4
    while noted < behind:
        put(positions, noted, first + first_bit(stops))
        stops &= stops - 1
        noted += 1
    return behind


@helper
def copy_bytes(data: Bytes, position: int, end: int, out: Bytes, to: int) -> int:
    """Copy a range of bytes in blocks; up to 64 more bytes are read and written. Return the position after the
    range."""
    if end <= position:
        return to
    behind = to + end - position
    copy_block(data, position, out, to)
    while position + BLOCK < end:
        position += BLOCK
        to += BLOCK
        copy_block(data, position, out, to)
    return behind


@helper
def copy_string(data: Bytes, position: int, end: int, out: Bytes, to: int, positions: Rows) -> tuple[int, int]:
    """Unescape a string that begins after the quotation mark before `position`; return the position after its closing
    mark (-1: not plain JSON) and the position after the output. A text never takes more bytes than its string.

    Blocks are processed four at a time: first all escapes are collected without a branch, then handled one by one.
    """
    size = len(data)
    copied = position
    escaped = 0  # 1 if the first byte of the next block is the second of an escape
    while position < end and position + 5 * BLOCK <= size:
        noted, ends, blocks = 0, 0, 0
        while blocks < 4 and ends == 0:
            backslashes, ends = string_marks(data, position)
            open_escapes = backslashes & ~escaped
            series = (((open_escapes << 1) | _ODD_BITS) - open_escapes) ^ _ODD_BITS
            ends &= ~(series ^ (backslashes | escaped))
            escapes = series & backslashes
            escaped = 1 if escapes < 0 else 0
            noted = note_stops(escapes & (ends ^ (ends - 1)) if ends != 0 else escapes, position, noted, positions)
            position += BLOCK
            blocks += 1
        for number in range(noted):
            stop = get(positions, number)
            if stop + 2 > end:
                return -1, to
            if stop >= copied:  # the second escape of a pair is handled with the first
                copy_block(data, copied, out, to)
                if stop - copied > BLOCK:
                    copy_bytes(data, copied, stop, out, to)
                to += stop - copied
                simple = byte_at(SIMPLE_ESCAPES, byte_at(data, stop + 1))
                if simple != 0:
                    put_byte(out, to, simple)
                    to += 1
                    copied = stop + 2
                else:
                    copied, to = copy_escape(data, stop, end, out, to)
                    if copied < 0:
                        return -1, to
        if ends != 0:
            stop = position - BLOCK + first_bit(ends)
            if stop >= end or byte_at(data, stop) != _QUOTE:
                return -1, to
            return stop + 1, copy_bytes(data, copied, stop, out, to)
        if position >= end:
            return -1, to
        if copied < position:
            to = copy_bytes(data, copied, position, out, to)
            copied = position
    return copy_rest(data, copied, end, out, to)


@helper
def copy_rest(data: Bytes, position: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """Unescape the rest of a string byte by byte; return the same as `copy_string`."""
    while 0 <= position < end:
        byte = byte_at(data, position)
        if byte == _QUOTE:
            return position + 1, to
        if byte >= _SPACE and byte != _BACKSLASH:
            put_byte(out, to, byte)
            position += 1
            to += 1
        else:
            position, to = copy_escape(data, position, end, out, to)
    return -1, to


@inlined
def compare_key(data: Bytes, position: int, end: int, wanted: Bytes) -> int:
    """Return 1 if the key is the wanted one, 0 if it is another, -1 if it has escapes and might be."""
    size = len(wanted)
    if end - position < size:
        return 0
    if end - position == size:
        for offset in range(size):
            if byte_at(data, position + offset) != byte_at(wanted, offset):
                return 0
        return 1
    while position < end:  # an escape is longer than its character
        if byte_at(data, position) == _BACKSLASH:
            return -1
        position += 1
    return 0


@helper
def scan_line(
    data: Bytes, position: int, end: int, wanted: Bytes, out: Bytes, first: int, positions: Rows
) -> tuple[int, int]:
    """Return the status of a line, and the end of the text that was written from `first` on. If `out` is empty the line
    is only checked, and an object is `ABSENT`."""
    size = len(data)
    only_check = len(out) == 0
    status = ABSENT
    to = first
    position = skip_white(data, position, end)
    if position >= end or byte_at(data, position) != _OBJECT:
        return SLOW, first
    position = skip_white(data, position + 1, end)
    if position < end and byte_at(data, position) == _OBJECT_END:
        return (ABSENT if skip_white(data, position + 1, end) == end else SLOW), first
    while position < end and byte_at(data, position) == _QUOTE:
        key = position + 1
        position = skip_string(data, size, key, end)
        if position < 0:
            return SLOW, first
        meant = 0 if only_check else compare_key(data, key, position - 1, wanted)
        position = skip_white(data, position, end)
        if meant < 0 or position >= end or byte_at(data, position) != _COLON:
            return SLOW, first
        position = skip_white(data, position + 1, end)
        if meant == 1:
            to = first
            if position < end and byte_at(data, position) == _QUOTE:
                status = OK
                position, to = copy_string(data, position + 1, end, out, first, positions)
            else:
                status = ABSENT if position < end and byte_at(data, position) == _NULL else OTHER
                position = skip_value(data, size, position, end)
        else:
            position = skip_value(data, size, position, end)
        if position < 0:
            return SLOW, first
        position = skip_white(data, position, end)
        if position >= end:
            return SLOW, first
        byte = byte_at(data, position)
        position = skip_white(data, position + 1, end)
        if byte == _OBJECT_END:
            return (status, to) if position == end else (SLOW, first)
        if byte != _COMMA:
            return SLOW, first
    return SLOW, first


@kernel(types.int64(BYTES, INT64, INT64, BYTES, types.Tuple((BYTES_OUT, types.int64[::1])), OUT))
def _scan_lines(data: Bytes, starts: Rows, ends: Rows, wanted: Bytes, room: tuple[Bytes, Rows], found: Rows) -> int:
    """Scan every line: fill the rows of `found` with start and end of its text and its status; return the end of the
    last text."""
    size = len(data)
    out, positions = room
    to = 0
    for row in range(len(starts)):
        start, end = starts[row], ends[row]
        found[0, row] = to
        found[2, row] = SLOW
        if start >= 0 and end <= size and start < end:
            status, behind = scan_line(data, start, end, wanted, out, to, positions)
            found[2, row] = status
            if status == OK:
                to = behind
        found[1, row] = to
    return to


READY = True
"""Set when everything above is compiled or loaded: another thread may be importing this module."""
