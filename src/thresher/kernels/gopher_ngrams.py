# SPDX-License-Identifier: Apache-2.0
"""Characters in n-grams that come again, n-grams being words without anything between them, as the Gopher rules of
datatrove have it: "in to" and "into" followed by equal letters are the same, if they have equally many words.

So an n-gram is a piece of the text without its white space, from the start of a word on. Two can only be the same where
the first bytes are: the first 16 are looked up for every word, the first 32 only where the first 16 come again. The
few places that are left are looked up for every n, by a hash of all bytes that is verified byte by byte.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import PADDING, Count, Rows, Work
from thresher.kernels.documents import BATCH, Batch, Document, batch_of, tuple_type
from thresher.kernels.hash_tables import FACTOR, HALF, LOWER, OTHER_FACTOR, bits_for, new_epoch, slots_for
from thresher.kernels.interned_words import continuations
from thresher.kernels.intrinsics import (
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
from thresher.kernels.places import places
from thresher.kernels.signatures import types

_LARGEST_KEPT_WORDS = 1 << 18
"""Room for documents of more words is not kept after the batch."""


class JoinedRoom(NamedTuple):
    """Where joined words are looked up."""

    table: npt.NDArray[np.uint64]
    """Slots: the mark of an epoch and the number of a word."""
    epoch: npt.NDArray[np.uint64]
    """One element: the epoch of `table`."""
    joined: npt.NDArray[np.uint8]
    """The words of the document without anything between them."""
    starts: npt.NDArray[np.int32]
    """Where each word begins there, and where the last one ends."""
    levels: npt.NDArray[np.uint8]
    """By word: how much of what begins there comes again: 0 less than 16 bytes, 1 at least 16, 2 at least 32."""
    places: npt.NDArray[np.int32]
    """The words at which an n-gram begins that may come again, in order."""


JOINED_ROOM = tuple_type(
    (
        types.uint64[::1],
        types.uint64[::1],
        types.uint8[::1],
        types.int32[::1],
        types.uint8[::1],
        types.int32[::1],
    ),
    JoinedRoom,
)


@helper
def _join(document: Document, room: JoinedRoom) -> None:
    """Copy the words one after the other."""
    data, joined = document.data, room.joined
    end = 0
    for word in range(document.words):
        edge = 2 * (document.first + word)
        start = get(document.edges, edge)
        length = get(document.edges, edge + 1) - start
        put(room.starts, word, end)
        done = 0
        while done < length:
            put8(joined, end + done, load8(data, document.start + start + done))
            done += 8
        end += length
    put(room.starts, document.words, end)
    for done in range(0, 64, 8):
        put8(joined, end + done, np.uint64(0))


@helper
def _find_again(level: int, words: int, room: JoinedRoom) -> int:
    """Raise words to `level` where the first `16 * level` bytes from there come again; how many were looked at."""
    joined, table = room.joined, room.table
    looked_at = 0
    for word in range(words):
        put(room.places, looked_at, word)
        looked_at += get(room.levels, word) == level - 1
    bits = bits_for(looked_at)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(room.epoch, table)
    width = 16 * level
    for index in range(looked_at):
        word = get(room.places, index)
        start = get(room.starts, word)
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
            if same_bytes(joined, get(room.starts, earlier), start, width):
                put(room.levels, earlier, np.uint8(level))
                put(room.levels, word, np.uint8(level))
                break
            slot = (slot + np.uint64(1)) & last_slot
    return looked_at


@helper
def _list_places(shortest: int, words: int, room: JoinedRoom) -> int:
    """List the places where n-grams of at least `shortest` words may come again; how many there are."""
    listed = 0
    for word in range(words - shortest + 1):
        put(room.places, listed, word)
        short = get(room.starts, word + shortest) - get(room.starts, word) < 16
        listed += (get(room.levels, word) > 0) | short
    return listed


@helper
def _repeated_characters(n: int, listed: int, words: int, room: JoinedRoom) -> int:
    """The code points of n-grams that have come before. After each the next `n - 1` are not looked at."""
    joined, table = room.joined, room.table
    bits = bits_for(listed)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(room.epoch, table)
    characters = 0
    next_word: Any = 0
    for index in range(listed):
        word = get(room.places, index)
        if word < next_word:
            continue
        if word + n > words:
            break
        start = get(room.starts, word)
        length = get(room.starts, word + n) - start
        level = get(room.levels, word)
        if (length >= 16 and level < 1) or (length >= 32 and level < 2):
            continue
        slot = hash_bytes(joined, start, start + length) >> shift
        while True:
            held = table[slot]
            if (held ^ mark) > LOWER:
                table[slot] = mark | np.uint64(word)
                break
            earlier: Any = np.int64(held & LOWER)
            place = get(room.starts, earlier)
            if get(room.starts, earlier + n) - place == length and same_bytes(joined, place, start, length):
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


@kernel(types.void(BATCH, INT64, JOINED_ROOM, OUT))
def _count_joined(batch: Batch, sizes: Any, room: JoinedRoom, out: Any) -> None:
    """A column for each of `sizes`, which rise."""
    for index in range(len(batch.rows)):
        row = batch.rows[index]
        words, start = batch.words[row], batch.starts[row]
        if words <= sizes[0]:
            continue
        document = Document(batch.data, start, batch.ends[row] - start, batch.edges, batch.first_word[row], words)
        _join(document, room)
        room.levels[:words] = 0
        _find_again(1, words, room)
        _find_again(2, words, room)
        listed = _list_places(sizes[0], words, room)
        if listed:
            for column in range(len(sizes)):
                if sizes[column] < words:
                    out[index, column] = _repeated_characters(sizes[column], listed, words, room)


class _Rooms(threading.local):
    """The room of a thread, kept from batch to batch."""

    room: JoinedRoom | None = None


_ROOMS = _Rooms()


def _room_for(words: int, length: int) -> JoinedRoom:
    """Room for documents of so many words and bytes."""
    room = _ROOMS.room
    if room is None or len(room.places) < words or len(room.joined) < length:
        size = 1 << max(words - 1, 1023).bit_length()
        room = JoinedRoom(
            table=np.zeros(slots_for(size), dtype=np.uint64),
            epoch=np.zeros(1, dtype=np.uint64),
            joined=np.empty(1 << length.bit_length(), dtype=np.uint8),
            starts=np.empty(size + 1, dtype=np.int32),
            levels=np.empty(size, dtype=np.uint8),
            places=np.empty(size, dtype=np.int32),
        )
    if len(room.places) <= _LARGEST_KEPT_WORDS and len(room.joined) <= 16 * _LARGEST_KEPT_WORDS:
        _ROOMS.room = room
    return room


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, npt.NDArray[np.int64]]:
    """`gopher_duplicate_characters` of n-grams of any length; 0 where a text has fewer than n words."""
    ordered = sorted(wanted, key=lambda count: count[1])
    out = np.zeros((len(rows), len(ordered)), dtype=np.int64)
    if len(rows) and ordered:
        texts, found = work.texts, places(work, rows)
        length = int((texts.ends[rows] - texts.starts[rows]).max())
        room = _room_for(int(found.words[rows].max()), length + 2 * PADDING)
        _count_joined(batch_of(work, found, rows), np.array([n for _, n in ordered], dtype=np.int64), room, out)
    return {count: out[:, column] for column, count in enumerate(ordered)}
