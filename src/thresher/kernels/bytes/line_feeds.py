# SPDX-License-Identifier: Apache-2.0
"""Find the line feeds of a buffer."""

from __future__ import annotations

import numpy as np

from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.intrinsics import BYTES, get, kernel, mask_equal, popcount, put, trailing_zeros
from thresher.kernels.counts.text_counts import Rows
from thresher.kernels.json.scan import Bytes

_BLOCK = 64
_FEED = np.uint8(10)
_NONE, _ONE = np.uint64(0), np.uint64(1)


def find_line_feeds(data: Bytes) -> Rows:
    """Return the positions of all line feeds."""
    positions = np.empty(count_line_feeds(data), dtype=np.int64)
    note_line_feeds(data, positions)
    return positions


@kernel(types.int64(BYTES))
def count_line_feeds(data: Bytes) -> int:
    """Return the number of line feeds."""
    size = len(data)
    count = 0
    position = 0
    while position + _BLOCK <= size:
        count += popcount(mask_equal(data, position, _FEED))
        position += _BLOCK
    while position < size:
        count += 1 if get(data, position) == _FEED else 0
        position += 1
    return count


@kernel(types.int64(BYTES, types.int64[::1]))
def note_line_feeds(data: Bytes, positions: Rows) -> int:
    """Write the positions of line feeds to `positions`, which must be long enough; return how many there are."""
    size = len(data)
    count = 0
    position = 0
    while position + _BLOCK <= size:
        feeds = mask_equal(data, position, _FEED)
        while feeds != _NONE:
            put(positions, count, position + trailing_zeros(feeds))
            feeds &= feeds - _ONE
            count += 1
        position += _BLOCK
    while position < size:
        if get(data, position) == _FEED:
            put(positions, count, position)
            count += 1
        position += 1
    return count
