# SPDX-License-Identifier: Apache-2.0
"""Three and more line ends in a row, of line feeds as of carriage returns with line feeds: those beyond the second."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.edits import DOUBT, FULL, has_half_pair, note_edit
from thresher.kernels.intrinsics import (
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
from thresher.kernels.json_bytes import byte_at
from thresher.kernels.signatures import types

_FEED, _RETURN = 10, 13
_RETURN_FEED = 2


@helper
def _feeds_end(data: Any, place: int, end: int) -> int:
    """Behind a run of line feeds."""
    while place < end and byte_at(data, place) == _FEED:
        place += 1
    return place


@helper
def _pairs_end(data: Any, place: int, end: int) -> int:
    """Behind a run of carriage returns with line feeds."""
    while place + 1 < end and byte_at(data, place) == _RETURN and byte_at(data, place + 1) == _FEED:
        place += _RETURN_FEED
    return place


@helper
def _marks(data: Any, at: int, end: int) -> Any:
    """Of the bytes from `at` on up to 64: where a line feed is followed by two more, and where a carriage return is."""
    if end - at > 64:  # so there are bytes of the text, or of what may be read behind it, at the places looked at
        feeds = mask_equal(data, at, np.uint8(_FEED))
        if feeds != NONE:
            feeds &= mask_equal(data, at + 1, np.uint8(_FEED)) & mask_equal(data, at + 2, np.uint8(_FEED))
        return feeds | mask_equal(data, at, np.uint8(_RETURN))
    inside = low_bits(end - at)
    feeds = mask_equal(data, at, np.uint8(_FEED)) & inside
    return (feeds & (feeds >> ONE) & (feeds >> np.uint64(2))) | (mask_equal(data, at, np.uint8(_RETURN)) & inside)


@kernel(types.int64(BYTES, INT64, INT64, OUT, DOUBT))
def find(data: Any, starts: Any, ends: Any, found: Any, doubtful: Any) -> int:
    """What to take out of each text."""
    count = 0
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        before = count
        feeds_done = pairs_done = start
        at = start
        while at < end:
            mask = _marks(data, at, end)
            while mask != NONE:
                place = at + trailing_zeros(mask)
                mask &= mask - ONE
                if count == len(found):
                    return FULL
                if byte_at(data, place) == _FEED:
                    if place >= feeds_done:
                        feeds_done = _feeds_end(data, place, end)
                        count = note_edit(found, count, row, place + 2, feeds_done, 0)
                elif place >= pairs_done:
                    pairs_done = _pairs_end(data, place, end)
                    if pairs_done - place > 2 * _RETURN_FEED:
                        count = note_edit(found, count, row, place + 2 * _RETURN_FEED, pairs_done, 0)
            at += 64
        if count > before and has_half_pair(data, start, end):
            count = before
            doubtful[row] = 1
    return count
