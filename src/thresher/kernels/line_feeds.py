# SPDX-License-Identifier: Apache-2.0
"""Where the line feeds of a buffer are."""

from __future__ import annotations

import numpy as np

from thresher.kernels.counts import Rows
from thresher.kernels.intrinsics import BYTES, get, kernel, mask_equal, popcount, put, trailing_zeros
from thresher.kernels.json_bytes import Bytes
from thresher.kernels.signatures import types

_BLOCK = 64
_FEED = np.uint8(10)
_NONE, _ONE = np.uint64(0), np.uint64(1)


def find_line_feeds(data: Bytes) -> Rows:
    """The places of all line feeds."""
    places = np.empty(count_line_feeds(data), dtype=np.int64)
    note_line_feeds(data, places)
    return places


@kernel(types.int64(BYTES))
def count_line_feeds(data: Bytes) -> int:
    """How many there are."""
    size = len(data)
    count = 0
    place = 0
    while place + _BLOCK <= size:
        count += popcount(mask_equal(data, place, _FEED))
        place += _BLOCK
    while place < size:
        count += 1 if get(data, place) == _FEED else 0
        place += 1
    return count


@kernel(types.int64(BYTES, types.int64[::1]))
def note_line_feeds(data: Bytes, places: Rows) -> int:
    """Write their places, for which there must be room; how many there are."""
    size = len(data)
    count = 0
    place = 0
    while place + _BLOCK <= size:
        feeds = mask_equal(data, place, _FEED)
        while feeds != _NONE:
            put(places, count, place + trailing_zeros(feeds))
            feeds &= feeds - _ONE
            count += 1
        place += _BLOCK
    while place < size:
        if get(data, place) == _FEED:
            put(places, count, place)
            count += 1
        place += 1
    return count
