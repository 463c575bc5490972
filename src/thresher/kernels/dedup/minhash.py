# SPDX-License-Identifier: Apache-2.0
"""Keys of texts by MinHash: texts with similar sets of shingles share keys.

A sketch has one value per bin. Fast similarity sketching (Dahlgaard, Knudsen and Thorup, 2017) puts every shingle into
one random bin, round after round until no bin is empty; in rounds after as many as there are bins, all shingles go into
the same bin. A bin keeps the smallest value, and values of earlier rounds are smaller. So a text of many shingles is
read once, and the bins of two texts agree with the probability of their Jaccard similarity.

Values of bins are hashed band by band. Two texts share the key of a band if all its values agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT64, get, helper, kernel, put
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.dedup.shingles import (
    BLOCK,
    MOST_WORDS,
    STATE_ITEMS,
    UINT64,
    begin,
    mixed,
    powers_for,
    shingles,
    signed,
)

_EMPTY = np.uint64(2**64 - 1)
_NONE, _ONE, _SHIFT_32, _LOW_32 = np.uint64(0), np.uint64(1), np.uint64(32), np.uint64(2**32 - 1)
_ROUND_STEP = np.uint64(0xD1B54A32D192ED03)
_BAND_FACTOR = np.uint64(0x9FB21C651E98DF25)
_STATE = STATE_ITEMS + MOST_WORDS
_SET_SLOTS = 4 * BLOCK
"""Slots of the table that holds the different shingles of a text; half of them are used at most."""


@helper
def _fill(bins: Any, hashes: Any, first: Any, last: Any, turn: Any, size: Any) -> Any:
    """Put shingles into bins in one round; return how many bins were empty and are not now."""
    filled = 0
    tag = np.uint64(turn) << _SHIFT_32
    step = np.uint64(turn) * _ROUND_STEP
    for place in range(first, last):
        value = get(hashes, place)
        if turn:
            if value == _NONE:  # a free slot of the table
                continue
            value = mixed(value + step)
        bin_number = np.int64(((value >> _SHIFT_32) * np.uint64(size)) >> _SHIFT_32) if turn < size else turn - size
        value = tag | (value & _LOW_32)
        held = get(bins, bin_number)
        if value < held:
            filled += held == _EMPTY
            put(bins, bin_number, value)
    return filled


@helper
def _keep_different(table: Any, hashes: Any, count: Any, held: Any) -> Any:
    """Add hashes to a table of different ones; return how many it holds, or more than half of its slots."""
    for place in range(count):
        value = get(hashes, place)
        slot = np.int64(value & np.uint64(_SET_SLOTS - 1))
        known = get(table, slot)
        while known != _NONE and known != value:
            slot = (slot + 1) & (_SET_SLOTS - 1)
            known = get(table, slot)
        if known == _NONE and value != _NONE:
            put(table, slot, value)
            held += 1
            if held > _SET_SLOTS // 2:
                return held
    return held


@helper
def _sketch(
    kind: Any, data: Any, start: Any, end: Any, n: Any, seed: Any, powers: Any, work: Any, table: Any, bins: Any
) -> Any:
    """Write the sketch of a text to `bins`; return the number of its shingles."""
    size = len(bins)
    for place in range(size):
        put(bins, place, _EMPTY)
    state, hashes = work[:_STATE], work[_STATE:]
    begin(state, start)
    total = filled = blocks = 0
    count = shingles(kind, data, end, n, seed, powers, state, hashes)
    while count:
        filled += _fill(bins, hashes, 0, count, 0, size)
        total += count
        blocks += 1
        last = count
        count = shingles(kind, data, end, n, seed, powers, state, hashes)
    if total == 0 or filled == size:
        return total
    if blocks == 1:  # all shingles are still there
        turn = 1
        while filled < size:
            filled += _fill(bins, hashes, 0, last, turn, size)
            turn += 1
        return total
    for place in range(_SET_SLOTS):
        put(table, place, _NONE)
    held = 0
    begin(state, start)
    count = shingles(kind, data, end, n, seed, powers, state, hashes)
    while count and held <= _SET_SLOTS // 2:
        held = _keep_different(table, hashes, count, held)
        count = shingles(kind, data, end, n, seed, powers, state, hashes)
    turn = 1
    while filled < size:
        if held <= _SET_SLOTS // 2:
            filled += _fill(bins, table, 0, _SET_SLOTS, turn, size)
        else:
            begin(state, start)
            count = shingles(kind, data, end, n, seed, powers, state, hashes)
            while count:
                filled += _fill(bins, hashes, 0, count, turn, size)
                count = shingles(kind, data, end, n, seed, powers, state, hashes)
        turn += 1
    return total


@kernel(
    types.void(
        types.int64, BYTES, INT64, INT64, types.int64, types.int64, UINT64, types.int64, UINT64, UINT64, UINT64, UINT64
    )
)
def _band_keys(
    kind: Any,
    data: Any,
    starts: Any,
    ends: Any,
    n: Any,
    signed_seed: Any,
    powers: Any,
    rows: Any,
    work: Any,
    table: Any,
    bins: Any,
    keys: Any,
) -> None:
    bands, seed = len(bins) // rows, np.uint64(signed_seed)
    for text in range(len(starts)):
        total = _sketch(kind, data, get(starts, text), get(ends, text), n, seed, powers, work, table, bins)
        for band in range(bands):
            key = _NONE
            if total:
                key = mixed(np.uint64(band + 1) * _ROUND_STEP ^ seed)
                for place in range(band * rows, (band + 1) * rows):
                    key = mixed(key * _BAND_FACTOR + get(bins, place))
                key = max(key, _ONE)
            put(keys, text * bands + band, key)


def band_keys(texts: Texts, kind: int, n: int, seed: int, banding: tuple[int, int]) -> npt.NDArray[np.uint64]:
    """Return a key for each text and band; 0 for texts without shingles. `banding`: bands, and rows of each."""
    bands, rows = banding
    keys = np.zeros((len(texts.starts), bands), dtype=np.uint64)
    work = np.empty(_STATE + BLOCK, dtype=np.uint64)
    table, bins = np.empty(_SET_SLOTS, dtype=np.uint64), np.empty(bands * rows, dtype=np.uint64)
    given = texts.data, texts.starts, texts.ends
    _band_keys(kind, *given, n, signed(seed), powers_for(n), rows, work, table, bins, keys.reshape(-1))
    return keys
