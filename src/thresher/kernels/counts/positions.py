# SPDX-License-Identifier: Apache-2.0
"""Find the words and line feeds of texts, once per text; most other kernels use the result.

Words are those of `str.split()`, separated by any of the 29 white-space characters of Unicode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    ALL,
    BYTES,
    INT32,
    INT64,
    NONE,
    ONE,
    OUT,
    TABLE32,
    flattened,
    helper,
    kernel,
    low_bits,
    mask_equal,
    mask_range,
    popcount,
    put,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts, Texts

LONGEST = 2**31 - 2**10
"""Texts of this number of bytes or more are rejected: positions are 32-bit numbers."""
_WORDS, _WHITE, _CONTINUATION, _LINE_FEEDS = range(4)
"""The columns that the scan fills for a text."""
_COLUMNS = 4
_AT_ONCE = 8
"""Number of edges that are written at once, even if fewer are left; the next ones overwrite the surplus. A loop that
ends with the last edge of a block would be mispredicted."""
_EDGES, _FEEDS = types.int32[::1], types.int32[:, ::1]
_LAST, _TWO, _BEFORE_LAST = np.uint64(63), np.uint64(2), np.uint64(62)


class Positions(NamedTuple):
    """Positions of words and line feeds, in bytes from the start of their text."""

    first_word: Rows
    """By row: the index of the text's first word among all words; -1 for a text that was not scanned."""
    words: Rows
    """By row: number of words."""
    edges: npt.NDArray[np.int32]
    """Word k extends from `edges[2 * k]` up to, not including, `edges[2 * k + 1]`. The array may be longer than
    needed."""
    first_feed: Rows
    """By row: the index of the text's first line feed among all of them."""
    line_feeds: Rows
    """By row: number of line feeds."""
    feeds: npt.NDArray[np.int32]
    """A row for each line feed: its position, and the number of words and UTF-8 continuation bytes before it in the
    text."""
    continuation: Rows
    """By row: number of continuation bytes; code points are the other bytes."""
    white: Rows
    """By row: number of white-space code points."""


class Batch(NamedTuple):
    """The texts of a batch with their words and line feeds, as one argument of a kernel: `Texts`, the wanted rows, and
    fields of `Positions`."""

    data: npt.NDArray[np.uint8]
    starts: Rows
    ends: Rows
    rows: Rows
    first_word: Rows
    words: Rows
    edges: npt.NDArray[np.int32]
    first_feed: Rows
    line_feeds: Rows
    feeds: npt.NDArray[np.int32]
    continuation: Rows


BATCH = types.NamedTuple((BYTES, *[INT64] * 5, INT32, INT64, INT64, TABLE32, INT64), Batch)
"""The type of a batch for kernels."""
_LONG = 2**20
"""Longer texts are counted first to find the space that they need."""
_ENDS_WORD = np.zeros(256, dtype=np.bool_)
_ENDS_WORD[[*range(0x09, 0x0E), *range(0x1C, 0x21), 0xC2, 0xE1, 0xE2, 0xE3]] = True
"""Bytes that are white space, or with which a white-space character may begin."""


class _Growing(NamedTuple):
    """Positions, and the used size of their arrays."""

    positions: Positions
    """The positions found so far."""
    edges: int
    """Used elements of `positions.edges`."""
    feeds: int
    """Used rows of `positions.feeds`."""


