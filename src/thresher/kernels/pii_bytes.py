# SPDX-License-Identifier: Apache-2.0
"""Kinds of personal data, what a byte is in them, and whether an IP address of version 6 could begin at a colon."""

from __future__ import annotations

from typing import Any

from thresher.kernels.intrinsics import get, helper

KINDS = {"email": 1, "ip": 2, "phone": 4, "card": 8, "iban": 16, "key": 32}
"""The kinds of personal data that are looked for; each is a bit."""
_COLON, _DOT, _LOW, _NINE, _ZERO, _TWO, _THREE = b":._9023"
_A, _F, _Z, _SMALL_A, _SMALL_F, _SMALL_Z = b"AFZafz"
_LONGEST_IPV6 = 46


@helper
def is_digit(byte: Any) -> Any:
    """0 to 9."""
    return _ZERO <= byte <= _NINE


@helper
def is_hex(byte: Any) -> Any:
    """A hexadecimal digit."""
    return _ZERO <= byte <= _NINE or _A <= byte <= _F or _SMALL_A <= byte <= _SMALL_F


@helper
def is_upper(byte: Any) -> Any:
    """A capital letter of ASCII."""
    return _A <= byte <= _Z


@helper
def is_letter(byte: Any) -> Any:
    """A letter of ASCII."""
    return _A <= byte <= _Z or _SMALL_A <= byte <= _SMALL_Z


@helper
def is_word(byte: Any) -> Any:
    """A letter or digit of ASCII, or a part of a character beyond it."""
    return _ZERO <= byte <= _NINE or _A <= byte <= _Z or _SMALL_A <= byte <= _SMALL_Z or byte >= 0x80


@helper
def _has_mapped(data: Any, place: Any, last: Any) -> Any:
    """Whether `ffff` stands in what may be an address: one of version 4 written as one of version 6 has it."""
    run = 0
    while place < last and run < 4:
        byte = get(data, place)
        if not (is_hex(byte) or byte == _COLON or byte == _DOT):
            return False
        run = run + 1 if byte == _SMALL_F or byte == _F else 0
        place += 1
    return run == 4


@helper
def ipv6_may_begin(data: Any, start: Any, place: Any, end: Any) -> Any:
    """At a `:`: whether it is the first of a public address of version 6. Such a one begins with four digits, of which
    the first is 2 or 3, or has `ffff` in it."""
    first = place
    while first > start and place - first < 5 and is_hex(get(data, first - 1)):
        first -= 1
    if place - first > 4:
        return False
    if first > start:
        before = get(data, first - 1)
        if before == _COLON or before == _DOT or before == _LOW or (is_word(before) and before < 0x80):
            return False
    colons = 0
    at = place
    last = min(end, first + _LONGEST_IPV6)
    while at < last:
        byte = get(data, at)
        if byte == _COLON:
            colons += 1
            if colons > 5 or (at + 1 < end and get(data, at + 1) == _COLON):
                is_global = place - first == 4 and (get(data, first) == _TWO or get(data, first) == _THREE)
                return is_global or _has_mapped(data, place, last)
        elif not (is_hex(byte) or byte == _DOT):
            return False
        at += 1
    return False
