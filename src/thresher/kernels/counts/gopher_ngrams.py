# SPDX-License-Identifier: Apache-2.0
"""Count characters in repeated n-grams, where an n-gram is its words without anything between them, as in datatrove's
Gopher rules: "in to" and "into" followed by equal letters are equal, if they have equally many words.

So an n-gram is a range of the text without white space that begins at a word. Two can only be equal if their first
bytes are: the first 16 are looked up for every word, the first 32 only where the first 16 are repeated. The few
remaining positions are looked up for every n, by a hash of all bytes that is verified byte by byte.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    ALL,
    INT64,
    OUT,
    get,
    hash_bytes,
    helper,
    kernel,
    load8,
    put,
    put8,
    same_bytes,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.hash_tables import FACTOR, HALF, LOWER, OTHER_FACTOR, bits_for, new_epoch, slots_for
from thresher.kernels.bytes.interned_words import Document, continuations
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import PADDING, Count, Rows, SharedCounts

_MOST_KEPT_WORDS = 1 << 18
"""Buffers for documents of more words are not kept after the batch."""


class JoinedBuffers(NamedTuple):
    """Buffers for looking up joined words."""

    table: npt.NDArray[np.uint64]
    """Slots: the mark of an epoch and the number of a word."""
    epoch: npt.NDArray[np.uint64]
    """One element: the epoch of `table`."""
    joined: npt.NDArray[np.uint8]
    """The words of the document, joined."""
    starts: npt.NDArray[np.int32]
    """Start of each word in `joined`, and the end of the last one."""
    levels: npt.NDArray[np.uint8]
    """By word: the length that is repeated from there on: 0 less than 16 bytes, 1 at least 16, 2 at least 32."""
    positions: npt.NDArray[np.int32]
    """The words at which an n-gram begins that may be repeated, in order."""


JOINED_BUFFERS = types.NamedTuple(
    (
        types.uint64[::1],
        types.uint64[::1],
        types.uint8[::1],
        types.int32[::1],
        types.uint8[::1],
        types.int32[::1],
    ),
    JoinedBuffers,
)


@helper
def _join(document: Document, buffers: JoinedBuffers) -> None:
    """Copy the words one after the other."""
    data, joined = document.data, buffers.joined
    end = 0
    for word in range(document.words):
        edge = 2 * (document.first + word)
        start = get(document.edges, edge)
        length = get(document.edges, edge + 1) - start
        put(buffers.starts, word, end)
        done = 0
        while done < length:
            put8(joined, end + done, load8(data, document.start + start + done))
            done += 8
        end += length
    put(buffers.starts, document.words, end)
    for done in range(0, 64, 8):
        put8(joined, end + done, np.uint64(0))


@helper
def _find_again(level: int, words: int, buffers: JoinedBuffers) -> int:
    """Raise words to `level` if the first `16 * level` bytes from there are repeated; return the number of words
    checked."""
    joined, table = buffers.joined, buffers.table
    looked_at = 0
    for word in range(words):
        put(buffers.positions, looked_at, word)
        looked_at += get(buffers.levels, word) == level - 1
    bits = bits_for(looked_at)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(buffers.epoch, table)
    width = 16 * level
    for index in range(looked_at):
        word = get(buffers.positions, index)
        start = get(buffers.starts, word)
        value = load8(joined, start) * FACTOR
        value = (value ^ (value >> HALF) ^ load8(joined, start + 8)) * OTHER_FACTOR
        if level > 1:
            value = (value ^ (value >> HALF) ^ load8(joined, start + 16)) * FACTOR
            value = (value ^ (value >> HALF) ^ load8(joined, start + 24)) * OTHER_FACTOR
        slot = value >> shift
        while True:
            held = table[slot]
            if (held ^ mark) > LOWER:
                table[slot] = mark | np.uint64(word)
                break
            earlier: Any = np.int64(held & LOWER)
            if same_bytes(joined, get(buffers.starts, earlier), start, width):
                put(buffers.levels, earlier, np.uint8(level))
                put(buffers.levels, word, np.uint8(level))
                break
            slot = (slot + np.uint64(1)) & last_slot
    return looked_at


@helper
def _list_positions(shortest: int, words: int, buffers: JoinedBuffers) -> int:
    """List the positions where n-grams of at least `shortest` words may be repeated; return how many there are."""
    listed = 0
    for word in range(words - shortest + 1):
        put(buffers.positions, listed, word)
        short = get(buffers.starts, word + shortest) - get(buffers.starts, word) < 16
        listed += (get(buffers.levels, word) > 0) | short
    return listed


@helper
def _repeated_characters(n: int, listed: int, words: int, buffers: JoinedBuffers) -> int:
    """Return the number of code points in n-grams that occurred before. After each, the next `n - 1` are skipped."""
    joined, table = buffers.joined, buffers.table
    bits = bits_for(listed)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(buffers.epoch, table)
    characters = 0
    next_word: Any = 0
    for index in range(listed):
        word = get(buffers.positions, index)
        if word < next_word:
            continue
        if word + n > words:
            break
        start = get(buffers.starts, word)
        length = get(buffers.starts, word + n) - start
        level = get(buffers.levels, word)
        if (length >= 16 and level < 1) or (length >= 32 and level < 2):
            continue
        slot = hash_bytes(joined, start, start + length) >> shift
        while True:
            held = table[slot]
            if (held ^ mark) > LOWER:
                table[slot] = mark | np.uint64(word)
                break
            earlier: Any = np.int64(held & LOWER)
            position = get(buffers.starts, earlier)
            if get(buffers.starts, earlier + n) - position == length and same_bytes(joined, position, start, length):
                characters += _code_points(joined, start, length)
                next_word = word + n
                break
            slot = (slot + np.uint64(1)) & last_slot
    return characters


@helper
def _code_points(joined: Any, start: int, length: int) -> int:
    found = length
    done = 0
    while done < length:
        chunk = load8(joined, start + done)
        if length - done < 8:
            chunk &= ALL >> np.uint64(64 - 8 * (length - done))
        found -= continuations(chunk)
        done += 8
    return found


@kernel(types.void(BATCH, INT64, JOINED_BUFFERS, OUT))
def _count_joined(batch: Batch, sizes: Any, buffers: JoinedBuffers, out: Any) -> None:
    """Fill a column of `out` for each of `sizes`, which must be ascending."""
    for index in range(len(batch.rows)):
        row = batch.rows[index]
        words, start = batch.words[row], batch.starts[row]
        if words <= sizes[0]:
            continue
        document = Document(batch.data, start, batch.ends[row] - start, batch.edges, batch.first_word[row], words)
        _join(document, buffers)
        buffers.levels[:words] = 0
        _find_again(1, words, buffers)
        _find_again(2, words, buffers)
        listed = _list_positions(sizes[0], words, buffers)
        if listed:
            for column in range(len(sizes)):
                if sizes[column] < words:
                    out[index, column] = _repeated_characters(sizes[column], listed, words, buffers)


class _GopherBuffers(threading.local):
    """The buffers of a thread, kept from batch to batch."""

    buffers: JoinedBuffers | None = None


_KEPT = _GopherBuffers()


def _buffers_for(words: int, length: int) -> JoinedBuffers:
    """Return buffers for documents of so many words and bytes."""
    buffers = _KEPT.buffers
    if buffers is None or len(buffers.positions) < words or len(buffers.joined) < length:
        size = 1 << max(words - 1, 1023).bit_length()
        buffers = JoinedBuffers(
            table=np.zeros(slots_for(size), dtype=np.uint64),
            epoch=np.zeros(1, dtype=np.uint64),
            joined=np.empty(1 << length.bit_length(), dtype=np.uint8),
            starts=np.empty(size + 1, dtype=np.int32),
            levels=np.empty(size, dtype=np.uint8),
            positions=np.empty(size, dtype=np.int32),
        )
    if len(buffers.positions) <= _MOST_KEPT_WORDS and len(buffers.joined) <= 16 * _MOST_KEPT_WORDS:
        _KEPT.buffers = buffers
    return buffers


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, npt.NDArray[np.int64]]:
    """Return `gopher_duplicate_characters` of n-grams of any length; 0 if a text has fewer than n words."""
    ordered = sorted(wanted, key=lambda count: count[1])
    out = np.zeros((len(rows), len(ordered)), dtype=np.int64)
    if len(rows) and ordered:
        batch = batch_of(work, rows)
        length = int((batch.ends[rows] - batch.starts[rows]).max())
        buffers = _buffers_for(int(batch.words[rows].max()), length + 2 * PADDING)
        _count_joined(batch, np.array([n for _, n in ordered], dtype=np.int64), buffers, out)
    return {count: out[:, column] for column, count in enumerate(ordered)}
