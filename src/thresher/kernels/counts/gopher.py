# SPDX-License-Identifier: Apache-2.0
"""Counts for the Gopher rules: lines as `str.splitlines` defines them, and repeated lines and paragraphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import OUT, flattened, get, helper, kernel
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.repeats import TABLE, seen_before, table_for
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

_SPLIT_LINES = ("split_lines", "gopher_bullet_lines", "gopher_ellipsis_lines")
_PIECES = (
    "gopher_lines",
    "gopher_duplicate_lines",
    "gopher_duplicate_line_characters",
    "gopher_paragraphs",
    "gopher_duplicate_paragraphs",
    "gopher_duplicate_paragraph_characters",
)


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return the counts of `str.splitlines` lines and of pieces, each if one of them is wanted."""
    batch = batch_of(work, rows)
    names = {name for name, _ in wanted}
    counts: dict[Count, Rows] = {}
    if names.intersection(_SPLIT_LINES):
        out = np.empty((len(rows), len(_SPLIT_LINES)), dtype=np.int64)
        _split_lines(batch, out)
        counts |= {(name, 0): out[:, position] for position, name in enumerate(_SPLIT_LINES)}
    if names.intersection(_PIECES):
        out = np.empty((len(rows), len(_PIECES)), dtype=np.int64)
        _pieces(batch, table_for(int(batch.line_feeds[rows].max(initial=0)) + 1), out)
        counts |= {(name, 0): out[:, position] for position, name in enumerate(_PIECES)}
    return counts


@helper
def line_breaks(data: Any, start: int, end: int) -> Any:
    """Return the number of `str.splitlines` line ends in white space, and the position after the last of them."""
    breaks, last, at = 0, start, start
    while at < end:
        byte = get(data, at)
        size = 0
        if byte == 0x0D:
            size = 2 if at + 1 < end and get(data, at + 1) == 0x0A else 1
        elif 0x0A <= byte <= 0x0C or 0x1C <= byte <= 0x1E:
            size = 1
        elif byte == 0xC2 and at + 1 < end and get(data, at + 1) == 0x85:
            size = 2
        elif byte == 0xE2 and at + 2 < end and get(data, at + 1) == 0x80 and 0xA8 <= get(data, at + 2) <= 0xA9:
            size = 3
        if size:
            breaks += 1
            last = at + size
            at = last
        else:
            at += 1
    return breaks, last


@helper
def _begins_with_bullet(data: Any, start: int, end: int) -> bool:
    first = get(data, start)
    if first == 0x2D:
        return True
    return end - start >= 3 and first == 0xE2 and get(data, start + 1) == 0x80 and get(data, start + 2) == 0xA2


@helper
def ends_with_ellipsis(data: Any, start: int, end: int) -> bool:
    """Return True if a word ends with three full stops or an ellipsis character."""
    if end - start < 3:
        return False
    one, two, three = get(data, end - 3), get(data, end - 2), get(data, end - 1)
    return bool((one == 0x2E and two == 0x2E and three == 0x2E) or (one == 0xE2 and two == 0x80 and three == 0xA6))


@kernel(types.void(BATCH, OUT))
def _split_lines(batch: Batch, out: Any) -> None:
    """Fill a row of `out` for each of `rows`. Where the white space between two words contains a line end, the first
    word is the last of its line and the second the first of the next."""
    data, edges = batch.data, batch.edges
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        start, end, words = batch.starts[row], batch.ends[row], batch.words[row]
        lines = bullets = ellipses = 0
        begin, before, border = start, start, start
        edge = 2 * batch.first_word[row]
        for word in range(words + 1):
            is_last = word == words
            behind = end if is_last else start + get(edges, edge)
            ended = word == 0 or is_last
            if behind - before != 1 or get(data, before) != 0x20:
                breaks, last = line_breaks(data, before, behind)
                if breaks:
                    lines += breaks
                    border = last
                    ended = True
            if ended:
                if word and ends_with_ellipsis(data, begin, before):
                    ellipses += 1
                if not is_last and _begins_with_bullet(data, behind, end):
                    bullets += 1
            if not is_last:
                begin = behind
                before = start + get(edges, edge + 1)
                edge += 2
        out[n, 0] = lines + (1 if border < end else 0)
        out[n, 1] = bullets
        out[n, 2] = ellipses


@helper
def _follow_bytes(data: Any, start: int, end: int) -> int:
    """Return the number of continuation bytes."""
    found = 0
    for at in range(start, end):
        if get(data, at) & 0xC0 == 0x80:
            found += 1
    return found


@kernel(types.void(BATCH, TABLE, OUT))
def _pieces(batch: Batch, table: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`. Lines are separated by runs of line feeds, paragraphs by runs of two or
    more in the stripped text."""
    data, edges, flat = batch.data, batch.edges, flattened(batch.feeds)
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        start, length = batch.starts[row], batch.ends[row] - batch.starts[row]
        first_feed, words, continuation = batch.first_feed[row], batch.words[row], batch.continuation[row]
        feed, last_feed = 3 * first_feed, 3 * (first_feed + batch.line_feeds[row])
        # Lines.
        lines = duplicates = characters = 0
        begin, follow = 0, 0
        while True:
            is_last = feed == last_feed
            end = length if is_last else get(flat, feed)
            follow_end = continuation if is_last else get(flat, feed + 2)
            if end > begin or begin == 0 or is_last:
                lines += 1
                if seen_before(table, 2 * n + 1, data, start + begin, start + end):
                    duplicates += 1
                    characters += end - begin - (follow_end - follow)
            if is_last:
                break
            begin, follow = end + 1, follow_end
            feed += 3
        out[n, 0], out[n, 1], out[n, 2] = lines, duplicates, characters
        # Paragraphs.
        paragraphs = duplicates = characters = 0
        begin = stop = follow = follow_stop = 0
        if words:
            edge = 2 * batch.first_word[row]
            begin, stop = get(edges, edge), get(edges, edge + 2 * words - 1)
            follow = _follow_bytes(data, start, start + begin)
            follow_stop = continuation - _follow_bytes(data, start + stop, start + length)
        feed = 3 * first_feed
        while feed < last_feed and get(flat, feed) < begin:
            feed += 3
        while True:
            # The next run of two or more.
            end, behind, follow_end = stop, stop, follow_stop
            while feed < last_feed and get(flat, feed) < stop:
                first = get(flat, feed)
                run = 1
                while feed + 3 * run < last_feed and get(flat, feed + 3 * run) == first + run:
                    run += 1
                if run >= 2:
                    end, behind, follow_end = first, first + run, get(flat, feed + 2)
                    feed += 3 * run
                    break
                feed += 3 * run
            paragraphs += 1
            is_only = paragraphs == 1 and end == stop
            if not is_only and seen_before(table, 2 * n + 2, data, start + begin, start + end):
                duplicates += 1
                characters += end - begin - (follow_end - follow)
            if end == stop:
                break
            begin, follow = behind, follow_end
        out[n, 3], out[n, 4], out[n, 5] = paragraphs, duplicates, characters
