# SPDX-License-Identifier: Apache-2.0
"""The texts of one field of JSON lines, unescaped into one buffer, without a Python object per record.

    texts, statuses = extract_texts(data, starts, ends, "text")

The same pass tells which lines are a JSON object from end to end; what it cannot tell is `SLOW` and left to a real
decoder. Lines are valid UTF-8 already: that is checked for a whole chunk at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import PADDING, Rows, Texts
from thresher.kernels.intrinsics import BYTES, INT64, OUT, get, helper, kernel, put
from thresher.kernels.json_bytes import (
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
from thresher.kernels.json_values import (
    BLOCK,
    SIMPLE_ESCAPES,
    escape_length,
    escaped_unit,
    skip_string,
    skip_value,
    skip_white,
)
from thresher.kernels.line_feeds import find_line_feeds
from thresher.kernels.signatures import types
from thresher.kernels.utf8 import is_utf8

__all__ = [
    "ABSENT",
    "OK",
    "OTHER",
    "SLOW",
    "are_objects",
    "asked_last",
    "extract_texts",
    "find_line_feeds",
    "is_valid",
    "with_decoded",
]
OK, ABSENT, OTHER, SLOW = 0, 1, 2, 3
"""What a line holds under the field: a text; nothing or null; a value that is no text; or it takes a real decoder to
tell (an escaped key, half a surrogate pair, very deep nesting, anything that is not plain JSON)."""

Statuses = npt.NDArray[np.uint8]
_SPACE, _QUOTE, _BACKSLASH, _OBJECT, _OBJECT_END, _COLON, _COMMA, _NULL = b' "\\{}:,n'
_asked: list[str] = []
_ODD_BITS = -0x5555555555555556
_NO_KEY = np.zeros(0, dtype=np.uint8)
_NO_TEXT = np.zeros(0, dtype=np.uint8)


def extract_texts(data: Bytes, starts: Rows, ends: Rows, field: str) -> tuple[Texts, Statuses]:
    """The text of `field` in every line of `data` (`starts`, `ends`: where lines begin and end), and a status per line.

    Of keys that come twice the last counts. Texts of lines that are not `OK` are empty. A line that is `SLOW` is for a
    real decoder; `with_decoded` takes what it finds.
    """
    _asked[:] = [field] if _is_plain(field) else []
    lengths = ends - starts
    room = int(lengths.sum()) if len(starts) else 0
    out = np.empty(room + PADDING, dtype=np.uint8)
    found = np.zeros((3, len(starts)), dtype=np.int64)
    if _is_plain(field):
        key = np.frombuffer(field.encode("utf-8", "surrogatepass"), dtype=np.uint8)
        used = _scan_lines(data, starts, ends, key, (out, _room_for_places()), found)
    else:
        used = 0
        found[2] = SLOW
    out[used : used + PADDING] = 0
    return Texts(out, found[0], found[1]), found[2].astype(np.uint8)


def _room_for_places() -> Rows:
    """Where the kernel keeps places for itself."""
    return np.empty(4 * BLOCK + 4, dtype=np.int64)


def asked_last() -> str | None:
    """The field that was last asked for in this process: a reader that checks lines may as well look for it."""
    return _asked[0] if _asked else None


def is_valid(data: Bytes) -> bool:
    """Whether all of `data` is valid UTF-8, which the other functions here take for granted."""
    return bool(is_utf8(data))


def are_objects(data: Bytes, starts: Rows, ends: Rows) -> npt.NDArray[np.bool_]:
    """Which lines are one JSON object each, and nothing else; `False` may also mean "look closer"."""
    found = np.zeros((3, len(starts)), dtype=np.int64)
    _scan_lines(data, starts, ends, _NO_KEY, (_NO_TEXT, _room_for_places()), found)
    return np.asarray(found[2] != SLOW, dtype=np.bool_)


def with_decoded(texts: Texts, rows: Rows, values: Sequence[str]) -> Texts:
    """`texts` with `values` for some rows; half a surrogate pair gets the three bytes of a character."""
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    lengths = np.array([len(one) for one in encoded], dtype=np.int64)
    first = len(texts.data) - PADDING
    added = np.frombuffer(b"".join([*encoded, bytes(PADDING)]), dtype=np.uint8)
    starts, ends = texts.starts.copy(), texts.ends.copy()
    ends[rows] = first + lengths.cumsum()
    starts[rows] = ends[rows] - lengths
    return Texts(np.concatenate([texts.data[:first], added]), starts, ends)


def _is_plain(field: str) -> bool:
    """Whether JSON writes a key as it is; one that must be escaped is left to a real decoder."""
    return all(character >= " " and character not in '"\\' for character in field)


@inlined
def put_character(character: int, out: Bytes, place: int) -> int:
    """Write a code point as UTF-8; the place behind it."""
    if character < 0x80:
        put_byte(out, place, character)
        return place + 1
    if character < 0x800:
        put_byte(out, place, 0xC0 | (character >> 6))
        put_byte(out, place + 1, 0x80 | (character & 63))
        return place + 2
    if character < 0x10000:
        put_byte(out, place, 0xE0 | (character >> 12))
        put_byte(out, place + 1, 0x80 | ((character >> 6) & 63))
        put_byte(out, place + 2, 0x80 | (character & 63))
        return place + 3
    put_byte(out, place, 0xF0 | (character >> 18))
    put_byte(out, place + 1, 0x80 | ((character >> 12) & 63))
    put_byte(out, place + 2, 0x80 | ((character >> 6) & 63))
    put_byte(out, place + 3, 0x80 | (character & 63))
    return place + 4


@helper
def copy_escape(data: Bytes, place: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """Write what the escape at `place` stands for: the place behind it (-1: it is none), and the one behind what was
    written."""
    if place + 2 > end or byte_at(data, place) != _BACKSLASH:
        return -1, to
    simple = byte_at(SIMPLE_ESCAPES, byte_at(data, place + 1))
    if simple != 0:
        put_byte(out, to, simple)
        return place + 2, to + 1
    character = escaped_unit(data, place, end)
    if character < 0:
        return -1, to
    return place + escape_length(character), put_character(character, out, to)


@inlined
def note_stops(stops: int, first: int, noted: int, places: Rows) -> int:
    """Note where bits of a mask are set; how many places are noted then. Four are written whatever the mask holds,
    because a loop of unknown length costs more than all of them."""
    behind = noted + count_bits(stops)
    for offset in range(4):
        put(places, noted + offset, first + first_bit(stops))
        stops &= stops - 1
    noted += 4
    while noted < behind:
        put(places, noted, first + first_bit(stops))
        stops &= stops - 1
        noted += 1
    return behind


@helper
def copy_bytes(data: Bytes, place: int, end: int, out: Bytes, to: int) -> int:
    """Copy what lies between two places, in blocks: up to 64 bytes more are read and written. The place behind it."""
    if end <= place:
        return to
    behind = to + end - place
    copy_block(data, place, out, to)
    while place + BLOCK < end:
        place += BLOCK
        to += BLOCK
        copy_block(data, place, out, to)
    return behind


@helper
def copy_string(data: Bytes, place: int, end: int, out: Bytes, to: int, places: Rows) -> tuple[int, int]:
    """Unescape a string, `place` being behind its opening mark: the place behind its closing mark (-1: not plain JSON),
    and the one behind the last byte that was written. A text never takes more bytes than its string.

    Blocks are looked at four at a time: first all escapes are noted, without a branch, then worked on one by one.
    """
    size = len(data)
    copied = place
    escaped = 0  # whether the first byte of the next block is the second of an escape
    while place < end and place + 5 * BLOCK <= size:
        noted, ends, blocks = 0, 0, 0
        while blocks < 4 and ends == 0:
            backslashes, ends = string_marks(data, place)
            open_escapes = backslashes & ~escaped
            series = (((open_escapes << 1) | _ODD_BITS) - open_escapes) ^ _ODD_BITS
            ends &= ~(series ^ (backslashes | escaped))
            escapes = series & backslashes
            escaped = 1 if escapes < 0 else 0
            noted = note_stops(escapes & (ends ^ (ends - 1)) if ends != 0 else escapes, place, noted, places)
            place += BLOCK
            blocks += 1
        for number in range(noted):
            stop = get(places, number)
            if stop + 2 > end:
                return -1, to
            if stop >= copied:  # the second half of a pair is done with the first
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
            stop = place - BLOCK + first_bit(ends)
            if stop >= end or byte_at(data, stop) != _QUOTE:
                return -1, to
            return stop + 1, copy_bytes(data, copied, stop, out, to)
        if place >= end:
            return -1, to
        if copied < place:
            to = copy_bytes(data, copied, place, out, to)
            copied = place
    return copy_rest(data, copied, end, out, to)


@helper
def copy_rest(data: Bytes, place: int, end: int, out: Bytes, to: int) -> tuple[int, int]:
    """The same byte by byte."""
    while 0 <= place < end:
        byte = byte_at(data, place)
        if byte == _QUOTE:
            return place + 1, to
        if byte >= _SPACE and byte != _BACKSLASH:
            put_byte(out, to, byte)
            place += 1
            to += 1
        else:
            place, to = copy_escape(data, place, end, out, to)
    return -1, to


@inlined
def compare_key(data: Bytes, place: int, end: int, wanted: Bytes) -> int:
    """1: the key is the wanted one; 0: it is another; -1: it has escapes, and might be."""
    size = len(wanted)
    if end - place < size:
        return 0
    if end - place == size:
        for offset in range(size):
            if byte_at(data, place + offset) != byte_at(wanted, offset):
                return 0
        return 1
    while place < end:  # an escape is longer than what it stands for
        if byte_at(data, place) == _BACKSLASH:
            return -1
        place += 1
    return 0


@helper
def scan_line(
    data: Bytes, place: int, end: int, wanted: Bytes, out: Bytes, first: int, places: Rows
) -> tuple[int, int]:
    """Status of a line, and where the text ends that was written from `first` on. Without room in `out` the line is
    only checked, and then it is `ABSENT` if it is an object."""
    size = len(data)
    only_check = len(out) == 0
    status = ABSENT
    to = first
    place = skip_white(data, place, end)
    if place >= end or byte_at(data, place) != _OBJECT:
        return SLOW, first
    place = skip_white(data, place + 1, end)
    if place < end and byte_at(data, place) == _OBJECT_END:
        return (ABSENT if skip_white(data, place + 1, end) == end else SLOW), first
    while place < end and byte_at(data, place) == _QUOTE:
        key = place + 1
        place = skip_string(data, size, key, end)
        if place < 0:
            return SLOW, first
        meant = 0 if only_check else compare_key(data, key, place - 1, wanted)
        place = skip_white(data, place, end)
        if meant < 0 or place >= end or byte_at(data, place) != _COLON:
            return SLOW, first
        place = skip_white(data, place + 1, end)
        if meant == 1:
            to = first
            if place < end and byte_at(data, place) == _QUOTE:
                status = OK
                place, to = copy_string(data, place + 1, end, out, first, places)
            else:
                status = ABSENT if place < end and byte_at(data, place) == _NULL else OTHER
                place = skip_value(data, size, place, end)
        else:
            place = skip_value(data, size, place, end)
        if place < 0:
            return SLOW, first
        place = skip_white(data, place, end)
        if place >= end:
            return SLOW, first
        byte = byte_at(data, place)
        place = skip_white(data, place + 1, end)
        if byte == _OBJECT_END:
            return (status, to) if place == end else (SLOW, first)
        if byte != _COMMA:
            return SLOW, first
    return SLOW, first


@kernel(types.int64(BYTES, INT64, INT64, BYTES, types.Tuple((BYTES_OUT, types.int64[::1])), OUT))
def _scan_lines(data: Bytes, starts: Rows, ends: Rows, wanted: Bytes, room: tuple[Bytes, Rows], found: Rows) -> int:
    """Every line: rows of `found` get where its text begins, where it ends, and the status. Gives the end of the last
    text."""
    size = len(data)
    out, places = room
    to = 0
    for row in range(len(starts)):
        start, end = starts[row], ends[row]
        found[0, row] = to
        found[2, row] = SLOW
        if start >= 0 and end <= size and start < end:
            status, behind = scan_line(data, start, end, wanted, out, to, places)
            found[2, row] = status
            if status == OK:
                to = behind
        found[1, row] = to
    return to


READY = True
"""Set when everything above is compiled or loaded: another thread may be importing this module."""
