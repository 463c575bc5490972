# SPDX-License-Identifier: Apache-2.0
"""Counts for the FineWeb rules: how lines end, and which are repeated. Blank lines do not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.intrinsics import BYTES, INT64, OUT, TABLE32, flattened, get, kernel
from thresher.kernels.bytes.repeats import TABLE, seen_before, table_for
from thresher.kernels.bytes.sentence_ends import ENDING, ends_like_sentence
from thresher.kernels.counts.positions import positions
from thresher.kernels.counts.text_counts import Count, Rows, Work

_COLUMNS = ("fineweb_lines", "ended_lines", "fineweb_duplicate_characters")


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return all counts of the group."""
    found, texts = positions(work, rows), work.texts
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    table = table_for(int(found.line_feeds[rows].max(initial=0)) + 1)
    by_text = np.stack(
        [texts.starts, texts.ends, found.words, found.continuation, found.first_feed, found.line_feeds], axis=1
    )
    _count(texts.data, rows, by_text, found.feeds, ENDING, table, out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@kernel(types.void(BYTES, INT64, types.Array(types.int64, 2, "C", readonly=True), TABLE32, INT64, TABLE, OUT))
def _count(data: Any, rows: Any, by_text: Any, feeds: Any, ending: Any, table: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`. Each line feed stores the number of words and continuation bytes before
    it."""
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
