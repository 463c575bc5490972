# SPDX-License-Identifier: Apache-2.0
"""Find runs of three or more line ends, either LF or CR LF; those after the second are removed."""

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
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.edits.rewrite import DOUBT, FULL, has_half_pair, note_edit
from thresher.kernels.json.scan import byte_at

_FEED, _RETURN = 10, 13
_RETURN_FEED = 2


@helper
def _feeds_end(data: Any, position: int, end: int) -> int:
    """Return the position after a run of line feeds."""
    while position < end and byte_at(data, position) == _FEED:
        position += 1
    return position


@helper
def _pairs_end(data: Any, position: int, end: int) -> int:
    """Return the position after a run of CR LF pairs."""
    while position + 1 < end and byte_at(data, position) == _RETURN and byte_at(data, position + 1) == _FEED:
        position += _RETURN_FEED
    return position


@helper
def _marks(data: Any, at: int, end: int) -> Any:
    """Return a mask of up to 64 bytes from `at` on: line feeds followed by two more, and carriage returns."""
    if end - at > 64:  # all positions read are in the text or its padding
        feeds = mask_equal(data, at, np.uint8(_FEED))
        if feeds != NONE:
            feeds &= mask_equal(data, at + 1, np.uint8(_FEED)) & mask_equal(data, at + 2, np.uint8(_FEED))
        return feeds | mask_equal(data, at, np.uint8(_RETURN))
    inside = low_bits(end - at)
    feeds = mask_equal(data, at, np.uint8(_FEED)) & inside
    return (feeds & (feeds >> ONE) & (feeds >> np.uint64(2))) | (mask_equal(data, at, np.uint8(_RETURN)) & inside)


@kernel(types.int64(BYTES, INT64, INT64, OUT, DOUBT))
def find(data: Any, starts: Any, ends: Any, found: Any, doubtful: Any) -> int:
    """Find what to remove from each text."""
    count = 0
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        before = count
        feeds_done = pairs_done = start
        at = start
        while at < end:
            mask = _marks(data, at, end)
            while mask != NONE:
                position = at + trailing_zeros(mask)
                mask &= mask - ONE
                if count == len(found):
                    return FULL
                if byte_at(data, position) == _FEED:
                    if position >= feeds_done:
                        feeds_done = _feeds_end(data, position, end)
                        count = note_edit(found, count, row, position + 2, feeds_done, 0)
                elif position >= pairs_done:
                    pairs_done = _pairs_end(data, position, end)
                    if pairs_done - position > 2 * _RETURN_FEED:
                        count = note_edit(found, count, row, position + 2 * _RETURN_FEED, pairs_done, 0)
            at += 64
        if count > before and has_half_pair(data, start, end):
            count = before
            doubtful[row] = 1
    return count
