# SPDX-License-Identifier: Apache-2.0
"""Counts for the FineWeb rules: how lines end, how long they are, and which come again. Blank lines do not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.counts import Count, Rows, Work
from thresher.kernels.intrinsics import BYTES, INT64, OUT, TABLE32, flattened, get, kernel
from thresher.kernels.line_lengths import lines_up_to
from thresher.kernels.places import places
from thresher.kernels.repeats import TABLE, seen_before, table_for
from thresher.kernels.sentence_ends import ENDING, ends_like_sentence
from thresher.kernels.signatures import types

_LINES = ("fineweb_lines", "ended_lines", "fineweb_duplicate_characters")


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """What one pass over the lines yields, and short lines for each length that is wanted."""
    counts: dict[Count, Rows] = {}
    if any(name in _LINES for name, _ in wanted):
        found, texts = places(work, rows), work.texts
        out = np.empty((len(rows), len(_LINES)), dtype=np.int64)
        table = table_for(int(found.line_feeds[rows].max(initial=0)) + 1)
        by_text = np.stack(
            [texts.starts, texts.ends, found.words, found.continuation, found.first_feed, found.line_feeds], axis=1
        )
        _count(texts.data, rows, by_text, found.feeds, ENDING, table, out)
        counts |= {(name, 0): out[:, place] for place, name in enumerate(_LINES)}
    for name, length in wanted:
        if name == "short_lines":
            counts[name, length] = lines_up_to(work, rows, length)
    return counts


@kernel(types.void(BYTES, INT64, types.Array(types.int64, 2, "C", readonly=True), TABLE32, INT64, TABLE, OUT))
def _count(data: Any, rows: Any, by_text: Any, feeds: Any, ending: Any, table: Any, out: Any) -> None:
    """Every line lies between two line feeds that say how many words and continuation bytes come before them."""
    flat = flattened(feeds)
    for n in range(len(rows)):
        row = rows[n]
        start, stop, words = by_text[row, 0], by_text[row, 1], by_text[row, 2]
        continuation, first_feed, line_feeds = by_text[row, 3], by_text[row, 4], by_text[row, 5]
        lines = ended = repeated = 0
        begin = start
        words_before = follow = 0
        feed = 3 * first_feed
        for line in range(line_feeds + 1):
            if line == line_feeds:
                end, words_end, follow_end = stop, words, continuation
            else:
                end, words_end = start + get(flat, feed), get(flat, feed + 1)
                follow_end = get(flat, feed + 2)
            if words_end > words_before:
                lines += 1
                if ends_like_sentence(data, begin, end, ending):
                    ended += 1
                if seen_before(table, n + 1, data, begin, end):
                    repeated += end - begin - (follow_end - follow)
            begin, words_before, follow = end + 1, words_end, follow_end
            feed += 3
        out[n, 0], out[n, 1], out[n, 2] = lines, ended, repeated
