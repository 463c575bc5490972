# SPDX-License-Identifier: Apache-2.0
"""Where the words and the line feeds of texts are. It is found once per text, and every other kernel builds on it.

Words are those of `str.split()`: what lies between any of the 29 characters that are white space in Unicode.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import Count, Rows, Texts, Work
from thresher.kernels.intrinsics import (
    ALL,
    BYTES,
    INT64,
    NONE,
    ONE,
    OUT,
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
from thresher.kernels.signatures import types

LONGEST = 2**31 - 2**10
"""A text of so many bytes or more has no places: they are 32-bit numbers."""
_WORDS, _WHITE, _CONTINUATION, _LINE_FEEDS = range(4)
"""The columns that the scan fills for a text."""
_COLUMNS = 4
_AT_ONCE = 8
"""So many edges are written together, also where there are fewer: the next ones are written over what is too much. A
loop that ends with the last edge of a block ends where no processor expects it."""
_LAST, _TWO, _BEFORE_LAST = np.uint64(63), np.uint64(2), np.uint64(62)


class Places(NamedTuple):
    """Where words and line feeds are. All places are bytes from the start of their text."""

    first_word: Rows
    """By row: the number of the text's first word among all words; -1 for a text that was not scanned."""
    words: Rows
    """By row: how many words the text has."""
    edges: npt.NDArray[np.int32]
    """Word k lies from `edges[2 * k]` up to, not including, `edges[2 * k + 1]`. There may be unused room behind."""
    first_feed: Rows
    """By row: the number of the text's first line feed among all of them."""
    line_feeds: Rows
    """By row: how many line feeds the text has."""
    feeds: npt.NDArray[np.int32]
    """A row for each line feed: its place, the words and the continuation bytes (of UTF-8) before it in the text."""
    continuation: Rows
    """By row: how many continuation bytes the text has; code points are the other bytes."""
    white: Rows
    """By row: how many code points are white space."""


_LONG = 2**20
"""Of longer texts it is counted what room they need."""
_ENDS_WORD = np.zeros(256, dtype=np.bool_)
_ENDS_WORD[[*range(0x09, 0x0E), *range(0x1C, 0x21), 0xC2, 0xE1, 0xE2, 0xE3]] = True
"""Bytes that are white space, or with which it may begin."""


class _Growing(NamedTuple):
    """Places, and how much of their room is used."""

    places: Places
    """What there is."""
    edges: int
    """Used elements of `places.edges`."""
    feeds: int
    """Used rows of `places.feeds`."""


def places(work: Work, rows: Rows) -> Places:
    """The places of these texts; those that are not known yet are looked for. Ask again for other rows: arrays may have
    moved then."""
    held: _Growing | None = work.shared.get("places")
    if held is None:
        held = _nothing(len(work.texts.starts))
    new = rows[held.places.first_word[rows] < 0]
    if len(new):
        held = _scanned(work, held, new)
    work.shared["places"] = held
    return held.places


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Words, and code points in them."""
    found = places(work, rows)
    lengths = work.texts.ends[rows] - work.texts.starts[rows]
    characters = lengths - found.continuation[rows] - found.white[rows]
    return {("words", 0): found.words[rows], ("word_characters", 0): characters}


def _nothing(texts: int) -> _Growing:
    columns = np.zeros((6, texts), dtype=np.int64)
    columns[0] = -1
    first_word, words, first_feed, line_feeds, continuation, white = columns
    edges, feeds = np.empty(0, dtype=np.int32), np.empty((0, 3), dtype=np.int32)
    return _Growing(Places(first_word, words, edges, first_feed, line_feeds, feeds, continuation, white), 0, 0)


def _scanned(work: Work, held: _Growing, rows: Rows) -> _Growing:
    """What is held and the places of `rows`. The room for them is a guess; where it is too small, more is made."""
    texts = work.texts
    lengths = texts.ends[rows] - texts.starts[rows]
    longest = int(lengths.max())
    if longest >= LONGEST:
        raise OverflowError(f"a text of {longest} bytes is too long for the kernels, which take less than {LONGEST}")
    found = held.places
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
    """How much room each text may need, for edges of words and for line feeds. Of a long text the bytes are counted at
    which a word can end: sixteen times its length, which a text of such bytes alone would need, may not be there."""
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


def _note(found: Places, held: _Growing, rows: Rows, out: npt.NDArray[np.int64]) -> None:
    """Write down where each text's words and line feeds begin: they lie behind those of the text before."""
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
    """Where white space of two and of three bytes begins among the 64 bytes from `at` on. Two bytes behind them are
    read."""
    second, third = at + 1, at + 2
    two = mask_equal(data, at, 0xC2) & (mask_equal(data, second, 0x85) | mask_equal(data, second, 0xA0))
    ogham = mask_equal(data, at, 0xE1) & mask_equal(data, second, 0x9A) & mask_equal(data, third, 0x80)
    spaces = mask_range(data, third, 0x80, 0x8A) | mask_range(data, third, 0xA8, 0xA9) | mask_equal(data, third, 0xAF)
    mathematical = mask_equal(data, second, 0x81) & mask_equal(data, third, 0x9F)
    general = mask_equal(data, at, 0xE2) & ((mask_equal(data, second, 0x80) & spaces) | mathematical)
    wide = mask_equal(data, at, 0xE3) & mask_equal(data, second, 0x80) & mask_equal(data, third, 0x80)
    return two, ogham | general | wide


@kernel(
    types.int64(
        BYTES,
        INT64,
        INT64,
        INT64,
        types.int64,
        types.int32[::1],
        types.int32[:, ::1],
        types.int64[:, ::1],
        types.int64[::1],
        OUT,
    )
)
def _scan(
    data: Any, starts: Any, ends: Any, rows: Any, first: int, edges: Any, feeds: Any, needs: Any, used: Any, out: Any
) -> int:
    """Scan texts from `rows[first]` on as long as there is room; the number of the first one that was not scanned."""
    edge, feed = used[0], used[1]
    flat = flattened(feeds)
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
                place = trailing_zeros(lines)
                upto = low_bits(place + 1)
                put(flat, 3 * feed, block + place)
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
        out[n, 0] = (edge - first_edge) >> 1
        out[n, 1] = white
        out[n, 2] = continuation
        out[n, 3] = feed - first_feed
    used[0], used[1] = edge, feed
    return len(rows)