def positions(work: SharedCounts, rows: Rows) -> Positions:
    """Return the positions of these texts, scanning those that are not known yet. Call it again for other rows: arrays
    may have been replaced."""
    held: _Growing | None = work.shared.get("positions")
    if held is None:
        held = _nothing(len(work.texts.starts))
    new = rows[held.positions.first_word[rows] < 0]
    if len(new):
        held = _scanned(work, held, new)
    work.shared["positions"] = held
    return held.positions


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return the number of words, and of code points in them."""
    found = positions(work, rows)
    lengths = work.texts.ends[rows] - work.texts.starts[rows]
    characters = lengths - found.continuation[rows] - found.white[rows]
    return {("words", 0): found.words[rows], ("word_characters", 0): characters}


def batch_of(work: SharedCounts, rows: Rows) -> Batch:
    """Return the argument of a kernel for the texts of `rows`."""
    arrays: tuple[npt.NDArray[Any], ...] = (*work.texts, rows, *positions(work, rows)[:7])
    return Batch(*map(_only_read, arrays))


def _only_read(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view: inside a tuple a kernel accepts only read-only arrays."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _nothing(texts: int) -> _Growing:
    columns = np.zeros((6, texts), dtype=np.int64)
    columns[0] = -1
    first_word, words, first_feed, line_feeds, continuation, white = columns
    edges, feeds = np.empty(0, dtype=np.int32), np.empty((0, 3), dtype=np.int32)
    return _Growing(Positions(first_word, words, edges, first_feed, line_feeds, feeds, continuation, white), 0, 0)


def _scanned(work: SharedCounts, held: _Growing, rows: Rows) -> _Growing:
    """Return the known positions and those of `rows`. The size of the arrays is estimated; they grow when needed."""
    texts = work.texts
    lengths = texts.ends[rows] - texts.starts[rows]
    longest = int(lengths.max())
    if longest >= LONGEST:
        raise OverflowError(f"a text of {longest} bytes is too long for the kernels, which take less than {LONGEST}")
    found = held.positions
    used = np.array([held.edges, held.feeds], dtype=np.int64)
    needs = _needs(texts, rows, lengths)
    most_edges, most_feeds = int(needs[0].max()), int(needs[1].max())
    short = int(np.minimum(lengths, _LONG).sum())
    out = np.empty((len(rows), _COLUMNS), dtype=np.int64)
    done = 0
    while True:
        edges = _with_room(found.edges, int(used[0]), short // 2 + most_edges)
        feeds = _with_room(found.feeds, int(used[1]), short // 16 + most_feeds)
        before = done
        found = found._replace(edges=edges, feeds=feeds)
        done = _scan(texts.data, texts.starts, texts.ends, rows, before, edges, feeds, needs, used, out)
        if done == len(rows):
            break
        short = int(np.minimum(lengths[done:], _LONG).sum())
    _note(found, held, rows, out)
    return _Growing(found, int(used[0]), int(used[1]))


def _needs(texts: Texts, rows: Rows, lengths: Rows) -> npt.NDArray[np.int64]:
    """Return the space that each text may need, for edges of words and for line feeds. In a long text the bytes are
    counted at which a word can end: the upper bound of sixteen times its length might not fit into memory."""
    needs = np.stack((lengths + 2, lengths))
    for n in np.flatnonzero(lengths > _LONG).tolist():
        start, end = int(texts.starts[rows[n]]), int(texts.ends[rows[n]])
        ends_word = feeds = 0
        for at in range(start, end, _LONG):
            piece = texts.data[at : min(at + _LONG, end)]
            ends_word += int(np.count_nonzero(_ENDS_WORD[piece]))
            feeds += int(np.count_nonzero(piece == 0x0A))
        needs[:, n] = 2 * ends_word + 4, feeds
    return needs


def _note(found: Positions, held: _Growing, rows: Rows, out: npt.NDArray[np.int64]) -> None:
    """Store the index of each text's first word and line feed: texts follow each other in the arrays."""
    words, feeds = out[:, _WORDS], out[:, _LINE_FEEDS]
    found.words[rows], found.white[rows], found.line_feeds[rows] = words, out[:, _WHITE], feeds
    found.continuation[rows] = out[:, _CONTINUATION]
    found.first_word[rows] = held.edges // 2 + np.cumsum(words) - words
    found.first_feed[rows] = held.feeds + np.cumsum(feeds) - feeds


