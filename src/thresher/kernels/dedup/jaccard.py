# SPDX-License-Identifier: Apache-2.0
"""Jaccard similarity of the sets of shingles of two texts.

Shingles are compared by their hashes of 64 bits, in a table of fixed size. Where two texts have more shingles than the
table holds, they are walked through several times, each time for a part of all hashes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from thresher.kernels.build.intrinsics import BYTES, get, helper, kernel, put
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Texts
from thresher.kernels.dedup.shingles import BLOCK, MOST_WORDS, STATE_ITEMS, UINT64, begin, powers_for, shingles

_STATE = STATE_ITEMS + MOST_WORDS
_NONE, _ONE, _SHIFT_32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LEAST_SLOTS = 1024
MOST_SLOTS = 2**23
"""Slots of the largest table: 64 MB, and 8 MB for marks."""
_MOST_FILLED = 0.6
_MARKS = types.Array(types.uint8, 1, "C")
_COUNTS = types.Array(types.int64, 1, "C")


@helper
def _add(table: Any, marks: Any, value: Any, mark: Any) -> Any:
    """Add a hash to the set of all; return the marks that it had before: 1 for the first text, 2 for the second."""
    last = np.uint64(len(table) - 1)
    value = max(value, _ONE)
    slot = np.int64(value & last)
    known = get(table, slot)
    while known != _NONE and known != value:
        slot = np.int64((np.uint64(slot) + _ONE) & last)
        known = get(table, slot)
    before = get(marks, slot) if known == value else np.uint8(0)
    put(table, slot, value)
    put(marks, slot, np.uint8(before | mark))
    return before


@kernel(
    types.void(
        types.int64, BYTES, types.int64, types.int64, types.int64, types.int64, types.int64, UINT64, UINT64, UINT64,
        _MARKS, types.int64, _COUNTS,
    )
)  # fmt: skip
def _count(
    kind: Any,
    data: Any,
    start: Any,
    end: Any,
    n: Any,
    mark: Any,
    part: Any,
    powers: Any,
    work: Any,
    table: Any,
    marks: Any,
    parts: Any,
    counts: Any,
) -> None:
    """Add the shingles of a text whose hashes belong to a part; count those that are new, and those of both texts."""
    state, hashes = work[:_STATE], work[_STATE:]
    begin(state, start)
    count = shingles(kind, data, end, n, _NONE, powers, state, hashes)
    while count:
        for place in range(count):
            value = get(hashes, place)
            if np.int64(((value >> _SHIFT_32) * np.uint64(parts)) >> _SHIFT_32) == part:
                before = _add(table, marks, value, np.uint8(mark))
                if before == 0:
                    put(counts, 0, get(counts, 0) + 1)
                elif not before & mark:
                    put(counts, 1, get(counts, 1) + 1)
        count = shingles(kind, data, end, n, _NONE, powers, state, hashes)


class PairSimilarity:
    """Computes the similarity of pairs of texts; holds the memory for it."""

    def __init__(self, kind: int, n: int, most_slots: int = MOST_SLOTS) -> None:
        """`kind`, `n`: the shingles. `most_slots`: slots of the largest table, a power of two."""
        self._kind, self._n, self._most = kind, n, most_slots
        self._powers = powers_for(n)
        self._work = np.empty(_STATE + BLOCK, dtype=np.uint64)
        self._table = np.empty(0, dtype=np.uint64)
        self._marks = np.empty(0, dtype=np.uint8)

    def of(self, one: Texts, row: int, other: Texts, other_row: int) -> float:
        """Return the similarity of two texts; two empty ones are not similar."""
        pair = [
            (texts.data, int(texts.starts[at]), int(texts.ends[at])) for texts, at in ((one, row), (other, other_row))
        ]
        sizes = [end - start for _, start, end in pair]
        if sizes[0] == sizes[1]:
            here, there = (data[start:end] for data, start, end in pair)
            if np.array_equal(here, there):
                return float(sizes[0] > 0)
        wanted = max(_LEAST_SLOTS, 1 << (2 * sum(sizes) - 1).bit_length())
        slots = min(wanted, self._most)
        if len(self._table) < slots:
            self._table, self._marks = np.empty(slots, dtype=np.uint64), np.empty(slots, dtype=np.uint8)
        table, marks = self._table[:slots], self._marks[:slots]
        parts = 1 if wanted == slots else math.ceil(sum(sizes) / (_MOST_FILLED * slots))
        counts = np.zeros(2, dtype=np.int64)
        for part in range(parts):
            table[:] = 0
            for mark, (data, start, end) in enumerate(pair, 1):
                _count(
                    self._kind, data, start, end, self._n, mark, part, self._powers, self._work, table, marks, parts,
                    counts,
                )  # fmt: skip
        return float(counts[1] / counts[0]) if counts[0] else 0.0
