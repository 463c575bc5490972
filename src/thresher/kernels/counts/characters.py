# SPDX-License-Identifier: Apache-2.0
"""Count kinds of characters. Bytes are processed 64 at a time; only blocks with anything outside ASCII take a second
pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import (
    ALL,
    BYTES,
    INT64,
    NONE,
    ONE,
    OUT,
    helper,
    integer,
    kernel,
    low_bits,
    mask_equal,
    mask_range,
    popcount,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.counts import COUNTS
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_COLUMNS = COUNTS["characters"]
"""The columns that the kernel fills, in order."""
_LAST = np.uint64(63)


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return all counts of the group."""
    texts = work.texts
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(texts.data, texts.starts, texts.ends, rows, out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@helper
def _dot_runs(dots: Any, run: int) -> Any:
    """Return the number of three-dot groups that end in a block, and the length of the run of dots at its end. `run` is
    the length of the run at the end of the previous block."""
    groups = position = 0
    while position < 64:
        rest = dots >> np.uint64(position)
        length = min(trailing_zeros(~rest), 64 - position)
        run += length
        position += length
        if position < 64:
            groups += run // 3
            run = 0
            ahead = dots >> np.uint64(position)
            position += min(trailing_zeros(ahead), 64 - position)
    return groups, run


@kernel(types.void(BYTES, INT64, INT64, INT64, OUT))
def _count(data: Any, starts: Any, ends: Any, rows: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`."""
    for n in range(len(rows)):
        start, end = starts[rows[n]], ends[rows[n]]
        continuation = white = common = digits = parentheses = hashes = dots3 = ellipses = curly = feeds = run = 0
        for at in range(start, end, 64):
            left = end - at
            valid = ALL if left >= 64 else low_bits(left)
            feed = mask_equal(data, at, 0x0A)
            digit = mask_range(data, at, 0x30, 0x39)
            dot = mask_equal(data, at, 0x2E) & valid
            open_curly = mask_equal(data, at, 0x7B)
            # The letters of both cases, and the brackets in pairs: `(` `)`, `[` `]`, `{` `}`.
            letter = mask_range(data, at, 0x61, 0x7A) | mask_range(data, at, 0x41, 0x5A)
            bracket = mask_range(data, at, 0x28, 0x29) | mask_equal(data, at, 0x5B) | mask_equal(data, at, 0x5D)
            bracket |= open_curly | mask_equal(data, at, 0x7D)
            mark = mask_equal(data, at, 0x21) | mask_equal(data, at, 0x3F) | mask_equal(data, at, 0x2C)
            space = mask_range(data, at, 0x08, 0x0A) | mask_equal(data, at, 0x0D) | mask_equal(data, at, 0x20)
            feeds += popcount(feed & valid)
            digits += popcount(digit & valid)
            curly += popcount(open_curly & valid)
            common += popcount((letter | digit | feed | mark | dot) & valid)
            parentheses += popcount(bracket & valid)
            white += popcount(space & valid)
            hashes += popcount(mask_equal(data, at, 0x23) & valid)
            joined = NONE if run == 0 else ONE
            if dot & ((dot << ONE) | joined):
                groups, run = _dot_runs(dot, run)
                dots3 += groups
            else:
                dots3 += run // 3
                run = integer(dot >> _LAST)
            if mask_range(data, at, 0x80, 0xFF) & valid:
                continuation += popcount(mask_range(data, at, 0x80, 0xBF) & valid)
                three = mask_equal(data, at, 0xE2) & valid
                if three and left >= 3:
                    second, third = at + 1, at + 2
                    ellipsis = mask_equal(data, second, 0x80) & mask_equal(data, third, 0xA6)
                    angle = mask_equal(data, second, 0x9F) & mask_range(data, third, 0xA8, 0xA9)
                    ellipses += popcount(three & ellipsis)
                    parentheses += popcount(three & angle)
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = end - start, end - start - continuation, white, common
        out[n, 4], out[n, 5], out[n, 6], out[n, 7] = digits, parentheses, hashes, dots3 + run // 3
        out[n, 8], out[n, 9], out[n, 10] = ellipses, curly, feeds
