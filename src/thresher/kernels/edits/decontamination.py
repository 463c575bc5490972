# SPDX-License-Identifier: Apache-2.0
"""Look up the n-grams of texts in an index of hashes.

Words are normalized character by character with a table (`fold_table`): anything but letters, digits and marks
separates words, letters are lower-cased, invisible formatting characters are skipped. In scripts that are written
without spaces every letter is a word, with the marks that follow it.

An index is a hash table of 64-bit hashes with the number of the set that each came from, and a bit table that rules out
most other hashes with one lookup.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT64, OUT, get, helper, kernel, load8, put, trailing_zeros
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Texts

_UINT16 = types.Array(types.uint16, 1, "C", readonly=True)
_UINT32 = types.Array(types.uint32, 1, "C", readonly=True)
_UINT64 = types.Array(types.uint64, 1, "C", readonly=True)
_NEW_UINT16 = types.Array(types.uint16, 1, "C")
_NEW_UINT64 = types.Array(types.uint64, 1, "C")

_PARTS, _IGNORED = np.uint32(0), np.uint32(1)
_ALONE, _MARK = np.uint32(1 << 31), np.uint32(1 << 30)
_WITHOUT_SPACES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3041, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
"""Code points of scripts that are written without spaces between words."""

_FACTOR, _OTHER_FACTOR = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_START, _ONE, _NONE = np.uint64(0xCBF29CE484222325), np.uint64(1), np.uint64(0)
_SHIFT_29, _SHIFT_32, _SHIFT_6, _LOW_6 = np.uint64(29), np.uint64(32), np.uint64(6), np.uint64(63)
_BLOCK = 256
"""Number of hashes that are looked up together."""
_SIXTY_FOUR, _EIGHT, _THREE, _ALL = np.uint64(64), np.uint64(8), np.uint64(3), np.uint64(2**64 - 1)
_EVERY_BYTE = 0x0101010101010101
_HIGH_BIT, _HIGH_BITS, _SEVEN_BITS, _SMALL = (
    np.uint64(0x80),
    np.uint64(0x80 * _EVERY_BYTE),
    np.uint64(0x7F * _EVERY_BYTE),
    np.uint64(0x20 * _EVERY_BYTE),
)
# Added to bytes below 128, they set the highest bit of those that reach the limit.
_FROM_A, _BEHIND_Z, _FROM_0, _BEHIND_9 = (
    np.uint64((0x80 - first) * _EVERY_BYTE) for first in (ord("a"), ord("z") + 1, ord("0"), ord("9") + 1)
)

SCHEME = 1
"""Version of the hash function: indexes of other versions cannot be used."""
NGRAMS, MATCHES, FIRST_START, FIRST_END, SET = range(5)
"""The columns of the result of `look_up` for a text: the number of its n-grams, of those in the index, start and end of
the first of them (in bytes from the start of the text), and the number of the set that it is from."""
COLUMNS = 5


class Table(NamedTuple):
    """An index of n-grams; see `make_table`."""

    keys: npt.NDArray[np.uint64]
    """Hashes; 0 is a free slot. Their upper bits select the slot that is checked first."""
    sets: npt.NDArray[np.uint16]
    """By slot: the number of the set that a hash came from."""
    bits: npt.NDArray[np.uint64]
    """The lower bits of a hash select a bit; if it is not set, the hash is not in the index."""


# -- characters -----------------------------------------------------------------------------------------------------


@cache
def fold_table() -> npt.NDArray[np.uint32]:
    """Return the normalized form of every code point. Building the table takes a while: keep it."""
    table = np.zeros(sys.maxunicode + 1, dtype=np.uint32)
    for planes in (range(0x40000), range(0xE0000, 0xF0000)):  # nothing in the others is a letter, digit or mark
        table[planes.start : planes.stop] = [_folded(chr(code)) for code in planes]
    table.flags.writeable = False
    return table


def _folded(character: str) -> int:
    category = unicodedata.category(character)
    if category == "Cf":
        return int(_IGNORED)
    if category[0] not in "LNM":
        return int(_PARTS)
    small = "σ" if character == "ς" else character.lower()[0]
    if category[0] == "M":
        return ord(small) | int(_MARK)
    alone = any(first <= ord(character) <= last for first, last in _WITHOUT_SPACES)
    return ord(small) | (int(_ALONE) if alone else 0)


@helper
def _character(data: Any, position: Any, end: Any) -> Any:
    """Return the code point at a position and its length; invalid UTF-8 is a separator of one byte."""
    first = np.int64(get(data, position))
    if first < 0x80:
        return first, 1
    length = 2 if first < 0xE0 else (3 if first < 0xF0 else 4)
    if first < 0xC2 or first > 0xF4 or position + length > end:
        return 0, 1
    code = first & (0x7F >> length)
    for step in range(1, length):
        following = np.int64(get(data, position + step))
        if following & 0xC0 != 0x80:
            return 0, 1
        code = (code << 6) | (following & 0x3F)
    return (code, length) if code <= 0x10FFFF else (0, 1)


@helper
def _joined(state: Any, held: Any, filled: Any, value: Any, length: Any) -> Any:
    """Add bytes to the state of a word's hash. Return the mixed state, the bytes not mixed yet, and their number of
    bits."""
    held |= value << filled
    if filled + length < _SIXTY_FOUR:
        return state, held, filled + length
    state = (state ^ held) * _FACTOR
    state ^= state >> _SHIFT_32
    rest = _SIXTY_FOUR - filled
    held = value >> rest if rest < _SIXTY_FOUR else _NONE
    return state, held, length - rest


@helper
def _letters(eight: Any) -> Any:
    """Return a mask with the highest bit of each of eight bytes that is an ASCII letter or digit."""
    low, small = eight & _SEVEN_BITS, (eight | _SMALL) & _SEVEN_BITS
    letter = (small + _FROM_A) & ~(small + _BEHIND_Z)
    digit = (low + _FROM_0) & ~(low + _BEHIND_9)
    return (letter | digit) & ~eight & _HIGH_BITS


@helper
def _next_word(data: Any, position: Any, end: Any, folds: Any) -> Any:
    """Return the start and end of the next word (-1: there is none), its hash, and the position after it.

    A word is hashed as bytes: a lower-case letter or digit of ASCII is one byte, any other character four, as in the
    table.
    """
    start, stop, alone = np.int64(-1), np.int64(-1), False
    state, held, filled = _START, _NONE, _NONE
    while position < end:
        eight = load8(data, position)
        letters = _letters(eight)
        count = min(np.int64(trailing_zeros(~letters & _HIGH_BITS)) >> 3, end - position)
        if count > 0:
            if start < 0:
                start = position
            elif alone:
                break
            bits = np.uint64(count) << _THREE
            small = (eight | _SMALL) & (_ALL if count == 8 else (_ONE << bits) - _ONE)
            state, held, filled = _joined(state, held, filled, small, bits)
            position += count
            stop = position
            continue
        if eight & _HIGH_BIT == _NONE:
            if start >= 0:
                break
            position += np.int64(trailing_zeros((letters | eight) & _HIGH_BITS)) >> 3
            continue
        code, length = _character(data, position, end)
        value = get(folds, code)
        if value == _PARTS:
            if start >= 0:
                break
        elif value != _IGNORED:
            if start >= 0 and value & _MARK == _PARTS and (alone or value & _ALONE != _PARTS):
                break
            if start < 0:
                start = position
                alone = value & _ALONE != _PARTS
            bits = _EIGHT if value < 0x80 else _SHIFT_32
            state, held, filled = _joined(state, held, filled, np.uint64(value), bits)
            stop = position + length
        position += length
    state = (state ^ held) * _FACTOR + filled
    state = (state ^ (state >> _SHIFT_32)) * _OTHER_FACTOR
    return start, stop, state ^ (state >> _SHIFT_29), position


# -- runs of words --------------------------------------------------------------------------------------------------


@helper
def _key(run: Any) -> Any:
    """Return the hash of an n-gram, never 0."""
    mixed = (run ^ (run >> _SHIFT_32)) * _OTHER_FACTOR
    mixed = (mixed ^ (mixed >> _SHIFT_29)) * _FACTOR
    mixed ^= mixed >> _SHIFT_32
    return mixed if mixed != _NONE else _ONE


@helper
def _slot_of(key: Any, keys: Any) -> Any:
    """Return the slot of a hash, or the free slot where it belongs."""
    bits = _NONE
    while (_ONE << bits) < np.uint64(len(keys)):
        bits += _ONE
    slot = np.int64(key >> (_SIXTY_FOUR - bits))
    while get(keys, slot) != _NONE and get(keys, slot) != key:
        slot = (slot + 1) & (len(keys) - 1)
    return slot


@helper
def _looked_up(
    block: Any, count: Any, positions: Any, keys: Any, sets: Any, bits: Any, found: Any, matches: Any
) -> Any:
    """Return the number of matches so far plus those among the first hashes of a block.

    Looking up many at a time lets the processor fetch the next ones while it waits for one.
    """
    last_bit = np.uint64(len(bits)) * _SIXTY_FOUR - _ONE
    for number in range(count):
        key = get(block, number)
        bit = key & last_bit
        if (get(bits, np.int64(bit >> _SHIFT_6)) >> (bit & _LOW_6)) & _ONE == _NONE:
            continue
        slot = _slot_of(key, keys)
        if get(keys, slot) == key:
            if matches == 0:
                found[FIRST_START], found[FIRST_END] = positions[number, 0], positions[number, 1]
                found[SET] = get(sets, slot)
            matches += 1
    return matches


@kernel((BYTES, INT64, INT64, _UINT32, types.int64, _UINT64, _UINT16, _UINT64, OUT, _NEW_UINT64))
def _scan(
    data: Any,
    starts: Any,
    ends: Any,
    folds: Any,
    n: int,
    keys: Any,
    sets: Any,
    bits: Any,
    found: Any,
    collected: Any,
) -> int:
    """Fill a row of `found` for each text, and `collected` with all hashes unless it is empty; return their number."""
    words_seen, begins = np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=np.int64)
    block, positions = np.zeros(_BLOCK, dtype=np.uint64), np.zeros((_BLOCK, 2), dtype=np.int64)
    power, total = _ONE, 0
    for _ in range(n):
        power *= _FACTOR
    for text in range(len(starts)):
        position, end = starts[text], ends[text]
        words, oldest, run, matches, waiting = 0, 0, _NONE, 0, 0
        while True:
            start, stop, word, position = _next_word(data, position, end, folds)
            if start < 0:
                break
            # Rolling polynomial hash of the last n words.
            run = run * _FACTOR + word - (get(words_seen, oldest) * power if words >= n else _NONE)
            put(words_seen, oldest, word)
            put(begins, oldest, start)
            words += 1
            oldest = oldest + 1 if oldest + 1 < n else 0
            if words < n:
                continue
            key = _key(run)
            if len(collected):
                put(collected, total, key)
                total += 1
            put(block, waiting, key)
            positions[waiting, 0], positions[waiting, 1] = get(begins, oldest) - starts[text], stop - starts[text]
            waiting += 1
            if waiting == _BLOCK:
                matches = _looked_up(block, waiting, positions, keys, sets, bits, found[text], matches)
                waiting = 0
        found[text, MATCHES] = _looked_up(block, waiting, positions, keys, sets, bits, found[text], matches)
        found[text, NGRAMS] = max(words - n + 1, 0)
    return total


@kernel((_UINT64, _UINT16, _NEW_UINT64, _NEW_UINT16, _NEW_UINT64))
def _fill(new: Any, new_sets: Any, keys: Any, sets: Any, bits: Any) -> None:
    """Insert hashes into a table that is large enough; of equal ones the first stays."""
    last_bit = np.uint64(len(bits)) * _SIXTY_FOUR - _ONE
    for number in range(len(new)):
        slot = _slot_of(new[number], keys)
        if keys[slot] == _NONE:
            keys[slot], sets[slot] = new[number], new_sets[number]
            bit = new[number] & last_bit
            bits[np.int64(bit >> _SHIFT_6)] |= _ONE << (bit & _LOW_6)


def make_table(keys: npt.NDArray[np.uint64], sets: npt.NDArray[np.uint16]) -> Table:
    """Return a table of hashes; of equal ones the first counts."""
    slots = 1 << max(4, (2 * len(keys) - 1).bit_length() if len(keys) else 0)
    table = Table(
        np.zeros(slots, dtype=np.uint64), np.zeros(slots, dtype=np.uint16), np.zeros(slots // 8, dtype=np.uint64)
    )
    _fill(keys, sets, *table)
    return table


def ngram_keys(texts: Texts, folds: npt.NDArray[np.uint32], n: int) -> tuple[npt.NDArray[np.uint64], Any]:
    """Return the hashes of all n-grams, and the number of n-grams of each text."""
    found = np.zeros((len(texts.starts), COLUMNS), dtype=np.int64)
    # A word has one byte at least.
    collected = np.zeros(int((texts.ends - texts.starts).sum()) + 1, dtype=np.uint64)
    count = _scan(*texts, folds, n, *_EMPTY, found, collected)
    return collected[:count], found[:, NGRAMS]


def look_up(texts: Texts, folds: npt.NDArray[np.uint32], n: int, table: Table) -> npt.NDArray[np.int64]:
    """Look up the n-grams of each text; return a row of `COLUMNS` numbers for each."""
    found = np.zeros((len(texts.starts), COLUMNS), dtype=np.int64)
    _scan(*texts, folds, n, *table, found, np.zeros(0, dtype=np.uint64))
    return found


_EMPTY = Table(np.zeros(16, dtype=np.uint64), np.zeros(16, dtype=np.uint16), np.zeros(2, dtype=np.uint64))
