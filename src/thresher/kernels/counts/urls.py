# SPDX-License-Identifier: Apache-2.0
"""Count web addresses, their characters, and those with a pornographic word.

An address begins with `http://` or `https://` in lower case, followed by one or more bytes of a set. A `%` belongs to
it if two hexadecimal digits follow.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
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
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_PART, _ESCAPE, _HEXADECIMAL = 1, 2, 4
"""Kinds of bytes in an address: a part; a sign that needs two hexadecimal digits after it; such a digit."""
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
"""Kind of each byte in an address."""


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return all counts of the group."""
    texts = work.texts
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _find(texts.data, texts.starts, texts.ends, rows, _KINDS, out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@helper
def _is_pair(data: Any, position: int, kinds: Any) -> Any:
    """Return True if two bytes are hexadecimal digits."""
    both = get(kinds, integer(get(data, position))) & get(kinds, integer(get(data, position + 1)))
    return both & _HEXADECIMAL != 0


@helper
def _end(data: Any, position: int, end: int, kinds: Any) -> int:
    """Return the end of an address."""
    while position < end:
        kind = get(kinds, integer(get(data, position)))
        if kind & _PART:
            position += 1
        elif kind == _ESCAPE and end - position >= 3 and _is_pair(data, position + 1, kinds):
            position += 3
        else:
            break
    return position


@helper
def _begin(data: Any, colon: int, earliest: int) -> int:
    """Return the start of the `http` or `https` before a colon, not before `earliest`; -1 if there is none."""
    if colon - 4 >= earliest and load8(data, colon - 4) & _FOUR_BYTES == _HTTP:
        return colon - 4
    if colon - 5 >= earliest and get(data, colon - 1) == _S and load8(data, colon - 5) & _FOUR_BYTES == _HTTP:
        return colon - 5
    return -1


@helper
def _is_porn(data: Any, start: int, end: int) -> Any:
    for position in range(start, end - 3):
        if load8(data, position) & _FOUR_BYTES == _PORN:
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
