# SPDX-License-Identifier: Apache-2.0
"""Find e-mail addresses in ASCII. A text with letters of other Latin alphabets next to one is left to the definition in
Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import (
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
from thresher.kernels.build.signatures import types
from thresher.kernels.edits.pii_bytes import is_digit, is_letter
from thresher.kernels.edits.rewrite import DOUBT, FULL, has_half_pair, note_edit
from thresher.kernels.json.scan import byte_at

_AT, _DOT, _LOW, _HYPHEN, _PLUS, _PERCENT, _QUOTE = b"@._-+%'"
_X, _N = b"xn"
_LONGEST_LOCAL, _LONGEST_LABEL, _MOST_LABELS = 64, 63, 10
_LONGEST_CODED, _LONGEST_LAST, _SHORTEST_LAST = 59, 24, 2
_FIRST_LATIN, _LAST_LATIN = 0xC3, 0xC9
"""First bytes of the letters outside ASCII that an address may contain, and of a few other characters."""
_NONE, _UNSURE = -1, -2


@helper
def _is_mark(byte: int) -> bool:
    """Return True for signs that cannot begin the part before the `@`."""
    return byte == _DOT or byte == _PERCENT or byte == _PLUS or byte == _QUOTE or byte == _HYPHEN


@helper
def _is_latin(byte: int) -> bool:
    return _FIRST_LATIN <= byte <= _LAST_LATIN


@helper
def _local_begin(data: Any, first: int, at: int) -> int:
    """Return the start of the part before the `@`; `at` if there is none."""
    if at == first or byte_at(data, at - 1) == _DOT:
        return at
    position = at
    while position > first:
        byte = byte_at(data, position - 1)
        if byte >= 0x80:
            # The last byte of a character, whose first byte shows whether it is a letter of an address.
            if byte < 0xC0 and _is_latin(byte_at(data, position - 2)):
                return _UNSURE
            break
        if not (is_letter(byte) or is_digit(byte) or byte == _LOW or _is_mark(byte)):
            break
        if byte == _DOT and byte_at(data, position) == _DOT:  # two in a row: the part begins after them
            position += 1
            break
        position -= 1
    while position < at and _is_mark(byte_at(data, position)):
        position += 1
    return position


@helper
def _label_end(data: Any, position: int, end: int) -> int:
    """Return the position after the letters, digits and hyphens from here on."""
    while position < end:
        byte = byte_at(data, position)
        if not (is_letter(byte) or is_digit(byte) or byte == _HYPHEN):
            break
        position += 1
    return position


@helper
def _last_label_end(data: Any, position: int, end: int) -> int:
    """Return the position after the last label of a domain that begins here; -1 if there is none."""
    if (
        position + 4 < end
        and byte_at(data, position) == _X
        and byte_at(data, position + 1) == _N
        and byte_at(data, position + 2) == _HYPHEN
        and byte_at(data, position + 3) == _HYPHEN
    ):
        coded = _label_end(data, position + 4, min(end, position + 4 + _LONGEST_CODED))
        if coded > position + 4:
            return coded
    last = position
    while last < end and last - position < _LONGEST_LAST and is_letter(byte_at(data, last)):
        last += 1
    return last if last - position >= _SHORTEST_LAST else _NONE


@helper
def _domain_end(data: Any, position: int, end: int) -> int:
    """Return the position after the domain that begins here: as many labels as possible, the last of which must be
    valid."""
    behind = _NONE
    for label in range(_MOST_LABELS + 1):
        last = _label_end(data, position, end)
        if last < end and _is_latin(byte_at(data, last)):
            return _UNSURE
        if label > 0:
            ended = _last_label_end(data, position, end)
            behind = ended if ended != _NONE else behind
        is_label = 0 < last - position <= _LONGEST_LABEL and last < end and byte_at(data, last) == _DOT
        if not is_label or byte_at(data, position) == _HYPHEN or byte_at(data, last - 1) == _HYPHEN:
            break
        position = last + 1
    return behind


@kernel(types.int64(BYTES, INT64, INT64, OUT, DOUBT))
def find(data: Any, starts: Any, ends: Any, found: Any, doubtful: Any) -> int:
    """Find the addresses of each text."""
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
                position = at + trailing_zeros(mask)
                mask &= mask - ONE
                if position < done:
                    continue
                behind = _domain_end(data, position + 1, end)
                if behind == _NONE:
                    continue
                begin = _local_begin(data, max(done, position - _LONGEST_LOCAL), position)
                if behind == _UNSURE or begin == _UNSURE:
                    unsure = True
                elif begin < position:
                    if count == len(found):
                        return FULL
                    count = note_edit(found, count, row, begin, behind, 0)
                    done = behind
            at += 64
        if unsure or (count > before and has_half_pair(data, start, end)):
            count = before
            doubtful[row] = 1
    return count
