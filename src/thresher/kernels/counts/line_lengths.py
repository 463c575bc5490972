# SPDX-License-Identifier: Apache-2.0
"""Count short and long lines. Lines are separated by line feeds; lengths are in code points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import OUT, flattened, get, kernel
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_COLUMNS = ("short_lines", "long_lines")
"""The columns that the kernel fills, in order."""


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return `short_lines` (not blank, of up to the length) and `long_lines` (of at least the length)."""
    batch = batch_of(work, rows)
    found: dict[Count, Rows] = {}
    for length in {length for _, length in wanted}:
        out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
        _count(batch, length, out)
        found |= {(name, length): out[:, column] for column, name in enumerate(_COLUMNS)}
    return {count: found[count] for count in wanted}


@kernel(types.void(BATCH, types.int64, OUT))
def _count(batch: Batch, bound: int, out: Any) -> None:
    """Fill a row of `out` for each of `rows`. Each line feed stores the number of words and continuation bytes before
    it."""
    flat = flattened(batch.feeds)
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        line_feeds = batch.line_feeds[row]
        short = long = 0
        begin = words_before = follow = 0
        feed = 3 * batch.first_feed[row]
        for line in range(line_feeds + 1):
            if line == line_feeds:
                end, words_end = batch.ends[row] - batch.starts[row], batch.words[row]
                follow_end = batch.continuation[row]
            else:
                end, words_end = get(flat, feed), get(flat, feed + 1)
                follow_end = get(flat, feed + 2)
            characters = end - begin - (follow_end - follow)
            if characters <= bound and words_end > words_before:
                short += 1
            if characters >= bound:
                long += 1
            begin, words_before, follow = end + 1, words_end, follow_end
            feed += 3
        out[n, 0], out[n, 1] = short, long
