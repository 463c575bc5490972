# SPDX-License-Identifier: Apache-2.0
"""Counts for the FineWeb rules: how lines end, and which are repeated. Blank lines do not count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import INT64, OUT, flattened, get, kernel
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.repeats import TABLE, seen_before, table_for
from thresher.kernels.bytes.sentence_ends import ENDING, ends_like_sentence
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_COLUMNS = ("fineweb_lines", "ended_lines", "fineweb_duplicate_characters")


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return all counts of the group."""
    batch = batch_of(work, rows)
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(batch, ENDING, table_for(int(batch.line_feeds[rows].max(initial=0)) + 1), out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@kernel(types.void(BATCH, INT64, TABLE, OUT))
def _count(batch: Batch, ending: Any, table: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`. Each line feed stores the number of words and continuation bytes before
    it."""
    data, flat = batch.data, flattened(batch.feeds)
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        start, line_feeds = batch.starts[row], batch.line_feeds[row]
        lines = ended = repeated = 0
        begin = start
        words_before = follow = 0
        feed = 3 * batch.first_feed[row]
        for line in range(line_feeds + 1):
            if line == line_feeds:
                end, words_end, follow_end = batch.ends[row], batch.words[row], batch.continuation[row]
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
