# SPDX-License-Identifier: Apache-2.0
"""Characters in n-grams that come often, and in those that come again.

The n-grams of a document are told apart by refinement: the n-gram at a word is known by the (n - 1)-gram there, which
has a number, and by one more word, which has one too. So no n-gram is ever hashed from its letters, and no two are
taken for the same. An n-gram can only come again where the (n - 1)-grams at its first and at its second word do: the
list of places that are left gets shorter with every n, and for most documents is soon empty.

Of the n-grams that come most often, `top_ngram_characters` takes the one with the smallest `phrase_hash`, and
`gopher_top_characters` the one that comes first.
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
from thresher.kernels.interned_words import WORD_ROOM, WordRoom, number_words
from thresher.kernels.intrinsics import ALL, OUT, get, helper, kernel, put
from thresher.kernels.phrase_search import count_phrase, write_phrase
from thresher.kernels.places import places
from thresher.kernels.signatures import types

_TOP, _DUPLICATE, _GOPHER_TOP = 0, 1, 2
_COLUMNS = {
    "top_ngram_characters": _TOP,
    "duplicate_ngram_characters": _DUPLICATE,
    "gopher_top_characters": _GOPHER_TOP,
}
_LARGEST_KEPT_WORDS = 1 << 18
"""Room for documents of more words is not kept after the batch."""


class NgramRoom(NamedTuple):
    """Where n-grams are numbered. `times` and `seen` of the words' room serve for them too."""

    places: npt.NDArray[np.int32]
    """The words at which an n-gram begins that may come again, in order."""
    numbers: npt.NDArray[np.int32]
    """The numbers of these n-grams; of the shorter ones, before they are numbered."""
    phrase: npt.NDArray[np.uint8]
    """The bytes of one n-gram."""


NGRAM_ROOM = tuple_type((types.int32[::1], types.int32[::1], types.uint8[::1]), NgramRoom)


@helper
def _repeated_words(document: Document, room: WordRoom, left: NgramRoom) -> int:
    """List the places of two words that both come again."""
    found = 0
    number = get(room.numbers, 0)
    again = get(room.times, number) > 1
    for place in range(document.words - 1):
        following = get(room.numbers, place + 1)
        following_again = get(room.times, following) > 1
        put(left.places, found, place)
        put(left.numbers, found, number)
        found += again & following_again
        number, again = following, following_again
    return found


@helper
def _repeated_pairs(listed: int, room: WordRoom, left: NgramRoom) -> int:
    """Shorten the list to the places where an n-gram and the one a word later both come again."""
    if listed == 0:
        return 0
    found = 0
    place, number = get(left.places, 0), get(left.numbers, 0)
    again = get(room.times, number) > 1
    for index in range(1, listed):
        following, following_number = get(left.places, index), get(left.numbers, index)
        following_again = get(room.times, following_number) > 1
        put(left.places, found, place)
        put(left.numbers, found, number)
        found += again & following_again & (following == place + 1)
        place, number, again = following, following_number, following_again
    return found


@helper
def _number_ngrams(n: int, listed: int, room: WordRoom, left: NgramRoom) -> int:
    """Number the n-grams of the list; how many different ones there are."""
    table = room.table
    bits = bits_for(listed)
    shift, last_slot = np.uint64(64 - bits), np.uint64((1 << bits) - 1)
    mark = new_epoch(room.epoch, table)
    number: Any = 0
    different = 0
    for index in range(listed):
        place = get(left.places, index)
        key = np.uint64(get(left.numbers, index)) << HALF | np.uint64(get(room.numbers, place + n - 1))
        slot = (key * FACTOR) >> shift
        while True:
            held = table[slot + slot + np.uint64(1)]
            if (held ^ mark) > LOWER:
                number = different
                table[slot + slot] = key
                table[slot + slot + np.uint64(1)] = mark | np.uint64(different)
                put(room.times, number, 1)
                put(room.seen, number, place)
                different += 1
                break
            if table[slot + slot] == key:
                number = np.int64(held & LOWER)
                put(room.times, number, get(room.times, number) + 1)
                break
            slot = (slot + np.uint64(1)) & last_slot
        put(left.numbers, index, number)
    return different


@helper
def _most_times(different: int, room: WordRoom) -> Any:
    """How often the n-grams come that come most often."""
    most = np.int32(1)
    for number in range(different):
        most = max(most, get(room.times, number))
    return most


@helper
def _first_place(different: int, most: int, room: WordRoom) -> Any:
    """Where the first n-gram begins that comes `most` times."""
    if most == 1:
        return 0
    for number in range(different):
        if get(room.times, number) == most:
            return get(room.seen, number)
    return 0


@helper
def _chosen_place(document: Document, n: int, different: int, most: int, room: WordRoom) -> Any:
    """Where the n-gram with the smallest hash first begins, of those that come `most` times."""
    chosen = -1
    smallest = ALL
    if most > 1:
        for number in range(different):
            if get(room.times, number) == most:
                place = get(room.seen, number)
                value = np.uint64(0)
                for word in range(place, place + n):
                    value = value * OTHER_FACTOR + get(room.hashes, word)
                if value < smallest or chosen < 0:
                    chosen, smallest = place, value
        return chosen
    value = np.uint64(0)
    leaving = np.uint64(1)
    for word in range(n):
        value = value * OTHER_FACTOR + get(room.hashes, word)
        leaving *= OTHER_FACTOR
    chosen, smallest = 0, value
    for place in range(1, document.words - n + 1):
        value = value * OTHER_FACTOR + (get(room.hashes, place + n - 1) - leaving * get(room.hashes, place - 1))
        if value < smallest:
            chosen, smallest = place, value
    return chosen


