# SPDX-License-Identifier: Apache-2.0
"""Find web addresses: `http://`, `https://` or `www.` in any case, and everything up to the next white space."""

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
    mask_folded,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.white_space import white_at
from thresher.kernels.edits.rewrite import DOUBT, FULL, has_half_pair, note_edit
from thresher.kernels.json.scan import byte_at

_COLON, _SLASH, _DOT = b":/."
_H, _T, _P, _S, _W = b"htpsw"
_LONG_S = (0xC5, 0xBF)
_CASE = 0x20


@helper
def _is_http(data: Any, position: int) -> bool:
    """Return True if four bytes are `http` in any case."""
    return bool(
        byte_at(data, position) | _CASE == _H
        and byte_at(data, position + 1) | _CASE == _T
        and byte_at(data, position + 2) | _CASE == _T
        and byte_at(data, position + 3) | _CASE == _P
    )


@helper
def _begin(data: Any, colon: int, first: int, end: int) -> int:
    """Return the start of the address whose `://` is here, not before `first`; -1 if there is none. The long s is equal
    to an s if case is ignored."""
    if colon + 2 >= end or byte_at(data, colon + 1) != _SLASH or byte_at(data, colon + 2) != _SLASH:
        return -1
    if colon - 4 >= first and _is_http(data, colon - 4):
        return colon - 4
    if colon - 5 >= first and byte_at(data, colon - 1) | _CASE == _S and _is_http(data, colon - 5):
        return colon - 5
    if colon - 6 >= first and byte_at(data, colon - 2) == _LONG_S[0] and byte_at(data, colon - 1) == _LONG_S[1]:
        return colon - 6 if _is_http(data, colon - 6) else -1
    return -1


@helper
def _rest_begin(data: Any, position: int, first: int, end: int) -> tuple[int, int]:
    """Return the start of an address at a colon or `w` (-1: there is none), and the position after its prefix."""
    if byte_at(data, position) == _COLON:
        return _begin(data, position, first, end), position + 3
    if position + 3 < end and byte_at(data, position + 2) | _CASE == _W and byte_at(data, position + 3) == _DOT:
        return position, position + 4
    return -1, position


@helper
def _marks(data: Any, at: int, end: int) -> Any:
    """Return a mask of up to 64 bytes from `at` on: colons followed by a slash, and a `w` followed by another one."""
    if end - at > 64:
        return (mask_equal(data, at, np.uint8(_COLON)) & mask_equal(data, at + 1, np.uint8(_SLASH))) | (
            mask_folded(data, at, np.uint8(_W)) & mask_folded(data, at + 1, np.uint8(_W))
        )
    inside = low_bits(end - at)
    letters = mask_folded(data, at, np.uint8(_W)) & inside
    return (mask_equal(data, at, np.uint8(_COLON)) & inside) | (letters & (letters >> ONE))


@kernel(types.int64(BYTES, INT64, INT64, OUT, DOUBT))
def find(data: Any, starts: Any, ends: Any, found: Any, doubtful: Any) -> int:
    """Find what to remove from each text."""
    count = 0
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        before = count
        done = start
        at = start
        while at < end:
            mask = _marks(data, at, end)
            while mask != NONE:
                position = at + trailing_zeros(mask)
                mask &= mask - ONE
                if position < done:
                    continue
                begin, rest = _rest_begin(data, position, done, end)
                if begin < 0:
                    continue
                behind = rest
                while behind < end and white_at(data, behind, end) == 0:
                    behind += 1
                if behind > rest:
                    if count == len(found):
                        return FULL
                    count = note_edit(found, count, row, begin, behind, 0)
                    done = behind
            at += 64
        if count > before and has_half_pair(data, start, end):
            count = before
            doubtful[row] = 1
    return count