def _with_room(array: npt.NDArray[np.int32], used: int, more: int) -> npt.NDArray[np.int32]:
    room = used + more + 64
    if len(array) >= room:
        return array
    grown = np.empty((room, *array.shape[1:]), dtype=np.int32)
    grown[:used] = array[:used]
    return grown


@helper
def unicode_white(data: Any, at: int) -> Any:
    """Return where white-space characters of two and of three bytes begin among the 64 bytes from `at` on. Two bytes
    after them are read."""
    second, third = at + 1, at + 2
    two = mask_equal(data, at, 0xC2) & (mask_equal(data, second, 0x85) | mask_equal(data, second, 0xA0))
    ogham = mask_equal(data, at, 0xE1) & mask_equal(data, second, 0x9A) & mask_equal(data, third, 0x80)
    spaces = mask_range(data, third, 0x80, 0x8A) | mask_range(data, third, 0xA8, 0xA9) | mask_equal(data, third, 0xAF)
    mathematical = mask_equal(data, second, 0x81) & mask_equal(data, third, 0x9F)
    general = mask_equal(data, at, 0xE2) & ((mask_equal(data, second, 0x80) & spaces) | mathematical)
    wide = mask_equal(data, at, 0xE3) & mask_equal(data, second, 0x80) & mask_equal(data, third, 0x80)
    return two, ogham | general | wide


@kernel(types.int64(BYTES, INT64, INT64, INT64, types.int64, _EDGES, _FEEDS, OUT, types.int64[::1], OUT))
def _scan(
    data: Any, starts: Any, ends: Any, rows: Any, first: int, edges: Any, feeds: Any, needs: Any, used: Any, out: Any
) -> int:
    """Scan texts from `rows[first]` on as long as they fit; return the index of the first one that was not scanned."""
    edge, feed, flat = used[0], used[1], flattened(feeds)
    for n in range(first, len(rows)):
        start = starts[rows[n]]
        length = ends[rows[n]] - start
        if edge + needs[0, n] + _AT_ONCE > len(edges) or feed + needs[1, n] > len(feeds):
            used[0], used[1] = edge, feed
            return n
        first_edge, first_feed = edge, feed
        continuation = white = 0
        in_word, spilled = NONE, NONE
        for block in range(0, length, 64):
            at = start + block
            left = length - block
            valid = ALL if left >= 64 else low_bits(left)
            blank = mask_range(data, at, 0x09, 0x0D) | mask_range(data, at, 0x1C, 0x20)
            white += popcount(blank & valid)
            high = mask_range(data, at, 0x80, 0xFF) & valid
            follow = NONE
            if high:
                follow = mask_range(data, at, 0x80, 0xBF) & valid
                blank |= spilled
                spilled = NONE
                if left >= 2:
                    two, three = unicode_white(data, at)
                    both = (two | three) & valid
                    if both:
                        white += popcount(both)
                        blank |= both | (both << ONE) | (three << _TWO)
                        spilled = (both >> _LAST) | ((three & valid) >> _BEFORE_LAST)
            word = ~blank & valid
            bits = word ^ ((word << ONE) | in_word)
            in_word = word >> _LAST
            lines = mask_equal(data, at, 0x0A) & valid
            while lines:
                position = trailing_zeros(lines)
                upto = low_bits(position + 1)
                put(flat, 3 * feed, block + position)
                put(flat, 3 * feed + 1, (edge - first_edge + popcount(bits & upto)) >> 1)
                put(flat, 3 * feed + 2, continuation + popcount(follow & upto))
                feed += 1
                lines &= lines - ONE
            continuation += popcount(follow)
            upto = edge + popcount(bits)
            while edge < upto:
                for step in range(_AT_ONCE):
                    put(edges, edge + step, block + trailing_zeros(bits))
                    bits &= bits - ONE
                edge += _AT_ONCE
            edge = upto
        if in_word:
            put(edges, edge, length)
            edge += 1
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = (edge - first_edge) >> 1, white, continuation, feed - first_feed
    used[0], used[1] = edge, feed
    return len(rows)
