# SPDX-License-Identifier: Apache-2.0
"""Number the words of a document: equal words get equal numbers, in the order of first occurrence.

A word of up to seven bytes is compared as one number that holds its bytes and its length. A longer word is found by its
hash and compared byte by byte, so that two words never share a number by chance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import ALL, get, helper, load8, popcount, put, same_bytes
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.hash_tables import FACTOR, HALF, LOWER, bits_for, new_epoch

_SHORT = 7
"""Words of up to this number of bytes fit into a key together with their length."""
_LENGTH_SHIFT = np.uint64(56)
_LONG = np.uint64(1 << 63)
_EVERY_BYTE = np.uint64(0x0101010101010101)
_SIX, _SEVEN = np.uint64(6), np.uint64(7)


class Document(NamedTuple):
    """The words of one text."""

    data: npt.NDArray[np.uint8]
    """The bytes of all texts."""
    start: int
    """Start of the text."""
    length: int
    """Number of its bytes."""
    edges: npt.NDArray[np.int32]
    """Start and end of each word, relative to its text."""
    first: int
    """The number of its first word among all."""
    words: int
    """Number of its words."""


class WordBuffers(NamedTuple):
    """Buffers for numbering words; long enough for the longest document."""

    table: npt.NDArray[np.uint64]
    """Slots of two elements: a key, and a mark with a number."""
    epoch: npt.NDArray[np.uint64]
    """One element: the epoch of `table`."""
    numbers: npt.NDArray[np.int32]
    """The number of each word."""
    hashes: npt.NDArray[np.uint64]
    """The hash of each word, as `word_hash` has it."""
    characters: npt.NDArray[np.int32]
    """The code points in the words before each word; one element more than words."""
    times: npt.NDArray[np.int32]
    """By number: how often the word occurs."""
    seen: npt.NDArray[np.int32]
    """By number: its first occurrence."""


WORD_BUFFERS = types.NamedTuple(
    (
        types.uint64[::1],
        types.uint64[::1],
        types.int32[::1],
        types.uint64[::1],
        types.int32[::1],
        types.int32[::1],
        types.int32[::1],
    ),
    WordBuffers,
)


@helper
def continuations(chunk: Any) -> Any:
    """Return the number of UTF-8 continuation bytes among eight bytes."""
    return popcount((chunk >> _SEVEN) & ~(chunk >> _SIX) & _EVERY_BYTE)


@helper
def _long_word(data: Any, position: int, length: int) -> Any:
    """Return the hash of a word and the number of its continuation bytes."""
    value = np.uint64(length)
    continuing = 0
    end = position + length
    while position < end:
        chunk = load8(data, position)
        if end - position < 8:
            chunk &= ALL >> np.uint64(64 - 8 * (end - position))
        value = (value ^ chunk) * FACTOR
        value ^= value >> HALF
        continuing += continuations(chunk)
        position += 8
    return value, continuing


@helper
def number_words(document: Document, buffers: WordBuffers) -> int:
    """Fill the buffers for the words of a document; return the number of distinct words."""
    data, edges, table = document.data, document.edges, buffers.table
    bits = bits_for(document.words * 5 // 8 + 1)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(buffers.epoch, table)
    number: Any = 0
    different = 0
    characters = 0
    for word in range(document.words):
        edge = 2 * (document.first + word)
        position = document.start + get(edges, edge)
        length = get(edges, edge + 1) - get(edges, edge)
        put(buffers.characters, word, characters)
        if length <= _SHORT:
            key = load8(data, position) & (ALL >> np.uint64(64 - 8 * length))
            value = (np.uint64(length) ^ key) * FACTOR
            value ^= value >> HALF
            characters += length - continuations(key)
            key |= np.uint64(length) << _LENGTH_SHIFT
        else:
            value, continuing = _long_word(data, position, length)
            characters += length - continuing
            key = value | _LONG
        slot = value >> shift
        while True:
            held = table[slot + slot + np.uint64(1)]
            if (held ^ mark) > LOWER:
                number = different
                table[slot + slot] = key
                table[slot + slot + np.uint64(1)] = mark | np.uint64(different)
                put(buffers.times, number, 1)
                put(buffers.seen, number, word)
                different += 1
                break
            if table[slot + slot] == key:
                number = np.int64(held & LOWER)
                if length <= _SHORT or _same_word(document, get(buffers.seen, number), position, length):
                    put(buffers.times, number, get(buffers.times, number) + 1)
                    break
            slot = (slot + np.uint64(1)) & last_slot
        put(buffers.numbers, word, number)
        put(buffers.hashes, word, value)
    put(buffers.characters, document.words, characters)
    return different


@helper
def _same_word(document: Document, word: int, position: int, length: int) -> bool:
    """Return True if a word of the document is the one at `position`."""
    edge = 2 * (document.first + word)
    start = get(document.edges, edge)
    if get(document.edges, edge + 1) - start != length:
        return False
    return same_bytes(document.data, document.start + start, position, length)
