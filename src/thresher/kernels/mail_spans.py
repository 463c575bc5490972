# SPDX-License-Identifier: Apache-2.0
"""Where e-mail addresses stand, where they are plain ASCII. A text with letters of other Latin alphabets next to one is
left to the definition in Python."""

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
    trailing_zeros,
)
from thresher.kernels.json_bytes import byte_at
from thresher.kernels.pii_bytes import is_digit, is_letter
from thresher.kernels.signatures import types

_AT, _DOT, _LOW, _HYPHEN, _PLUS, _PERCENT, _QUOTE = b"@._-+%'"
_X, _N = b"xn"
_LONGEST_LOCAL, _LONGEST_LABEL, _MOST_LABELS = 64, 63, 10
_LONGEST_CODED, _LONGEST_LAST, _SHORTEST_LAST = 59, 24, 2
_FIRST_LATIN, _LAST_LATIN = 0xC3, 0xC9
"""First bytes of the letters that an address may have beyond ASCII, and of a few other characters."""
_NONE, _UNSURE = -1, -2


@helper
def _is_mark(byte: int) -> bool:
    """Signs that do not begin the part before the `@`."""
    return byte == _DOT or byte == _PERCENT or byte == _PLUS or byte == _QUOTE or byte == _HYPHEN


@helper
def _is_latin(byte: int) -> bool:
    return _FIRST_LATIN <= byte <= _LAST_LATIN


@helper
def _local_begin(data: Any, first: int, at: int) -> int:
    """Where the part before the `@` begins; `at` where there is none."""
    if at == first or byte_at(data, at - 1) == _DOT:
        return at
    place = at
    while place > first:
        byte = byte_at(data, place - 1)
        if byte >= 0x80:
            # The last byte of a character: whether it is a letter of an address its first one tells.
            if byte < 0xC0 and _is_latin(byte_at(data, place - 2)):
                return _UNSURE
            break
        if not (is_letter(byte) or is_digit(byte) or byte == _LOW or _is_mark(byte)):
            break
        if byte == _DOT and byte_at(data, place) == _DOT:  # two in a row: the part begins behind them
            place += 1
            break
        place -= 1
    while place < at and _is_mark(byte_at(data, place)):
        place += 1
    return place


@helper
def _label_end(data: Any, place: int, end: int) -> int:
    """Behind the letters, digits and hyphens from here on."""
    while place < end:
        byte = byte_at(data, place)
        if not (is_letter(byte) or is_digit(byte) or byte == _HYPHEN):
            break
        place += 1
    return place


@helper
def _last_label_end(data: Any, place: int, end: int) -> int:
    """Behind the last label of a domain that begins here; -1 where none does."""
    if (
        place + 4 < end
        and byte_at(data, place) == _X
        and byte_at(data, place + 1) == _N
        and byte_at(data, place + 2) == _HYPHEN
        and byte_at(data, place + 3) == _HYPHEN
    ):
        coded = _label_end(data, place + 4, min(end, place + 4 + _LONGEST_CODED))
        if coded > place + 4:
            return coded
    last = place
    while last < end and last - place < _LONGEST_LAST and is_letter(byte_at(data, last)):
        last += 1
    return last if last - place >= _SHORTEST_LAST else _NONE


@helper
def _domain_end(data: Any, place: int, end: int) -> int:
    """Behind the domain that begins here: as many labels as there are, of which the last one is one that may be."""
    behind = _NONE
    for label in range(_MOST_LABELS + 1):
        last = _label_end(data, place, end)
        if last < end and _is_latin(byte_at(data, last)):
            return _UNSURE
        if label > 0:
            ended = _last_label_end(data, place, end)
            behind = ended if ended != _NONE else behind
        is_label = 0 < last - place <= _LONGEST_LABEL and last < end and byte_at(data, last) == _DOT
        if not is_label or byte_at(data, place) == _HYPHEN or byte_at(data, last - 1) == _HYPHEN:
            break
        place = last + 1
    return behind


@kernel(types.int64(BYTES, INT64, INT64, OUT, DOUBT))
def find(data: Any, starts: Any, ends: Any, found: Any, doubtful: Any) -> int:
    """Where addresses stand in each text."""
    count = 0
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        before = count
        done = start
        unsure = False
        at = start
        while at < end and not unsure:
            mask = mask_equal(data, at, np.uint8(_AT))
            if end - at < 64:
                mask &= low_bits(end - at)
            while mask != NONE and not unsure:
                place = at + trailing_zeros(mask)
                mask &= mask - ONE
                if place < done:
                    continue
                behind = _domain_end(data, place + 1, end)
                if behind == _NONE:
                    continue
                begin = _local_begin(data, max(done, place - _LONGEST_LOCAL), place)
                if behind == _UNSURE or begin == _UNSURE:
                    unsure = True
                elif begin < place:
                    if count == len(found):
                        return FULL
                    count = note_edit(found, count, row, begin, behind, 0)
                    done = behind
            at += 64
        if unsure or (count > before and has_half_pair(data, start, end)):
            count = before
            doubtful[row] = 1
    return count
