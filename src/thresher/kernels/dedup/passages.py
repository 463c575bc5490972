# SPDX-License-Identifier: Apache-2.0
"""Find the lines, paragraphs or sentences of texts, and hash them.

A passage is never blank: it begins and ends with a character that is no white space. `passages_of` in
`thresher.stages.dedup.passages.lines_split` defines where passages begin and end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    BYTES,
    INT64,
    NONE,
    OUT,
    get,
    hash_bytes,
    helper,
    kernel,
    load8,
    low_bits,
    mask_equal,
    popcount,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.sentence_ends import ENDING, ends_sentence
from thresher.kernels.bytes.white_space import white_at, white_before
from thresher.kernels.counts.text_counts import Texts

LINE, PARAGRAPH, SENTENCE = 0, 1, 2
"""What a passage is."""
ROW, TILE, START, END, CHARACTERS = range(5)
"""The columns of `Passages.found`: the number of the text, the position where the passage before is over, start and end
of the passage, and the number of its characters. Positions are those of the buffer of the texts."""
_FULL = -1
_FLAGS = types.Array(types.boolean, 1, "C", readonly=True)
_FEWEST, _BYTES_EACH = 256, 64
_HASHES = types.Array(types.uint64, 2, "C")
_FACTOR, _OTHER_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_SHIFT_29, _SHIFT_32, _SHIFT_6, _SHIFT_7 = np.uint64(29), np.uint64(32), np.uint64(6), np.uint64(7)
_LOWEST_BITS = np.uint64(0x0101010101010101)


class Passages(NamedTuple):
    """The passages of some texts, in order."""

    found: npt.NDArray[np.int64]
    """A row for each passage, with the columns above."""
    hashes: npt.NDArray[np.uint64]
    """Two hashes of each passage, 128 bits in all."""


def find_passages(texts: Texts, kind: int) -> Passages:
    """Return the passages of texts."""
    room = _FEWEST + int((texts.ends - texts.starts).sum()) // _BYTES_EACH
    while True:
        found, hashes = np.empty((room, 5), dtype=np.int64), np.empty((room, 2), dtype=np.uint64)
        count = _find(texts.data, texts.starts, texts.ends, kind, ENDING, found, hashes)
        if count != _FULL:
            break
        room *= 4
    found, hashes = found[:count], hashes[:count]
    firsts = np.flatnonzero(np.diff(found[:, ROW], prepend=-1))
    found[firsts, TILE] = texts.starts[found[firsts, ROW]]
    return Passages(found, hashes)


class Windows(NamedTuple):
    """Runs of passages of the same text, in order."""

    firsts: npt.NDArray[np.int64]
    """The number of the first passage of each."""
    keys: npt.NDArray[np.uint64]
    """Two hashes of each, 128 bits in all."""


def find_windows(passages: Passages, span: int, min_length: int) -> Windows:
    """Return all runs of `span` passages with at least `min_length` characters."""
    firsts = np.empty((len(passages.found), 1), dtype=np.int64)
    keys = np.empty((len(passages.found), 2), dtype=np.uint64)
    count = _windows(passages.found, passages.hashes, span, min_length, firsts, keys)
    return Windows(firsts[:count, 0], keys[:count])


def cuts_without(texts: Texts, passages: Passages, removed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return what to cut so that some passages go: rows of text, start and end."""
    cuts = np.empty((len(passages.found), 3), dtype=np.int64)
    return cuts[: _cut(texts.starts, texts.ends, passages.found, removed, cuts)]


@helper
def _other_hash(data: Any, start: int, end: int) -> Any:
    """Return a hash of bytes that has nothing in common with `hash_bytes`, and the number of characters."""
    value = np.uint64(end - start) ^ _FACTOR
    continuations = 0
    position = start
    while position < end:
        word = load8(data, position) & low_bits(8 * min(end - position, 8))
        value = (value ^ word) * _OTHER_FACTOR
        value ^= value >> _SHIFT_32
        continuations += popcount((word >> _SHIFT_7) & ~(word >> _SHIFT_6) & _LOWEST_BITS)
        position += 8
    value *= _FACTOR
    return value ^ (value >> _SHIFT_29), end - start - continuations


@helper
def _note(data: Any, found: Any, hashes: Any, count: int, row: int, tile: int, start: int, end: int) -> int:
    """Add a passage, and return the new number of passages; `_FULL` if there is no space for it."""
    if count == len(found):
        return _FULL
    other, characters = _other_hash(data, start, end)
    found[count, 0] = row
    found[count, 1] = tile
    found[count, 2] = start
    found[count, 3] = end
    found[count, 4] = characters
    hashes[count, 0] = hash_bytes(data, start, end)
    hashes[count, 1] = other
    return count + 1


@helper
def _full_stop_at(data: Any, at: int, end: int) -> int:
    """Return the length of the mark at a position if it is one that ends a sentence without white space behind it."""
    if at + 2 >= end:
        return 0
    one, two, three = get(data, at), get(data, at + 1), get(data, at + 2)
    if one == 0xE3:
        return 3 if two == 0x80 and three == 0x82 else 0
    if one != 0xEF:
        return 0
    if two == 0xBC:
        return 3 if three == 0x81 or three == 0x9F else 0
    return 3 if two == 0xBD and three == 0xA1 else 0


