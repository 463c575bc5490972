# SPDX-License-Identifier: Apache-2.0
"""Count characters in the most frequent and in the repeated n-grams.

The n-grams of a document are told apart by refinement: an n-gram is identified by the number of its (n - 1)-gram and
the number of one more word. So no n-gram is hashed from its letters, and different n-grams are never confused. An
n-gram can only be repeated if the (n - 1)-grams at its first and at its second word are: the list of remaining
positions gets shorter with every n, and for most documents is soon empty.

Among the most frequent n-grams, `top_ngram_characters` takes the one with the smallest `phrase_hash`, and
`gopher_top_characters` the first one.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    ALL,
    NONE,
    ONE,
    OUT,
    get,
    helper,
    kernel,
    load8,
    low_bits,
    mask_equal,
    put,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.hash_tables import FACTOR, HALF, LOWER, OTHER_FACTOR, bits_for, new_epoch, slots_for
from thresher.kernels.bytes.interned_words import WORD_BUFFERS, Document, WordBuffers, number_words
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import PADDING, Count, Rows, SharedCounts

_TOP, _DUPLICATE, _GOPHER_TOP = 0, 1, 2
_COLUMNS = {
    "top_ngram_characters": _TOP,
    "duplicate_ngram_characters": _DUPLICATE,
    "gopher_top_characters": _GOPHER_TOP,
}
_SPACE = np.uint8(32)
_MOST_KEPT_WORDS = 1 << 18
"""Buffers for documents of more words are not kept after the batch."""


class NgramBuffers(NamedTuple):
    """Buffers for numbering n-grams. `times` and `seen` of the word buffers are used for them too."""

    positions: npt.NDArray[np.int32]
    """The words at which an n-gram begins that may be repeated, in order."""
    numbers: npt.NDArray[np.int32]
    """The numbers of these n-grams; before they are numbered, of the (n - 1)-grams."""
    phrase: npt.NDArray[np.uint8]
    """The bytes of one n-gram."""


NGRAM_BUFFERS = types.NamedTuple((types.int32[::1], types.int32[::1], types.uint8[::1]), NgramBuffers)


@helper
def _repeated_words(document: Document, buffers: WordBuffers, left: NgramBuffers) -> int:
    """List the positions where two consecutive words are both repeated; return how many there are."""
    found = 0
    number = get(buffers.numbers, 0)
    again = get(buffers.times, number) > 1
    for position in range(document.words - 1):
        following = get(buffers.numbers, position + 1)
        following_again = get(buffers.times, following) > 1
        put(left.positions, found, position)
        put(left.numbers, found, number)
        found += again & following_again
        number, again = following, following_again
    return found


@helper
def _repeated_pairs(listed: int, buffers: WordBuffers, left: NgramBuffers) -> int:
    """Shorten the list to the positions where an n-gram and the one a word later are both repeated; return its
    length."""
    if listed == 0:
        return 0
    found = 0
    position, number = get(left.positions, 0), get(left.numbers, 0)
    again = get(buffers.times, number) > 1
    for index in range(1, listed):
        following, following_number = get(left.positions, index), get(left.numbers, index)
        following_again = get(buffers.times, following_number) > 1
        put(left.positions, found, position)
        put(left.numbers, found, number)
        found += again & following_again & (following == position + 1)
        position, number, again = following, following_number, following_again
    return found


@helper
def _number_ngrams(n: int, listed: int, buffers: WordBuffers, left: NgramBuffers) -> int:
    """Number the n-grams of the list; return the number of distinct ones."""
    table = buffers.table
    bits = bits_for(listed)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(buffers.epoch, table)
    number: Any = 0
    different = 0
    for index in range(listed):
        position = get(left.positions, index)
        key = np.uint64(get(left.numbers, index)) << HALF | np.uint64(get(buffers.numbers, position + n - 1))
        slot = (key * FACTOR) >> shift
        while True:
            held = table[slot + slot + np.uint64(1)]
            if (held ^ mark) > LOWER:
                number = different
                table[slot + slot] = key
                table[slot + slot + np.uint64(1)] = mark | np.uint64(different)
                put(buffers.times, number, 1)
                put(buffers.seen, number, position)
                different += 1
                break
            if table[slot + slot] == key:
                number = np.int64(held & LOWER)
                put(buffers.times, number, get(buffers.times, number) + 1)
                break
            slot = (slot + np.uint64(1)) & last_slot
        put(left.numbers, index, number)
    return different


@helper
def _most_times(different: int, buffers: WordBuffers) -> Any:
    """Return how often the most frequent n-grams occur."""
    most = np.int32(1)
    for number in range(different):
        most = max(most, get(buffers.times, number))
    return most


@helper
def _first_position(different: int, most: int, buffers: WordBuffers) -> Any:
    """Return the position of the first n-gram that occurs `most` times."""
    if most == 1:
        return 0
    for number in range(different):
        if get(buffers.times, number) == most:
            return get(buffers.seen, number)
    return 0


@helper
def _chosen_position(document: Document, n: int, different: int, most: int, buffers: WordBuffers) -> Any:
    """Return the first position of the n-gram with the smallest hash among those that occur `most` times."""
    chosen = -1
    smallest = ALL
    if most > 1:
        for number in range(different):
            if get(buffers.times, number) == most:
                position = get(buffers.seen, number)
                value = np.uint64(0)
                for word in range(position, position + n):
                    value = value * OTHER_FACTOR + get(buffers.hashes, word)
                if value < smallest or chosen < 0:
                    chosen, smallest = position, value
        return chosen
    value = np.uint64(0)
    leaving = np.uint64(1)
    for word in range(n):
        value = value * OTHER_FACTOR + get(buffers.hashes, word)
        leaving *= OTHER_FACTOR
    chosen, smallest = 0, value
    for position in range(1, document.words - n + 1):
        value = value * OTHER_FACTOR + (
            get(buffers.hashes, position + n - 1) - leaving * get(buffers.hashes, position - 1)
        )
        if value < smallest:
            chosen, smallest = position, value
    return chosen


@helper
def _characters(position: int, n: int, buffers: WordBuffers) -> Any:
    """Return the number of code points of an n-gram, spaces included."""
    return get(buffers.characters, position + n) - get(buffers.characters, position) + n - 1


@helper
def _write_phrase(document: Document, word: int, n: int, phrase: Any) -> Any:
    """Write `n` words, separated by single spaces, to `phrase`; return its length and the position of its first space.

    Without a space that is the position of the last byte.
    """
    length = 0
    space = -1
    for number in range(document.first + word, document.first + word + n):
        if length:
            put(phrase, length, _SPACE)
            if space < 0:
                space = length
            length += 1
        for position in range(get(document.edges, 2 * number), get(document.edges, 2 * number + 1)):
            put(phrase, length, get(document.data, document.start + position))
            length += 1
    return length, (space if space >= 0 else length - 1)


@helper
def _count_phrase(document: Document, phrase: Any, length: int, space: int) -> int:
    """Return how often the phrase occurs. Four of its bytes are compared first, at 64 positions at once."""
    data = document.data
    after = min(space + 1, length - 1)
    first, second = get(phrase, 0), get(phrase, space)
    third, fourth = get(phrase, after), get(phrase, length - 1)
    found = 0
    free = document.start
    beyond = document.start + document.length - length + 1
    for block in range(document.start, beyond, 64):
        mask = mask_equal(data, block, first) & mask_equal(data, block + length - 1, fourth)
        mask &= mask_equal(data, block + space, second) & mask_equal(data, block + after, third)
        if beyond - block < 64:
            mask &= low_bits(beyond - block)
        while mask != NONE:
            position = block + trailing_zeros(mask)
            if position >= free and _is_phrase(data, position, phrase, length):
                found += 1
                free = position + length
            mask &= mask - ONE
    return found


@helper
def _is_phrase(data: Any, position: int, phrase: Any, length: int) -> bool:
    done = 0
    while length - done >= 8:
        if load8(data, position + done) != load8(phrase, done):
            return False
        done += 8
    left = low_bits(8 * (length - done))
    return bool((load8(data, position + done) & left) == (load8(phrase, done) & left))


@helper
def _removed_characters(document: Document, position: int, n: int, buffers: WordBuffers, phrase: Any) -> Any:
    """Return the number of code points that removing every occurrence of an n-gram takes out of the text."""
    length, space = _write_phrase(document, position, n, phrase)
    return _count_phrase(document, phrase, length, space) * _characters(position, n, buffers)


@helper
def _duplicate_characters(n: int, listed: int, buffers: WordBuffers, left: NgramBuffers) -> int:
    """Return the number of code points in n-grams that occurred before, words of overlapping ones counted once."""
    total = 0
    last: Any = -n
    for index in range(listed):
        position = get(left.positions, index)
        if get(buffers.seen, get(left.numbers, index)) != position:
            overlap = max(n - (position - last), 0)
            words = get(buffers.characters, position + n) - get(buffers.characters, position + overlap)
            total += words + min(n - overlap, n - 1)
            last = position
    return total


@helper
def _count_document(document: Document, columns: Any, buffers: WordBuffers, left: NgramBuffers, out: Any) -> None:
    different = number_words(document, buffers)
    listed = document.words
    for n in range(1, min(len(columns), document.words + 1)):
        if n == 2:
            listed = _repeated_words(document, buffers, left)
        elif n > 2:
            listed = _repeated_pairs(listed, buffers, left)
        elif columns[1, _DUPLICATE] >= 0:
            for position in range(listed):
                put(left.positions, position, position)
                put(left.numbers, position, get(buffers.numbers, position))
        if n > 1:
            different = _number_ngrams(n, listed, buffers, left) if listed else 0
        top, duplicate, gopher_top = columns[n, _TOP], columns[n, _DUPLICATE], columns[n, _GOPHER_TOP]
        if duplicate >= 0:
            out[duplicate] = _duplicate_characters(n, listed, buffers, left)
        if top >= 0 or gopher_top >= 0:
            most = _most_times(different, buffers)
            if top >= 0:
                position = _chosen_position(document, n, different, most, buffers)
                out[top] = _removed_characters(document, position, n, buffers, left.phrase)
            if gopher_top >= 0:
                out[gopher_top] = _characters(_first_position(different, most, buffers), n, buffers) * most


@kernel(types.void(BATCH, types.Array(types.int64, 2, "C", readonly=True), WORD_BUFFERS, NGRAM_BUFFERS, OUT))
def _count_ngrams(batch: Batch, columns: Any, buffers: WordBuffers, left: NgramBuffers, out: Any) -> None:
    for index in range(len(batch.rows)):
        row = batch.rows[index]
        start = batch.starts[row]
        length = batch.ends[row] - start
        if batch.words[row] > 0:
            document = Document(batch.data, start, length, batch.edges, batch.first_word[row], batch.words[row])
            _count_document(document, columns, buffers, left, out[index])


class _ThreadBuffers(threading.local):
    """The buffers of a thread, kept from batch to batch."""

    words: WordBuffers | None = None
    ngrams: NgramBuffers | None = None


_KEPT = _ThreadBuffers()


def _buffers_for(words: int, length: int) -> tuple[WordBuffers, NgramBuffers]:
    """Return buffers for documents of so many words and so many bytes in a phrase."""
    buffers, left = _KEPT.words, _KEPT.ngrams
    if buffers is None or len(buffers.numbers) < words:
        size = 1 << max(words - 1, 1023).bit_length()
        numbers = [np.empty(size, dtype=np.int32) for _ in range(3)]
        buffers = WordBuffers(
            table=np.zeros(2 * slots_for(size), dtype=np.uint64),
            epoch=np.zeros(1, dtype=np.uint64),
            numbers=numbers[0],
            hashes=np.empty(size, dtype=np.uint64),
            characters=np.empty(size + 1, dtype=np.int32),
            times=numbers[1],
            seen=numbers[2],
        )
        left = None
    if left is None or len(left.phrase) < length:
        size = len(buffers.numbers)
        left = NgramBuffers(
            positions=np.empty(size, dtype=np.int32),
            numbers=np.empty(size, dtype=np.int32),
            phrase=np.zeros(1 << length.bit_length(), dtype=np.uint8),
        )
    if len(buffers.numbers) <= _MOST_KEPT_WORDS and len(left.phrase) <= 16 * _MOST_KEPT_WORDS:
        _KEPT.words, _KEPT.ngrams = buffers, left
    return buffers, left


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, npt.NDArray[np.int64]]:
    """Return the wanted counts of n-grams of any length, all from one pass; 0 if a text has fewer than n words."""
    out = np.zeros((len(rows), len(wanted)), dtype=np.int64)
    if len(rows):
        batch = batch_of(work, rows)
        most_words = int(batch.words[rows].max())
        longest = max((n for _, n in wanted if n <= most_words), default=0)
        columns = np.full((longest + 1, len(_COLUMNS)), -1, dtype=np.int64)
        for column, (name, n) in enumerate(wanted):
            if n <= longest:
                columns[n, _COLUMNS[name]] = column
        length = int((batch.ends[rows] - batch.starts[rows]).max())
        buffers = _buffers_for(most_words, length + longest + PADDING)
        _count_ngrams(batch, columns, *buffers, out)
    return {count: out[:, column] for column, count in enumerate(wanted)}
