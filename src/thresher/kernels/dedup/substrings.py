# SPDX-License-Identifier: Apache-2.0
"""Find stretches of bytes that texts have in common, without comparing every stretch with every other.

Each stretch of `length` bytes has an *anchor*: a run of `gram` bytes in it with the smallest hash. Equal stretches have
equal anchors. Neighbouring stretches mostly share theirs: there is about one anchor for (`length` - `gram`) / 2 bytes.
(Schleimer, Wilkerson and Aiken, "Winnowing", 2003.) Only stretches whose anchor occurs more than once need to be hashed
themselves. Where the smallest hash occurs twice in a stretch, which is so in periodic texts, one of them serves as long
as possible, and is listed a second time without any stretch: equal stretches may overlap and have the same one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.decorators import ir, llvm_bits, primitive
from thresher.kernels.build.intrinsics import BYTES, INT64, OUT, get, hash_bytes, helper, kernel, load8, low_bits, put
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Texts

ROW, ANCHOR, FIRST, END = range(4)
"""The columns of `Anchors.found`: the number of the text, the position of the anchor, and the starts of the first
stretch that has it and of the first behind it that has not. Positions are those of the buffer of the texts."""
_FULL = -1
_NEW_HASHES = types.Array(types.uint64, 2, "C")
_RING = types.Array(types.uint64, 1, "C")
_BASE = np.uint64(0x9E3779B97F4A7C15)
_MIX, _OTHER_MIX = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_30, _SHIFT_32 = np.uint64(30), np.uint64(32)
_PRIME = np.uint64(2**61 - 1)
_BASES = (np.uint64(0x0B3F5A1C9D27E481), np.uint64(0x16A09E667F3BCC90))
"""The bases of two polynomials modulo 2^61 - 1, smaller than that."""
_ONE = np.uint64(1)


class Anchors(NamedTuple):
    """The anchors of some texts, in order."""

    found: npt.NDArray[np.int64]
    """A row for each anchor, with the columns above."""
    keys: npt.NDArray[np.uint64]
    """Two hashes of the bytes of each."""


def find_anchors(texts: Texts, length: int, gram: int) -> Anchors:
    """Return the anchors of all stretches of `length` bytes."""
    stretches = length - gram + 1
    room = 256 + 4 * int((texts.ends - texts.starts).sum()) // stretches
    ring = np.empty(stretches, dtype=np.uint64)
    while True:
        found, keys = np.empty((room, 4), dtype=np.int64), np.empty((room, 2), dtype=np.uint64)
        count = _anchors(texts.data, texts.starts, texts.ends, length, gram, ring, found, keys)
        if count != _FULL:
            return Anchors(found[:count], keys[:count])
        room *= 4


def hash_stretches(data: npt.NDArray[np.uint8], ranges: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.uint64]:
    """Return two hashes of each stretch of `length` bytes that starts in one of some ranges of positions, in order."""
    keys = np.empty((int((ranges[:, 1] - ranges[:, 0]).sum()), 2), dtype=np.uint64)
    for column, base in enumerate(_BASES):
        _hash(data, ranges, length, base, column, keys)
    return keys


@helper
def _order_of(value: Any) -> Any:
    """Return a number by which grams are compared: all bits of it depend on all bits of the hash."""
    value = (value ^ (value >> _SHIFT_30)) * _MIX
    return (value ^ (value >> _SHIFT_32)) * _OTHER_MIX


@helper
def _other_hash(data: Any, start: int, end: int) -> Any:
    """Return a hash that has nothing in common with `hash_bytes`."""
    value = np.uint64(end - start) ^ _BASE
    while start < end:
        value = (value ^ (load8(data, start) & low_bits(8 * min(end - start, 8)))) * _MIX
        value ^= value >> _SHIFT_32
        start += 8
    return value


@helper
def _smallest(ring: Any, first: int) -> Any:
    """Return the index of the last one of the smallest numbers in a ring that begins at `first`, and True if there are
    several."""
    best, smallest, is_tie = 0, get(ring, first), False
    slot = first
    for index in range(1, len(ring)):
        slot = slot + 1 if slot + 1 < len(ring) else 0
        number = get(ring, slot)
        if number <= smallest:
            is_tie = number == smallest
            best, smallest = index, number
    return best, is_tie


@helper
def _note(data: Any, found: Any, keys: Any, count: int, row: int, anchor: int, gram: int, first: int, end: int) -> int:
    """Add an anchor, for which there is space; return the new number of anchors."""
    found[count, 0] = row
    found[count, 1] = anchor
    found[count, 2] = first
    found[count, 3] = end
    keys[count, 0] = hash_bytes(data, anchor, anchor + gram)
    keys[count, 1] = _other_hash(data, anchor, anchor + gram)
    return count + 1


@kernel(types.int64(BYTES, INT64, INT64, types.int64, types.int64, _RING, OUT, _NEW_HASHES))
def _anchors(data: Any, starts: Any, ends: Any, length: int, gram: int, ring: Any, found: Any, keys: Any) -> int:
    """Fill the rows of anchors and return their number; `_FULL` if there is no space for all of them."""
    grams = length - gram + 1
    power = _ONE
    for _ in range(gram):
        power *= _BASE
    count = 0
    for row in range(len(starts)):
        start, end = get(starts, row), get(ends, row)
        if end - start < length:
            continue
        value = np.uint64(0)
        for position in range(start, start + gram):
            value = value * _BASE + np.uint64(get(data, position))
        best, last, slot, has_twin = -1, 0, 0, False
        smallest = np.uint64(0)
        for position in range(start, end - gram + 1):  # where a gram begins
            order = _order_of(value)
            put(ring, slot, order)
            slot = slot + 1 if slot + 1 < grams else 0
            if position + gram < end:
                value = value * _BASE + np.uint64(get(data, position + gram))
                value -= power * np.uint64(get(data, position))
            first = position - grams + 1  # where the stretch that ends with this gram begins
            if first < start:
                continue
            if best >= first:
                if order > smallest:
                    continue
                chosen, is_tie = position, order == smallest
            else:
                index, is_tie = _smallest(ring, slot)
                chosen = first + index
                if best >= 0:
                    found[last, 3] = first
                    best = -1
            if best >= 0 and is_tie:
                if has_twin:
                    continue
                chosen = best
            elif best >= 0:
                found[last, 3] = first
            if count + 2 > len(found):
                return _FULL
            if chosen != best:
                best, last, has_twin = chosen, count, False
                smallest = get(ring, (best - start) % grams)
                count = _note(data, found, keys, count, row, best, gram, first, end - length + 1)
            if is_tie:
                has_twin = True
                count = _note(data, found, keys, count, row, best, gram, first, first)
    return count


@primitive
def _product(_typing: Any, one: Any, other: Any) -> Any:
    """Return the product of two numbers below 2^61, its bits from 61 on added to the lower ones."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(*(builder.zext(argument, llvm_bits(128)) for argument in arguments))
        high = builder.trunc(builder.lshr(product, ir.Constant(llvm_bits(128), 61)), llvm_bits(64))
        low = builder.and_(builder.trunc(product, llvm_bits(64)), ir.Constant(llvm_bits(64), 2**61 - 1))
        return builder.add(low, high)

    return types.uint64(types.uint64, types.uint64), generate


