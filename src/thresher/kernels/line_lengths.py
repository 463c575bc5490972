# SPDX-License-Identifier: Apache-2.0
"""How many lines are short, and how many are long. Lines lie between line feeds; lengths are code points."""

from __future__ import annotations

from typing import Any

import numpy as np

from thresher.kernels.counts import Rows, Work
from thresher.kernels.intrinsics import INT64, OUT, TABLE32, flattened, get, kernel
from thresher.kernels.places import places
from thresher.kernels.signatures import types


def lines_up_to(work: Work, rows: Rows, length: int) -> Rows:
    """Lines of up to `length` code points that are not blank."""
    return _counted(work, rows, length)[:, 0]


def lines_from(work: Work, rows: Rows, length: int) -> Rows:
    """Lines of `length` code points or more, blank ones too."""
    return _counted(work, rows, length)[:, 1]


def _counted(work: Work, rows: Rows, length: int) -> Rows:
    found, texts = places(work, rows), work.texts
    out = np.empty((len(rows), 2), dtype=np.int64)
    lengths = texts.ends - texts.starts
    by_text = np.stack([lengths, found.words, found.continuation, found.first_feed, found.line_feeds], axis=1)
    _count(rows, by_text, found.feeds, length, out)
    return out


@kernel(types.void(INT64, types.Array(types.int64, 2, "C", readonly=True), TABLE32, types.int64, OUT))
def _count(rows: Any, by_text: Any, feeds: Any, bound: int, out: Any) -> None:
    """Every line lies between two line feeds that say how many words and continuation bytes come before them."""
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
