# SPDX-License-Identifier: Apache-2.0
"""Count kinds of words: symbols, common English words, and the longest word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import (
    BYTES,
    NONE,
    ONE,
    OUT,
    get,
    helper,
    integer,
    kernel,
    load8,
    low_bits,
    mask_range,
    popcount,
)
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.positions import BATCH, Batch, batch_of
from thresher.kernels.counts.text_counts import Count, Rows, SharedCounts

COMMON_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Words that occur in nearly every English text."""
SYMBOLS = ("...", "[...]", "…", "(...)", "[…]", "-»")
"""Words that mark an omission."""
_COLUMNS = ("symbol_words", "longest_word", "common_words", "stop_words")
"""The columns that the kernel fills, in its order."""
_HASH = 0x23
_MULTIPLIER = np.uint64(0xB85544CAEF0756B9)
"""Multiplied by it, the keys of the common words differ in their three highest bits."""
_LENGTH_SHIFT, _SLOT_SHIFT = np.uint64(56), np.uint64(61)


def _key(word: str) -> int:
    """Return a short word and its length as one number; without the length, a zero byte at the end would be lost."""
    data = word.encode()
    return int.from_bytes(data, "little") | len(data) << 56


def _by_slot(words: Sequence[str]) -> npt.NDArray[np.uint64]:
    """Return the keys of eight words, each at the slot that the multiplier selects."""
    keys = sorted(map(_key, words), key=lambda key: (key * int(_MULTIPLIER) & 2**64 - 1) >> int(_SLOT_SHIFT))
    return np.array(keys, dtype=np.uint64)


_COMMON_KEYS = _by_slot(COMMON_WORDS)
_S0, _S1, _S2, _S3, _S4, _S5 = (np.uint64(_key(word)) for word in SYMBOLS)


def _may_be_symbol() -> npt.NDArray[np.uint8]:
    """Return which bytes a symbol word can begin with."""
    firsts = np.zeros(256, dtype=np.uint8)
    firsts[[word.encode()[0] for word in (*SYMBOLS, "#")]] = 1
    return firsts


_FIRSTS = _may_be_symbol()


def compute(work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, Rows]:
    """Return all counts of the group."""
    out = np.empty((len(rows), len(_COLUMNS)), dtype=np.int64)
    _count(batch_of(work, rows), _COMMON_KEYS, _FIRSTS, out)
    return {(name, 0): out[:, column] for column, name in enumerate(_COLUMNS)}


@helper
def code_points_in(data: Any, start: int, end: int) -> int:
    """Return the number of code points in a range of bytes."""
    number = end - start
    for at in range(start, end, 64):
        number -= popcount(mask_range(data, at, 0x80, 0xBF) & low_bits(min(end - at, 64)))
    return number


@helper
def key_of(eight: Any, length: int) -> Any:
    """Return the key of a word of up to six bytes from the eight bytes at its start; for longer words, a key that no
    such word has."""
    short = np.uint64(min(length, 7))
    return (eight & ((ONE << (short << np.uint64(3))) - ONE)) | (short << _LENGTH_SHIFT)


@helper
def _is_symbol(data: Any, start: int, end: int, key: Any) -> Any:
    """Return True if a word is a symbol, or if more than half of it is runs of `#`, which requires that every second
    character is one, from the first to the last."""
    if get(data, start) != _HASH:
        return key == _S0 or key == _S1 or key == _S2 or key == _S3 or key == _S4 or key == _S5
    if get(data, end - 1) != _HASH:
        return False
    runs, before = 0, 0
    for position in range(start, end):
        byte = integer(get(data, position))
        runs += 1 if byte == _HASH and before != _HASH else 0
        before = byte
    return 2 * runs > code_points_in(data, start, end)


@kernel(types.void(BATCH, types.uint64[::1], BYTES, OUT))
def _count(batch: Batch, common_keys: Any, firsts: Any, out: Any) -> None:
    """Fill a row of `out` for each of `rows`."""
    data, edges = batch.data, batch.edges
    for n in range(len(batch.rows)):
        row = batch.rows[n]
        base, edge, is_ascii = batch.starts[row], 2 * batch.first_word[row], batch.continuation[row] == 0
        symbols = longest = common = 0
        seen = NONE
        for word in range(edge, edge + 2 * batch.words[row], 2):
            start, end = base + get(edges, word), base + get(edges, word + 1)
            length = end - start
            key = key_of(load8(data, start), length)
            slot = integer((key * _MULTIPLIER) >> _SLOT_SHIFT)
            hit = np.uint64(get(common_keys, slot) == key)
            common += integer(hit)
            seen |= hit << np.uint64(slot)
            if length > longest:
                longest = max(longest, length if is_ascii else code_points_in(data, start, end))
            if get(firsts, integer(get(data, start))):
                symbols += 1 if _is_symbol(data, start, end, key) else 0
        out[n, 0], out[n, 1], out[n, 2], out[n, 3] = symbols, longest, common, popcount(seen)
