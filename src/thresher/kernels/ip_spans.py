# SPDX-License-Identifier: Apache-2.0
"""Where public IP addresses stand. A text in which a letter beyond ASCII might begin a title behind one is left to the
definition in Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.edits import DOUBT, FULL, has_half_pair, note_edit
from thresher.kernels.intrinsics import (
    BYTES,
    INT64,
    NONE,
    ONE,
    OUT,
    get,
    helper,
    kernel,
    low_bits,
    mask_equal,
    mask_range,
    trailing_zeros,
)
from thresher.kernels.ip_numbers import MOST_PARTS, address_v4, is_public_v4, is_public_v6
from thresher.kernels.json_bytes import byte_at
from thresher.kernels.pii_bytes import is_digit, is_hex, is_letter
from thresher.kernels.signatures import types
from thresher.kernels.white_space import white_before

_ZERO, _NINE, _DOT, _COLON, _LOW, _SPACE, _FEED = b"09.:_ \n"
_CASE = 0x20
_LONGEST_V6 = 45
_BEFORE = 10
"""So many characters before a number tell whether it is that of a section."""
_SIGN = (0xC2, 0xA7)
"""The sign of a section."""
_SECTIONS = (b"section", b"chapter", b"appendix", b"version")
_WORDS = np.frombuffer(b"".join(_SECTIONS), dtype=np.uint8)
_WORD_ENDS = np.cumsum([0, *(len(word) for word in _SECTIONS)])
_NO, _YES, _UNSURE = 0, 1, 2


@helper
def _ends_with_word(data: Any, first: int, last: int) -> bool:
    """Whether a word that numbers sections stands right before `last`."""
    for word in range(len(_WORD_ENDS) - 1):
        begin, size = _WORD_ENDS[word], _WORD_ENDS[word + 1] - _WORD_ENDS[word]
        same = last - first >= size
        for offset in range(size):
            if same and byte_at(data, last - size + offset) | _CASE != byte_at(_WORDS, begin + offset):
                same = False
        if same:
            return True
    return False


@helper
def _characters_before(data: Any, start: int, place: int) -> int:
    """Where the last `_BEFORE` characters before a place begin, or the text if it has fewer."""
    for _ in range(_BEFORE):
        if place == start:
            break
        place -= 1
        while place > start and byte_at(data, place) & 0xC0 == 0x80:
            place -= 1
    return place


@helper
def _numbers_a_section(data: Any, start: int, begin: int, behind: int, end: int) -> int:
    """Whether a number is that of a section: by the word before it, or because it begins a line and a title follows."""
    first = _characters_before(data, start, begin)
    last = begin
    size = white_before(data, first, last)
    while size > 0:
        last -= size
        size = white_before(data, first, last)
    if _ends_with_word(data, first, last):
        return _YES
    if last - first >= 2 and byte_at(data, last - 2) == _SIGN[0] and byte_at(data, last - 1) == _SIGN[1]:
        return _YES
    if last > first or first > start:  # other things than white space stand there, unless the line begins behind them
        line = begin
        while line > last and byte_at(data, line - 1) != _FEED:
            line -= 1
        if line == last:
            return _NO
    return _title(data, behind, end)


@helper
def _title(data: Any, place: int, end: int) -> int:
    """Whether a full stop, spaces and a letter follow."""
    if place >= end or byte_at(data, place) != _DOT:
        return _NO
    first = place + 1
    place = first
    while place < end and byte_at(data, place) == _SPACE:
        place += 1
    if place == first or place == end:
        return _NO
    byte = byte_at(data, place)
    if byte >= 0x80:
        return _UNSURE
    return _YES if is_letter(byte) else _NO


@helper
def _marks(data: Any, at: int, end: int) -> Any:
    """Of the bytes from `at` on up to 64: digits with a dot and a digit behind them, and colons."""
    colons = mask_equal(data, at, np.uint8(_COLON))
    if end - at > 64:
        dots = mask_equal(data, at + 1, np.uint8(_DOT))
        if dots != NONE:
            dots &= mask_range(data, at, np.uint8(_ZERO), np.uint8(_NINE))
            dots &= mask_range(data, at + 2, np.uint8(_ZERO), np.uint8(_NINE))
        return dots | colons
    digits = mask_range(data, at, np.uint8(_ZERO), np.uint8(_NINE)) & low_bits(end - at)
    dots = (mask_equal(data, at, np.uint8(_DOT)) >> ONE) & digits & (digits >> np.uint64(2))
    return dots | (colons & low_bits(end - at))


@helper
def _number_begin(data: Any, start: int, place: int) -> int:
    """Where the digits around `place` begin; -1 where something touches them that says they are no address."""
    begin = place
    while begin > start and place - begin < 3 and is_digit(byte_at(data, begin - 1)):
        begin -= 1
    if begin > start:
        byte = byte_at(data, begin - 1)
        if is_digit(byte) or is_letter(byte) or byte == _LOW or byte == _DOT:
            return -1
    return begin


@helper
def _run_end(data: Any, place: int, end: int) -> int:
    """Behind the hexadecimal digits, colons and dots from here on."""
    while place < end:
        byte = byte_at(data, place)
        if not (is_hex(byte) or byte == _COLON or byte == _DOT):
            break
        place += 1
    return place


@helper
def _v6_begin(data: Any, start: int, colon: int) -> int:
    """Where the digits before a colon begin; -1 where they are too many, or something touches them."""
    begin = colon
    while begin > start and colon - begin < 5 and is_hex(byte_at(data, begin - 1)):
        begin -= 1
    if colon - begin > 4:
        return -1
    if begin > start:
        byte = byte_at(data, begin - 1)
        if is_digit(byte) or is_letter(byte) or byte == _LOW or byte == _COLON or byte == _DOT:
            return -1
    return begin


@helper
def _v6(data: Any, start: int, colon: int, end: int, parts: Any, words: Any) -> tuple[int, int, int]:
    """At a colon: where a public address begins and ends (-1: there is none), and up to where nothing more is."""
    behind = _run_end(data, colon + 1, end)
    begin = _v6_begin(data, start, colon)
    if behind == colon + 1 or begin < 0:
        return -1, -1, behind
    if behind < end and (is_letter(byte_at(data, behind)) or byte_at(data, behind) == _LOW):
        while behind > colon and byte_at(data, behind) != _DOT:  # a word follows: it ends at a full stop, or not
            behind -= 1
    last = behind
    while last > begin and byte_at(data, last - 1) == _DOT:
        last -= 1
    if last > begin and byte_at(data, last - 1) == _COLON and (last - 1 == begin or byte_at(data, last - 2) != _COLON):
        last -= 1
    if last - begin <= _LONGEST_V6 and is_public_v6(data, begin, last, parts, words):
        return begin, last, max(behind, colon + 1)
    return -1, -1, max(behind, colon + 1)


@kernel(types.int64(BYTES, INT64, INT64, OUT, DOUBT))
def find(data: Any, starts: Any, ends: Any, found: Any, doubtful: Any) -> int:
    """Where addresses stand in each text."""
    count = 0
    parts, words = np.empty(MOST_PARTS, dtype=np.int64), np.empty(8, dtype=np.int64)
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        before = count
        done = colons_done = start
        unsure = False
        at = start
        while at < end and not unsure:
            mask = _marks(data, at, end)
            while mask != NONE and not unsure:
                place = at + trailing_zeros(mask)
                mask &= mask - ONE
                if byte_at(data, place) == _COLON:
                    if place >= colons_done:
                        begin, behind, colons_done = _v6(data, start, place, end, parts, words)
                        if begin >= done:
                            if count == len(found):
                                return FULL
                            count = note_edit(found, count, row, begin, behind, 0)
                            done = behind
                    continue
                begin = _number_begin(data, start, place)
                if begin < done:
                    continue
                address, behind = address_v4(data, begin, end)
                if address < 0 or not is_public_v4(address):
                    continue
                section = _numbers_a_section(data, start, begin, behind, end)
                if section == _UNSURE:
                    unsure = True
                elif section == _NO:
                    if count == len(found):
                        return FULL
                    count = note_edit(found, count, row, begin, behind, 0)
                    done = behind
            at += 64
        if unsure or (count > before and has_half_pair(data, start, end)):
            count = before
            doubtful[row] = 1
    return count