@helper
def _closer_at(data: Any, at: int, end: int) -> int:
    """Return the length of the closing quotation mark or bracket at a position; 0 if there is none."""
    if at >= end:
        return 0
    one = get(data, at)
    if one < 0x80:
        return 1 if one == 0x22 or one == 0x27 or one == 0x29 or one == 0x5D or one == 0x7D else 0
    if at + 1 >= end:
        return 0
    two = get(data, at + 1)
    if one == 0xC2:
        return 2 if two == 0xBB else 0
    if at + 2 >= end:
        return 0
    three = get(data, at + 2)
    if one == 0xE2:
        return 3 if two == 0x80 and (three == 0x99 or three == 0x9D) else 0
    if one == 0xE3:
        return 3 if two == 0x80 and (three == 0x8D or three == 0x8F) else 0
    return 3 if one == 0xEF and two == 0xBC and three == 0x89 else 0


@helper
def _sentence_end(data: Any, start: int, end: int, ending: Any) -> int:
    """Return where the sentence that begins at `start`, within a line, is over."""
    word = at = start
    while at < end:
        byte = get(data, at)
        if byte > 0x20 and byte < 0x7F:
            at += 1
            continue
        white = white_at(data, at, end)
        if white:
            last = get(data, at - 1)
            # Letters and digits end no sentence.
            may_end = last < 0x30 or last > 0x7A or last == 0x3F or last == 0x5D
            if at > word and may_end and ends_sentence(data, word, at, ending):
                return at
            at += white
            word = at
            continue
        mark = _full_stop_at(data, at, end)
        if mark:
            while mark:
                at += mark
                mark = _full_stop_at(data, at, end)
            mark = _closer_at(data, at, end)
            while mark:
                at += mark
                mark = _closer_at(data, at, end)
            return at
        at += 1
    return end


@helper
def _next_feed(data: Any, at: int, end: int) -> Any:
    """Return the position of the next line feed; `end` if there is none."""
    while at < end:
        mask = mask_equal(data, at, np.uint8(10))
        if mask != NONE:
            return min(at + trailing_zeros(mask), end)
        at += 64
    return end


@helper
def _skip_white(data: Any, start: int, end: int) -> int:
    """Return the position of the first character that is no white space; `end` if there is none."""
    white = white_at(data, start, end)
    while white:
        start += white
        white = white_at(data, start, end)
    return start


@helper
def _skip_white_back(data: Any, start: int, end: int) -> int:
    """Return the position after the last character that is no white space; `start` if there is none."""
    white = white_before(data, start, end)
    while white:
        end -= white
        white = white_before(data, start, end)
    return end


@kernel(types.int64(BYTES, INT64, INT64, types.int64, INT64, OUT, _HASHES))
def _find(data: Any, starts: Any, ends: Any, kind: int, ending: Any, found: Any, hashes: Any) -> int:
    """Fill the rows of passages and return their number; `_FULL` if there is no space for all of them."""
    count = 0
    for row in range(len(starts)):
        line, text_end = get(starts, row), get(ends, row)
        tile = begin = stop = line  # a paragraph that is open reaches from `begin` to `stop`
        while line < text_end:
            feed = _next_feed(data, line, text_end)
            start = _skip_white(data, line, feed)
            end = _skip_white_back(data, start, feed)
            if kind == PARAGRAPH:
                if start < end and begin == stop:
                    tile, begin = line, start
                if start < end:
                    stop = end
                if begin < stop and (start == end or feed == text_end):
                    count = _note(data, found, hashes, count, row, tile, begin, stop)
                    begin = stop
            elif kind == LINE:
                if start < end:
                    count = _note(data, found, hashes, count, row, line, start, end)
            else:
                tile = line
                while start < end and count != _FULL:
                    done = _sentence_end(data, start, end, ending)
                    count = _note(data, found, hashes, count, row, tile, start, done)
                    tile = start = _skip_white(data, done, end)
            if count == _FULL:
                return _FULL
            line = feed + 1
        if begin < stop:  # the text ends with a line feed
            count = _note(data, found, hashes, count, row, tile, begin, stop)
            if count == _FULL:
                return _FULL
    return count


@kernel(types.int64(types.Array(types.int64, 2, "C"), _HASHES, types.int64, types.int64, OUT, _HASHES))
def _windows(found: Any, hashes: Any, span: int, least: int, windows: Any, keys: Any) -> int:
    """Fill the first passage and the key of each window, and return the number of windows."""
    count = 0
    for first in range(len(found) - span + 1):
        if found[first, 0] != found[first + span - 1, 0]:
            continue
        characters = np.int64(0)
        one, other = hashes[first, 0], hashes[first, 1]
        for passage in range(first, first + span):
            characters += found[passage, 4]
            if passage > first:
                one = (one ^ (one >> _SHIFT_32)) * _FACTOR + hashes[passage, 0]
                other = (other ^ (other >> _SHIFT_29)) * _OTHER_FACTOR + hashes[passage, 1]
        if characters >= least:
            windows[count, 0] = first
            keys[count, 0] = one
            keys[count, 1] = other
            count += 1
    return count


@kernel(types.int64(INT64, INT64, types.Array(types.int64, 2, "C"), _FLAGS, OUT))
def _cut(starts: Any, ends: Any, found: Any, removed: Any, cuts: Any) -> int:
    """Fill rows of text, start and end, and return their number."""
    count = 0
    passage = 0
    while passage < len(found):
        if not removed[passage]:
            passage += 1
            continue
        row, first = found[passage, 0], passage
        while passage < len(found) and removed[passage] and found[passage, 0] == row:
            passage += 1
        goes_to_end = passage == len(found) or found[passage, 0] != row
        if not goes_to_end:
            start, end = found[first, 1], found[passage, 1]
        elif first > 0 and found[first - 1, 0] == row:
            start, end = found[first - 1, 3], found[passage - 1, 3]
        else:
            start, end = get(starts, row), get(ends, row)
        cuts[count, 0], cuts[count, 1], cuts[count, 2] = row, start, end
        count += 1
    return count
