# SPDX-License-Identifier: Apache-2.0
"""Kinds of personal data, classes of bytes, and the possible start of an IPv6 address."""

from __future__ import annotations

from typing import Any

from thresher.kernels.build.intrinsics import get, helper

KINDS = {"email": 1, "ip": 2, "phone": 4, "card": 8, "iban": 16, "key": 32}
"""The kinds of personal data, each as a bit."""
_COLON, _DOT, _LOW, _NINE, _ZERO, _TWO, _THREE = b":._9023"
_A, _F, _Z, _SMALL_A, _SMALL_F, _SMALL_Z = b"AFZafz"
_LONGEST_IPV6 = 46


@helper
def is_digit(byte: Any) -> Any:
    """Return True for 0 to 9."""
    return _ZERO <= byte <= _NINE


@helper
def is_hex(byte: Any) -> Any:
    """Return True for a hexadecimal digit."""
    return _ZERO <= byte <= _NINE or _A <= byte <= _F or _SMALL_A <= byte <= _SMALL_F


@helper
def is_upper(byte: Any) -> Any:
    """Return True for an upper-case letter of ASCII."""
    return _A <= byte <= _Z


@helper
def is_letter(byte: Any) -> Any:
    """Return True for a letter of ASCII."""
    return _A <= byte <= _Z or _SMALL_A <= byte <= _SMALL_Z


@helper
def is_word(byte: Any) -> Any:
    """Return True for a letter or digit of ASCII, or a byte of a character outside ASCII."""
    return _ZERO <= byte <= _NINE or _A <= byte <= _Z or _SMALL_A <= byte <= _SMALL_Z or byte >= 0x80


@helper
def _has_mapped(data: Any, position: Any, last: Any) -> Any:
    """Return True if what may be an address contains `ffff`: an IPv4 address mapped to IPv6."""
    run = 0
    while position < last and run < 4:
        byte = get(data, position)
        if not (is_hex(byte) or byte == _COLON or byte == _DOT):
            return False
        run = run + 1 if byte == _SMALL_F or byte == _F else 0
        position += 1
    return run == 4


@helper
def ipv6_may_begin(data: Any, start: Any, position: Any, end: Any) -> Any:
    """Return True if a `:` may be the first of a public IPv6 address. Such an address begins with four digits, the
    first of which is 2 or 3, or contains `ffff`."""
    first = position
    while first > start and position - first < 5 and is_hex(get(data, first - 1)):
        first -= 1
    if position - first > 4:
        return False
    if first > start:
        before = get(data, first - 1)
        if before == _COLON or before == _DOT or before == _LOW or (is_word(before) and before < 0x80):
            return False
    colons = 0
    at = position
    last = min(end, first + _LONGEST_IPV6)
    while at < last:
        byte = get(data, at)
        if byte == _COLON:
            colons += 1
            if colons > 5 or (at + 1 < end and get(data, at + 1) == _COLON):
                is_global = position - first == 4 and (get(data, first) == _TWO or get(data, first) == _THREE)
                return is_global or _has_mapped(data, position, last)
        elif not (is_hex(byte) or byte == _DOT):
            return False
        at += 1
    return False
