# SPDX-License-Identifier: Apache-2.0
"""Web addresses in texts: how many there are, their characters, and how many hold a word that tells of pornography.

An address begins with `http://` or `https://` in small letters and goes on for one or more bytes of a set. A `%`
belongs to it in front of two hexadecimal digits.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import Count, Rows, Work
from thresher.kernels.intrinsics import (
    ALL,
    BYTES,
    INT64,
    ONE,
    OUT,
    get,
    helper,
    integer,
    kernel,
    load8,
    low_bits,
    mask_equal,
    trailing_zeros,
)
from thresher.kernels.signatures import types

_PART, _ESCAPE, _HEXADECIMAL = 1, 2, 4
"""What a byte is in an address: a part; a sign that must stand before two hexadecimal digits; such a digit."""
_COLUMNS = ("url_characters", "urls", "porn_urls")
_SLASHES = np.uint64(int.from_bytes(b"://", "little"))
_HTTP, _S = np.uint64(int.from_bytes(b"http", "little")), 0x73
_PORN = np.uint64(int.from_bytes(b"porn", "little"))
_THREE_BYTES, _FOUR_BYTES = np.uint64(2**24 - 1), np.uint64(2**32 - 1)


def _kinds() -> npt.NDArray[np.uint8]:
    kinds = np.zeros(256, dtype=np.uint8)
    kinds[list(f"{string.ascii_letters}{string.digits}$-_@.&+/:=?#~!*(),".encode())] = _PART
    kinds[ord("%")] = _ESCAPE
    kinds[list(string.hexdigits.encode())] |= _HEXADECIMAL
    return kinds


_KINDS = _kinds()
"""What each byte is in an address."""


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """All counts of the group."""
    texts = work.texts
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _find(texts.data, texts.starts, texts.ends, rows, _KINDS, out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@helper
def _is_pair(data: Any, place: int, kinds: Any) -> Any:
    """Whether two bytes are hexadecimal digits."""
    both = get(kinds, integer(get(data, place))) & get(kinds, integer(get(data, place + 1)))
    return both & _HEXADECIMAL != 0


@helper
def _end(data: Any, place: int, end: int, kinds: Any) -> int:
    """Where the bytes of an address end."""
    while place < end:
        kind = get(kinds, integer(get(data, place)))
        if kind & _PART:
            place += 1
        elif kind == _ESCAPE and end - place >= 3 and _is_pair(data, place + 1, kinds):
            place += 3
        else:
            break
    return place


@helper
def _begin(data: Any, colon: int, earliest: int) -> int:
    """Where the `http` or `https` in front of a colon begins, not before `earliest`; -1 if there is none."""
    if colon - 4 >= earliest and load8(data, colon - 4) & _FOUR_BYTES == _HTTP:
        return colon - 4
    if colon - 5 >= earliest and get(data, colon - 1) == _S and load8(data, colon - 5) & _FOUR_BYTES == _HTTP:
        return colon - 5
    return -1


@helper
def _is_porn(data: Any, start: int, end: int) -> Any:
    for place in range(start, end - 3):
        if load8(data, place) & _FOUR_BYTES == _PORN:
            return True
    return False


@kernel(types.void(BYTES, INT64, INT64, INT64, BYTES, OUT))
def _find(data: Any, starts: Any, ends: Any, rows: Any, kinds: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`: characters, addresses, pornographic ones."""
    for n in range(len(rows)):
        start, end = starts[rows[n]], ends[rows[n]]
        characters = urls = porn = 0
        free = start  # an address does not begin before the end of the one before it
        for at in range(start, end, 64):
            colons = mask_equal(data, at, 0x3A) & (ALL if end - at >= 64 else low_bits(end - at))
            while colons:
                colon = at + trailing_zeros(colons)
                colons &= colons - ONE
                if colon < free or load8(data, colon) & _THREE_BYTES != _SLASHES:
                    continue
                begin = _begin(data, colon, free)
                if begin < 0 or colon + 3 >= end:
                    continue
                after = _end(data, colon + 3, end, kinds)
                if after == colon + 3:
                    continue
                urls += 1
                characters += after - begin
                porn += 1 if _is_porn(data, begin, after) else 0
                free = after
        out[n, 0], out[n, 1], out[n, 2] = characters, urls, porn