@helper
def _reduced(value: Any) -> Any:
    """Return a number below 2^62 modulo 2^61 - 1."""
    return value - _PRIME if value >= _PRIME else value


@kernel(
    types.void(
        BYTES, types.Array(types.int64, 2, "C", readonly=True), types.int64, types.uint64, types.int64, _NEW_HASHES
    )
)
def _hash(data: Any, ranges: Any, length: int, base: Any, column: int, keys: Any) -> None:
    """Fill a column with the values of a polynomial."""
    power = _ONE
    for _ in range(length):
        power = _reduced(_product(power, base))
    count = 0
    behind = np.int64(-1)
    value = np.uint64(0)
    for number in range(len(ranges)):
        start = ranges[number, 0]
        if start != behind:
            value = np.uint64(0)
            for position in range(start, start + length):
                value = _reduced(_reduced(_product(value, base)) + np.uint64(get(data, position)))
        for first in range(start, ranges[number, 1]):
            keys[count, column] = value
            count += 1
            # The value of the next stretch; behind the last stretch of the texts it is not used.
            gone = _reduced(_product(power, np.uint64(get(data, first))))
            value = _reduced(_reduced(_product(value, base)) + np.uint64(get(data, first + length)))
            value = _reduced(value + _PRIME - gone)
        behind = ranges[number, 1]
