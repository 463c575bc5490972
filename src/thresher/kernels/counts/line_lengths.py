# SPDX-License-Identifier: Apache-2.0
"""Count short and long lines. Lines are separated by line feeds; lengths are in code points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.intrinsics import INT64, OUT, TABLE32, flattened, get, kernel
from thresher.kernels.counts.positions import positions
from thresher.kernels.counts.text_counts import Count, Rows, Work

_COLUMNS = ("short_lines", "long_lines")
"""The columns that the kernel fills, in order."""


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return `short_lines` (not blank, of up to the length) and `long_lines` (of at least the length)."""
    lengths = dict.fromkeys(length for _, length in wanted)
    by_length = {length: _counted(work, rows, length) for length in lengths}
    return {(name, length): by_length[length][:, _COLUMNS.index(name)] for name, length in wanted}


def _counted(work: Work, rows: Rows, length: int) -> Rows:
    found, texts = positions(work, rows), work.texts
    out = np.empty((len(rows), 2), dtype=np.int64)
    lengths = texts.ends - texts.starts
    by_text = np.stack([lengths, found.words, found.continuation, found.first_feed, found.line_feeds], axis=1)
    _count(rows, by_text, found.feeds, length, out)
    return out


@kernel(types.void(INT64, types.Array(types.int64, 2, "C", readonly=True), TABLE32, types.int64, OUT))
def _count(rows: Any, by_text: Any, feeds: Any, bound: int, out: Any) -> None:
    """Fill a row of `out` for each of `rows`. Each line feed stores the number of words and continuation bytes before
    it."""
    flat = flattened(feeds)
    for n in range(len(rows)):
        row = rows[n]
        length, words, continuation = by_text[row, 0], by_text[row, 1], by_text[row, 2]
        first_feed, line_feeds = by_text[row, 3], by_text[row, 4]
        short = long = 0
        begin = words_before = follow = 0
        feed = 3 * first_feed
        for line in range(line_feeds + 1):
            if line == line_feeds:
                end, words_end, follow_end = length, words, continuation
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
