# SPDX-License-Identifier: Apache-2.0
"""Find texts that could contain an e-mail address, an IP address, a phone, card or account number, or a key.

One pass over the bytes stops at the few that such data contain (digits, `@`, `:` and some letters) and examines their
surroundings. There are false positives, but no false negatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    BYTES,
    INT64,
    NONE,
    ONE,
    get,
    helper,
    kernel,
    low_bits,
    mask_equal,
    mask_range,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.edits.pii_bytes import KINDS, ipv6_may_begin, is_digit, is_upper, is_word

_EMAIL, _IP, _PHONE, _CARD, _IBAN, _KEY = KINDS.values()
_AT, _COLON, _PLUS, _SPACE, _DOT, _LOW, _HYPHEN, _NINE, _ZERO = b"@:+ ._-90"
_A, _B, _I, _J, _K, _S = b"ABIJKS"
_SMALL_A, _SMALL_B, _SMALL_E, _SMALL_G, _SMALL_H, _SMALL_O, _SMALL_P, _SMALL_U, _SMALL_X, _SMALL_Y, _SMALL_Z = (
    b"abeghopuxyz"
)
_QUOTE, _PERCENT, _OPEN, _CLOSE, _SLASH = b"'%()/"


def kinds_in(texts: Texts, kinds: Sequence[str] = tuple(KINDS)) -> npt.NDArray[np.uint8]:
    """Return for each text the bits of the kinds that it could contain."""
    wanted = 0
    for kind in kinds:
        wanted |= KINDS[kind]
    found = np.zeros(len(texts.starts), dtype=np.uint8)
    _scan(texts.data, texts.starts, texts.ends, wanted, found)
    return found


@helper
def _mail(data: Any, start: Any, position: Any, end: Any) -> Any:
    """Return the bit of e-mail addresses if one could be around the `@` at a position."""
    if position == start or position + 1 == end or not is_word(get(data, position + 1)):
        return 0
    before = get(data, position - 1)
    is_local = is_word(before) or before == _LOW or before == _HYPHEN or before == _PLUS or before == _PERCENT
    return _EMAIL if is_local or before == _QUOTE else 0


@helper
def _account(data: Any, start: Any, position: Any, end: Any) -> Any:
    """Return the bit of account numbers if a digit is the first check digit of one."""
    if position - start < 2 or position + 1 >= end or not is_digit(get(data, position + 1)):
        return 0
    if not (is_upper(get(data, position - 1)) and is_upper(get(data, position - 2))):
        return 0
    characters = 0
    at = position + 2
    while at < end:
        byte = get(data, at)
        if is_digit(byte) or is_upper(byte):
            characters += 1
            if characters == 11:
                return _IBAN
        elif byte != _SPACE or get(data, at - 1) == _SPACE:
            return 0
        at += 1
    return 0


@helper
def _letters(data: Any, start: Any, position: Any, end: Any, byte: Any) -> Any:
    """Return the bit of keys if one begins at a letter or sign with which keys begin."""
    if byte == _HYPHEN:  # -----BEGIN
        return (
            _KEY if position + 5 < end and get(data, position + 5) == _B and get(data, position + 4) == _HYPHEN else 0
        )
    if byte == _A:  # AKIA, ASIA, AIza
        if position + 3 >= end:
            return 0
        second, third, fourth = get(data, position + 1), get(data, position + 2), get(data, position + 3)
        if (second == _K or second == _S) and third == _I and fourth == _A:
            return _KEY
        return _KEY if second == _I and third == _SMALL_Z and fourth == _SMALL_A else 0
    if byte == _SMALL_X:  # xox, xapp
        if position + 2 >= end:
            return 0
        second, third = get(data, position + 1), get(data, position + 2)
        is_slack = (second == _SMALL_O and third == _SMALL_X) or (second == _SMALL_A and third == _SMALL_P)
        return _KEY if is_slack else 0
    if byte == _LOW:  # ghp_, github_
        if position - start < 3:
            return 0
        third, second, first = get(data, position - 3), get(data, position - 2), get(data, position - 1)
        is_token = third == _SMALL_G and second == _SMALL_H
        return _KEY if is_token or (third == _SMALL_H and second == _SMALL_U and first == _SMALL_B) else 0
    # J, as in eyJ
    is_token = position - start >= 2 and get(data, position - 1) == _SMALL_Y and get(data, position - 2) == _SMALL_E
    return _KEY if is_token else 0


@helper
def _number(data: Any, start: Any, position: Any, end: Any) -> Any:
    """Return the bits of what a run of digits and separators could be, and its end."""
    digits = 0
    dots = 0
    gap = 0
    kinds = 0
    after = position
    at = position
    while at < end:
        byte = get(data, at)
        if is_digit(byte):
            if gap:
                dots = dots + 1 if gap == 1 and get(data, at - 1) == _DOT else 0
            if dots == 3:
                kinds = kinds | _IP
            digits += 1
            gap = 0
            after = at + 1
        elif gap < 2 and (
            byte == _SPACE or byte == _DOT or byte == _HYPHEN or byte == _OPEN or byte == _CLOSE or byte == _SLASH
        ):
            gap += 1
        else:
            break
        at += 1
    if digits > 9 or (digits > 6 and position > start and get(data, position - 1) == _PLUS):
        kinds = kinds | _PHONE
    if digits > 12:
        kinds = kinds | _CARD
    return kinds, after


@kernel(types.void(BYTES, INT64, INT64, types.int64, types.uint8[::1]))
def _scan(data: Any, starts: Any, ends: Any, wanted: int, found: npt.NDArray[np.uint8]) -> None:
    """Write the bits of `wanted` that each text could contain; a text is left early when all are found."""
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        kinds = 0
        numbers = start
        block = start
        while block < end and kinds & wanted != wanted:
            mask = (
                mask_range(data, block, np.uint8(_ZERO), np.uint8(_COLON))
                | mask_range(data, block, np.uint8(_AT), np.uint8(_A))
                | mask_equal(data, block, np.uint8(_LOW))
                | mask_equal(data, block, np.uint8(_SMALL_X))
                | mask_equal(data, block, np.uint8(_J))
                | mask_equal(data, block, np.uint8(_HYPHEN))
            )
            if end - block < 64:
                mask &= low_bits(end - block)
            while mask != NONE:
                position = block + trailing_zeros(mask)
                mask &= mask - ONE
                byte = get(data, position)
                if byte <= _NINE and byte >= _ZERO:
                    kinds = kinds | _account(data, start, position, end)
                    if position >= numbers:
                        more, numbers = _number(data, start, position, end)
                        kinds = kinds | more
                elif byte == _AT:
                    kinds = kinds | _mail(data, start, position, end)
                elif byte == _COLON:
                    kinds = kinds | (_IP if ipv6_may_begin(data, start, position, end) else 0)
                else:
                    kinds = kinds | _letters(data, start, position, end, byte)
            block += 64
        found[row] = np.uint8(kinds & wanted)
