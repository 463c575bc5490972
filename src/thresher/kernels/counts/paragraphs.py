# SPDX-License-Identifier: Apache-2.0
"""Count paragraphs, which are separated by two line feeds in a row, and distinct paragraphs.

They are those of `text.split("\\n\\n")`: blank ones count, and three line feeds in a row end one paragraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import OUT, flattened, get, helper, integer, kernel
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.repeats import TABLE, part_for, seen_before, table_for
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_COLUMNS = ("paragraphs", "distinct_paragraphs", "paragraph_characters", "distinct_paragraph_characters")
"""The columns that the kernel fills, in its order."""


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return all counts of the group."""
    batch = batch_of(work, rows)
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(batch, table_for(int(batch.line_feeds[rows].max(initial=0)) // 2 + 1), out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@helper
def next_cut(feeds: Any, feed: int, last: int) -> int:
    """Return the first line feed from `feed` on that is directly followed by another one; `last` if there is none.
    `feeds` has three numbers for each, the position first."""
    while feed + 1 < last:
        if get(feeds, 3 * feed + 3) == get(feeds, 3 * feed) + 1:
            return feed
        feed += 1
    return last


@kernel(types.void(BATCH, TABLE, OUT))
def _count(batch: Batch, table: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`."""
    data, flat = batch.data, flattened(batch.feeds)
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        start, length = batch.starts[row], batch.ends[row] - batch.starts[row]
        feed, feeds = batch.first_feed[row], batch.line_feeds[row]
        last = feed + feeds
        own_table = part_for(table, feeds // 2 + 1)
        paragraphs = distinct = characters = distinct_characters = begin = continuation_before = 0
        more = True
        while more:
            cut = next_cut(flat, feed, last)
            more = cut < last
            if more:
                end, continuation_upto = integer(get(flat, 3 * cut)), integer(get(flat, 3 * cut + 2))
            else:
                end, continuation_upto = length, batch.continuation[row]
            own = end - begin - (continuation_upto - continuation_before)
            paragraphs += 1
            characters += own
            if not seen_before(own_table, n + 1, data, start + begin, start + end):
                distinct += 1
                distinct_characters += own
            begin, continuation_before, feed = end + 2, continuation_upto, cut + 2
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = paragraphs, distinct, characters, distinct_characters