@helper
def _characters(place: int, n: int, room: WordRoom) -> Any:
    """The code points of an n-gram, spaces included."""
    return get(room.characters, place + n) - get(room.characters, place) + n - 1


@helper
def _removed_characters(document: Document, place: int, n: int, room: WordRoom, phrase: Any) -> Any:
    """The code points that go when an n-gram is cut out of the text wherever it stands."""
    length, space = write_phrase(document, place, n, phrase)
    return count_phrase(document, phrase, length, space) * _characters(place, n, room)


@helper
def _duplicate_characters(n: int, listed: int, room: WordRoom, left: NgramRoom) -> int:
    """The code points of the n-grams that have come before, the words of overlapping ones counted once."""
    total = 0
    last: Any = -n
    for index in range(listed):
        place = get(left.places, index)
        if get(room.seen, get(left.numbers, index)) != place:
            overlap = max(n - (place - last), 0)
            words = get(room.characters, place + n) - get(room.characters, place + overlap)
            total += words + min(n - overlap, n - 1)
            last = place
    return total


@helper
def _count_document(document: Document, columns: Any, room: WordRoom, left: NgramRoom, out: Any) -> None:
    different = number_words(document, room)
    listed = document.words
    for n in range(1, min(len(columns), document.words + 1)):
        if n == 2:
            listed = _repeated_words(document, room, left)
        elif n > 2:
            listed = _repeated_pairs(listed, room, left)
        elif columns[1, _DUPLICATE] >= 0:
            for place in range(listed):
                put(left.places, place, place)
                put(left.numbers, place, get(room.numbers, place))
        if n > 1:
            different = _number_ngrams(n, listed, room, left) if listed else 0
        top, duplicate, gopher_top = columns[n, _TOP], columns[n, _DUPLICATE], columns[n, _GOPHER_TOP]
        if duplicate >= 0:
            out[duplicate] = _duplicate_characters(n, listed, room, left)
        if top >= 0 or gopher_top >= 0:
            most = _most_times(different, room)
            if top >= 0:
                place = _chosen_place(document, n, different, most, room)
                out[top] = _removed_characters(document, place, n, room, left.phrase)
            if gopher_top >= 0:
                out[gopher_top] = _characters(_first_place(different, most, room), n, room) * most


@kernel(types.void(BATCH, types.Array(types.int64, 2, "C", readonly=True), WORD_ROOM, NGRAM_ROOM, OUT))
def _count_ngrams(batch: Batch, columns: Any, room: WordRoom, left: NgramRoom, out: Any) -> None:
    for index in range(len(batch.rows)):
        row = batch.rows[index]
        start = batch.starts[row]
        length = batch.ends[row] - start
        if batch.words[row] > 0:
            document = Document(batch.data, start, length, batch.edges, batch.first_word[row], batch.words[row])
            _count_document(document, columns, room, left, out[index])


class _Rooms(threading.local):
    """The rooms of a thread, kept from batch to batch."""

    words: WordRoom | None = None
    ngrams: NgramRoom | None = None


_ROOMS = _Rooms()


def _rooms_for(words: int, length: int) -> tuple[WordRoom, NgramRoom]:
    """Rooms for documents of so many words and so many bytes in a phrase."""
    room, left = _ROOMS.words, _ROOMS.ngrams
    if room is None or len(room.numbers) < words:
        size = 1 << max(words - 1, 1023).bit_length()
        numbers = [np.empty(size, dtype=np.int32) for _ in range(3)]
        room = WordRoom(
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
        size = len(room.numbers)
        left = NgramRoom(
            places=np.empty(size, dtype=np.int32),
            numbers=np.empty(size, dtype=np.int32),
            phrase=np.zeros(1 << length.bit_length(), dtype=np.uint8),
        )
    if len(room.numbers) <= _LARGEST_KEPT_WORDS and len(left.phrase) <= 16 * _LARGEST_KEPT_WORDS:
        _ROOMS.words, _ROOMS.ngrams = room, left
    return room, left


def compute(work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, npt.NDArray[np.int64]]:
    """The wanted counts of n-grams of any length, all from one chain; 0 where a text has fewer than n words."""
    texts, found = work.texts, places(work, rows)
    out = np.zeros((len(rows), len(wanted)), dtype=np.int64)
    if len(rows):
        most_words = int(found.words[rows].max())
        longest = max((n for _, n in wanted if n <= most_words), default=0)
        columns = np.full((longest + 1, len(_COLUMNS)), -1, dtype=np.int64)
        for column, (name, n) in enumerate(wanted):
            if n <= longest:
                columns[n, _COLUMNS[name]] = column
        length = int((texts.ends[rows] - texts.starts[rows]).max())
        rooms = _rooms_for(most_words, length + longest + PADDING)
        _count_ngrams(batch_of(work, found, rows), columns, *rooms, out)
    return {count: out[:, column] for column, count in enumerate(wanted)}
