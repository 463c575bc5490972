# SPDX-License-Identifier: Apache-2.0
"""In which texts an e-mail address, an IP address, a phone, card or account number, or a key could stand.

One pass over the bytes stops at the few that such things have (digits, `@`, `:` and some letters) and looks around
there. It may say yes where there is nothing; it never says no where there is something.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import Texts
from thresher.kernels.intrinsics import (
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
from thresher.kernels.pii_bytes import KINDS, ipv6_may_begin, is_digit, is_upper, is_word
from thresher.kernels.signatures import types

_EMAIL, _IP, _PHONE, _CARD, _IBAN, _KEY = KINDS.values()
_AT, _COLON, _PLUS, _SPACE, _DOT, _LOW, _HYPHEN, _NINE, _ZERO = b"@:+ ._-90"
_A, _B, _I, _J, _K, _S = b"ABIJKS"
_SMALL_A, _SMALL_B, _SMALL_E, _SMALL_G, _SMALL_H, _SMALL_O, _SMALL_P, _SMALL_U, _SMALL_X, _SMALL_Y, _SMALL_Z = (
    b"abeghopuxyz"
)
_QUOTE, _PERCENT, _OPEN, _CLOSE, _SLASH = b"'%()/"


def kinds_in(texts: Texts, kinds: Sequence[str] = tuple(KINDS)) -> npt.NDArray[np.uint8]:
    """For each text the bits of those of the kinds that could stand in it."""
    wanted = 0
    for kind in kinds:
        wanted |= KINDS[kind]
    found = np.zeros(len(texts.starts), dtype=np.uint8)
    _scan(texts.data, texts.starts, texts.ends, wanted, found)
    return found


@helper
def _mail(data: Any, start: Any, place: Any, end: Any) -> Any:
    """At an `@`: whether an address could be around it."""
    if place == start or place + 1 == end or not is_word(get(data, place + 1)):
        return 0
    before = get(data, place - 1)
    is_local = is_word(before) or before == _LOW or before == _HYPHEN or before == _PLUS or before == _PERCENT
    return _EMAIL if is_local or before == _QUOTE else 0


@helper
def _account(data: Any, start: Any, place: Any, end: Any) -> Any:
    """At a digit: whether it is the first check digit of an account number."""
    if place - start < 2 or place + 1 >= end or not is_digit(get(data, place + 1)):
        return 0
    if not (is_upper(get(data, place - 1)) and is_upper(get(data, place - 2))):
        return 0
    characters = 0
    at = place + 2
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
def _letters(data: Any, start: Any, place: Any, end: Any, byte: Any) -> Any:
    """At a letter or mark that keys have at their beginning: whether one begins here."""
    if byte == _HYPHEN:  # -----BEGIN
        return _KEY if place + 5 < end and get(data, place + 5) == _B and get(data, place + 4) == _HYPHEN else 0
    if byte == _A:  # AKIA, ASIA, AIza
        if place + 3 >= end:
            return 0
        second, third, fourth = get(data, place + 1), get(data, place + 2), get(data, place + 3)
        if (second == _K or second == _S) and third == _I and fourth == _A:
            return _KEY
        return _KEY if second == _I and third == _SMALL_Z and fourth == _SMALL_A else 0
    if byte == _SMALL_X:  # xox, xapp
        if place + 2 >= end:
            return 0
        second, third = get(data, place + 1), get(data, place + 2)
        is_slack = (second == _SMALL_O and third == _SMALL_X) or (second == _SMALL_A and third == _SMALL_P)
        return _KEY if is_slack else 0
    if byte == _LOW:  # ghp_, github_
        if place - start < 3:
            return 0
        third, second, first = get(data, place - 3), get(data, place - 2), get(data, place - 1)
        is_token = third == _SMALL_G and second == _SMALL_H
        return _KEY if is_token or (third == _SMALL_H and second == _SMALL_U and first == _SMALL_B) else 0
    # J, as in eyJ
    is_token = place - start >= 2 and get(data, place - 1) == _SMALL_Y and get(data, place - 2) == _SMALL_E
    return _KEY if is_token else 0


@helper
def _number(data: Any, start: Any, place: Any, end: Any) -> Any:
    """At the first digit of a run of digits and what stands between them: what it could be, and where it ends."""
    digits = 0
    dots = 0
    gap = 0
    kinds = 0
    after = place
    at = place
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
    if digits > 9 or (digits > 6 and place > start and get(data, place - 1) == _PLUS):
        kinds = kinds | _PHONE
    if digits > 12:
        kinds = kinds | _CARD
    return kinds, after


@kernel(types.void(BYTES, INT64, INT64, types.int64, types.uint8[::1]))
def _scan(data: Any, starts: Any, ends: Any, wanted: int, found: npt.NDArray[np.uint8]) -> None:
    """The bits of `wanted` that each text could hold; a text is left where all are found."""
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
                place = block + trailing_zeros(mask)
                mask &= mask - ONE
                byte = get(data, place)
                if byte <= _NINE and byte >= _ZERO:
                    kinds = kinds | _account(data, start, place, end)
                    if place >= numbers:
                        more, numbers = _number(data, start, place, end)
                        kinds = kinds | more
                elif byte == _AT:
                    kinds = kinds | _mail(data, start, place, end)
                elif byte == _COLON:
                    kinds = kinds | (_IP if ipv6_may_begin(data, start, place, end) else 0)
                else:
                    kinds = kinds | _letters(data, start, place, end, byte)
            block += 64
        found[row] = np.uint8(kinds & wanted)
