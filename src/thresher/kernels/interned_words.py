# SPDX-License-Identifier: Apache-2.0
"""Words as numbers: the same word has the same number, and numbers follow the order of first sight.

A word of up to seven bytes is compared as one number that holds its bytes and its length. A longer word is found by its
hash and compared byte by byte, so that two words never share a number by chance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.documents import Document, tuple_type
from thresher.kernels.hash_tables import FACTOR, HALF, LOWER, bits_for, new_epoch
from thresher.kernels.intrinsics import ALL, get, helper, load8, popcount, put, same_bytes
from thresher.kernels.signatures import types

_SHORT = 7
"""Words of so many bytes fit into a key together with their length."""
_LENGTH_PLACE = np.uint64(56)
_LONG = np.uint64(1 << 63)
_EVERY_BYTE = np.uint64(0x0101010101010101)
_SIX, _SEVEN = np.uint64(6), np.uint64(7)


class WordRoom(NamedTuple):
    """Where words are numbered; as long as the longest document needs."""

    table: npt.NDArray[np.uint64]
    """Slots of two: a key, and its mark and number."""
    epoch: npt.NDArray[np.uint64]
    """One element: the epoch of `table`."""
    numbers: npt.NDArray[np.int32]
    """The number of each word."""
    hashes: npt.NDArray[np.uint64]
    """The hash of each word, as `word_hash` has it."""
    characters: npt.NDArray[np.int32]
    """The code points in the words before each word; one element more than words."""
    times: npt.NDArray[np.int32]
    """By number: how often it comes."""
    seen: npt.NDArray[np.int32]
    """By number: where it comes first."""


WORD_ROOM = tuple_type(
    (
        types.uint64[::1],
        types.uint64[::1],
        types.int32[::1],
        types.uint64[::1],
        types.int32[::1],
        types.int32[::1],
        types.int32[::1],
    ),
    WordRoom,
)


@helper
def continuations(chunk: Any) -> Any:
    """How many of eight bytes continue a character."""
    return popcount((chunk >> _SEVEN) & ~(chunk >> _SIX) & _EVERY_BYTE)


@helper
def _long_word(data: Any, place: int, length: int) -> Any:
    """The hash of a word, and how many of its bytes continue a character."""
    value = np.uint64(length)
    continuing = 0
    end = place + length
    while place < end:
        chunk = load8(data, place)
        if end - place < 8:
            chunk &= ALL >> np.uint64(64 - 8 * (end - place))
        value = (value ^ chunk) * FACTOR
        value ^= value >> HALF
        continuing += continuations(chunk)
        place += 8
    return value, continuing


@helper
def number_words(document: Document, room: WordRoom) -> int:
    """Fill the room with what is known about the words of a document; how many different ones there are."""
    data, edges, table = document.data, document.edges, room.table
    bits = bits_for(document.words * 5 // 8 + 1)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(room.epoch, table)
    number: Any = 0
    different = 0
    characters = 0
    for word in range(document.words):
        edge = 2 * (document.first + word)
        place = document.start + get(edges, edge)
        length = get(edges, edge + 1) - get(edges, edge)
        put(room.characters, word, characters)
        if length <= _SHORT:
            key = load8(data, place) & (ALL >> np.uint64(64 - 8 * length))
            value = (np.uint64(length) ^ key) * FACTOR
            value ^= value >> HALF
            characters += length - continuations(key)
            key |= np.uint64(length) << _LENGTH_PLACE
        else:
            value, continuing = _long_word(data, place, length)
            characters += length - continuing
            key = value | _LONG
        slot = value >> shift
        while True:
            held = table[slot + slot + np.uint64(1)]
            if (held ^ mark) > LOWER:
                number = different
                table[slot + slot] = key
                table[slot + slot + np.uint64(1)] = mark | np.uint64(different)
                put(room.times, number, 1)
                put(room.seen, number, word)
                different += 1
                break
            if table[slot + slot] == key:
                number = np.int64(held & LOWER)
                if length <= _SHORT or _same_word(document, get(room.seen, number), place, length):
                    put(room.times, number, get(room.times, number) + 1)
                    break
            slot = (slot + np.uint64(1)) & last_slot
        put(room.numbers, word, number)
        put(room.hashes, word, value)
    put(room.characters, document.words, characters)
    return different


@helper
def _same_word(document: Document, word: int, place: int, length: int) -> bool:
    """Whether a word of the document is the one at `place`."""
    edge = 2 * (document.first + word)
    start = get(document.edges, edge)
    if get(document.edges, edge + 1) - start != length:
        return False
    return same_bytes(document.data, document.start + start, place, length)
