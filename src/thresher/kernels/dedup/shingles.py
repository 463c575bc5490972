# SPDX-License-Identifier: Apache-2.0
"""Hashes of the shingles of texts: runs of n characters, or of n words.

A shingle is hashed by a polynomial over its bytes, or over the hashes of its words, and mixed. The polynomial of a run
follows from those of two prefixes, so a shingle costs the same whatever its length. Words are what white space divides.
A text without a whole shingle has one: the text itself. An empty text has none.

Texts are looked at in blocks of 64 bytes where these have nothing but ASCII characters, or no white space.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    BYTES,
    get,
    hash_bytes,
    helper,
    integer,
    kernel,
    mask_equal,
    mask_range,
    put,
    trailing_zeros,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.white_space import white_at
from thresher.kernels.counts.text_counts import Texts

CHARACTERS, WORDS = 0, 1
"""Kinds of shingles."""
UINT64 = types.Array(types.uint64, 1, "C")
_BASE = np.uint64(0x9E3779B97F4A7C15)
_FIRST_MIX, _SECOND_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_27, _SHIFT_31 = np.uint64(30), np.uint64(27), np.uint64(31)
_NONE, _ONE = np.uint64(0), np.uint64(1)
STATE_ITEMS = 6
"""The state of a walk through a text: position and polynomial of the end of the last shingle, then of its start, the
number of shingles (or words) so far, and 1 if the text itself was the only one. Hashes of words follow."""
MOST_WORDS = 64
"""Most words of a shingle."""
BLOCK = 4096
"""Most hashes that one step of a walk gives."""
_MASK = 64
"""Bytes that are looked at together."""


@helper
def mixed(value: Any) -> Any:
    """Return a number whose bits all depend on all bits of the given one (the finaliser of SplitMix64)."""
    value = (value ^ (value >> _SHIFT_30)) * _FIRST_MIX
    value = (value ^ (value >> _SHIFT_27)) * _SECOND_MIX
    return value ^ (value >> _SHIFT_31)


@helper
def _next_character(data: Any, position: Any, end: Any, prefix: Any) -> Any:
    """Return the position behind the character at `position`, and the polynomial with its bytes."""
    prefix = prefix * _BASE + np.uint64(get(data, position)) + _ONE
    position += 1
    while position < end and (get(data, position) & 0xC0) == 0x80:
        prefix = prefix * _BASE + np.uint64(get(data, position)) + _ONE
        position += 1
    return position, prefix


@helper
def _whole(data: Any, start: Any, end: Any, seed: Any) -> Any:
    """Return the hash of a whole text."""
    prefix = _NONE
    for position in range(start, end):
        prefix = prefix * _BASE + np.uint64(get(data, position)) + _ONE
    return mixed(prefix ^ seed)


@helper
def _is_plain(data: Any, first: Any, position: Any) -> Any:
    """Return True if there are only ASCII characters in two blocks of bytes."""
    return not (mask_range(data, first, 0x80, 0xFF) | mask_range(data, position, 0x80, 0xFF))


@helper
def character_shingles(data: Any, end: Any, n: Any, seed: Any, powers: Any, state: Any, found: Any) -> Any:
    """Continue a walk through a text: write up to `BLOCK` hashes to `found` and return their number; 0 at the end."""
    position, prefix = np.int64(get(state, 0)), get(state, 1)
    first, before = np.int64(get(state, 2)), get(state, 3)
    total, count = np.int64(get(state, 4)), 0
    if total == 0:
        ahead = 0
        while ahead < n and position < end:
            position, prefix = _next_character(data, position, end, prefix)
            ahead += 1
        if ahead < n:
            if position == first:
                return 0
            put(found, 0, _whole(data, first, end, seed))
            put(state, 4, _ONE)
            put(state, 0, np.uint64(end))
            put(state, 5, _ONE)
            return 1
        put(found, 0, mixed((prefix - before * get(powers, position - first)) ^ seed))
        count = 1
    elif get(state, 5):
        return 0
    while count < BLOCK and position < end:
        if count <= BLOCK - _MASK and position + _MASK <= end and _is_plain(data, first, position):
            power = get(powers, position - first)
            for _ in range(_MASK):
                prefix = prefix * _BASE + np.uint64(get(data, position)) + _ONE
                before = before * _BASE + np.uint64(get(data, first)) + _ONE
                position += 1
                first += 1
                put(found, count, mixed((prefix - before * power) ^ seed))
                count += 1
            continue
        position, prefix = _next_character(data, position, end, prefix)
        first, before = _next_character(data, first, end, before)
        put(found, count, mixed((prefix - before * get(powers, position - first)) ^ seed))
        count += 1
    put(state, 0, np.uint64(position))
    put(state, 1, prefix)
    put(state, 2, np.uint64(first))
    put(state, 3, before)
    put(state, 4, np.uint64(total + count))
    return count


@helper
def _maybe_white(data: Any, position: Any) -> Any:
    """Return which of 64 bytes are ASCII white space, or may begin another white-space character."""
    ascii_white = mask_range(data, position, 0x09, 0x0D) | mask_range(data, position, 0x1C, 0x20)
    return ascii_white | mask_equal(data, position, 0xC2) | mask_range(data, position, 0xE1, 0xE3)


@helper
def word_shingles(data: Any, end: Any, n: Any, seed: Any, powers: Any, state: Any, found: Any) -> Any:
    """Do as `character_shingles` for words. The hashes of the last n words are behind the state."""
    position, prefix, start = integer(get(state, 0)), get(state, 1), integer(get(state, 2))
    words, count, power = np.int64(get(state, 4)), 0, get(powers, n)
    if get(state, 5):
        return 0
    slot = words % n
    block, white = position, _maybe_white(data, position)
    while count < BLOCK:
        step = white_at(data, position, end)
        while step:
            position += step
            step = white_at(data, position, end)
        if position >= end:
            break
        behind = position
        while behind < end:
            if behind >= block + _MASK:
                block, white = behind, _maybe_white(data, behind)
            ahead = white >> np.uint64(behind - block)
            if not ahead:
                behind = block + _MASK
                continue
            behind += trailing_zeros(ahead)
            if behind >= end or get(data, behind) <= 0x20 or white_at(data, behind, end):
                break
            behind += 1
        behind = min(behind, end)
        word = hash_bytes(data, position, behind) | _ONE
        position = behind
        old = get(state, STATE_ITEMS + slot) if words >= n else _NONE
        put(state, STATE_ITEMS + slot, word)
        slot = slot + 1 if slot + 1 < n else 0
        prefix = prefix * _BASE + word - old * power
        words += 1
        if words >= n:
            put(found, count, mixed(prefix ^ seed))
            count += 1
    put(state, 0, np.uint64(position))
    put(state, 1, prefix)
    put(state, 4, np.uint64(words))
    if count == 0 and words < n and end > start:
        put(found, 0, _whole(data, start, end, seed))
        put(state, 5, _ONE)
        return 1
    return count


@helper
def begin(state: Any, start: Any) -> None:
    """Begin a walk at the start of a text."""
    put(state, 0, np.uint64(start))
    put(state, 1, _NONE)
    put(state, 2, np.uint64(start))
    put(state, 3, _NONE)
    put(state, 4, _NONE)
    put(state, 5, _NONE)


@helper
def shingles(kind: Any, data: Any, end: Any, n: Any, seed: Any, powers: Any, state: Any, found: Any) -> Any:
    """Continue a walk through a text with shingles of a kind."""
    if kind == WORDS:
        return word_shingles(data, end, n, seed, powers, state, found)
    return character_shingles(data, end, n, seed, powers, state, found)


@kernel(types.int64(types.int64, BYTES, types.int64, types.int64, types.int64, types.int64, UINT64, UINT64, UINT64))
def _next_block(
    kind: Any, data: Any, start: Any, end: Any, n: Any, seed: Any, powers: Any, state: Any, found: Any
) -> Any:
    if start >= 0:
        begin(state, start)
    return shingles(kind, data, end, n, np.uint64(seed), powers, state, found)


def signed(number: int) -> int:
    """Return the signed number with the same 64 bits: kernels that take no other load faster."""
    return number - 2**64 if number >= 2**63 else number


def powers_for(n: int) -> npt.NDArray[np.uint64]:
    """Return the powers of the base of the polynomial that shingles of n characters or words need."""
    powers = [1]
    for _ in range(4 * n):
        powers.append(powers[-1] * int(_BASE) % 2**64)
    return np.array(powers, dtype=np.uint64)


def shingle_hashes(texts: Texts, row: int, kind: int, n: int, seed: int) -> npt.NDArray[np.uint64]:
    """Return the hashes of all shingles of one text, in order."""
    powers, state = powers_for(n), np.zeros(STATE_ITEMS + MOST_WORDS, dtype=np.uint64)
    found: list[npt.NDArray[np.uint64]] = []
    start, end = int(texts.starts[row]), int(texts.ends[row])
    while True:
        block = np.empty(BLOCK, dtype=np.uint64)
        count = _next_block(kind, texts.data, start, end, n, signed(seed), powers, state, block)
        if not count:
            return np.concatenate([np.zeros(0, dtype=np.uint64), *found])
        found.append(block[:count])
        start = -1
