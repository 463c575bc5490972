# SPDX-License-Identifier: Apache-2.0
"""The parts that kernels are made of, each against the same in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import types

from thresher.kernels.build.intrinsics import (
    BYTES,
    get,
    hash_bytes,
    kernel,
    load8,
    low_bits,
    mask_equal,
    mask_folded,
    mask_range,
    popcount,
    put,
    same_bytes,
    trailing_zeros,
)

blocks = st.binary(min_size=80, max_size=80)


def as_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, dtype=np.uint8)


def as_mask(flags: list[bool]) -> int:
    return sum(flag << place for place, flag in enumerate(flags))


@kernel(types.UniTuple(types.uint64, 4)(BYTES, types.int64, types.uint8, types.uint8))
def masks(data: Any, place: int, low: int, high: int) -> Any:
    return (
        mask_equal(data, place, low),
        mask_folded(data, place, low),
        mask_range(data, place, low, high),
        load8(data, place),
    )


@kernel(types.UniTuple(types.int64, 3)(types.uint64, types.int64))
def bits(value: Any, number: int) -> Any:
    return popcount(value), trailing_zeros(value), np.int64(low_bits(number))


@kernel(types.uint64(BYTES, types.int64, types.int64))
def hash_of(data: Any, start: int, end: int) -> Any:
    return hash_bytes(data, start, end)


@kernel(types.boolean(BYTES, types.int64, types.int64, types.int64))
def is_same(data: Any, one: int, other: int, length: int) -> Any:
    return same_bytes(data, one, other, length)


@kernel(types.int32(types.int32[::1], types.int64, types.int64))
def put_and_get(array: Any, place: int, value: int) -> Any:
    put(array, place, value)
    return get(array, place)


@settings(deadline=None)
@given(data=blocks, place=st.integers(0, 16), low=st.integers(0, 255), width=st.integers(0, 255))
def test_a_mask_has_a_bit_for_each_of_64_bytes(data: bytes, place: int, low: int, width: int) -> None:
    high = min(low + width, 255)
    block = data[place : place + 64]
    equal, folded, between, eight = masks(as_array(data), place, low, high)
    assert int(equal) == as_mask([byte == low for byte in block])
    assert int(folded) == as_mask([byte | 0x20 == low for byte in block])
    assert int(between) == as_mask([low <= byte <= high for byte in block])
    assert int(eight) == int.from_bytes(block[:8], "little")


@pytest.mark.parametrize("value", [0, 1, 2, 0x80, 2**63, 2**64 - 1, 0x5555555555555555])
def test_bits_are_counted_and_found(value: int) -> None:
    lowest = (value & -value).bit_length() - 1 if value else 64
    assert bits(np.uint64(value), 0)[:2] == (value.bit_count(), lowest)


@pytest.mark.parametrize("number", [0, 1, 8, 63, 64])
def test_low_bits(number: int) -> None:
    assert bits(np.uint64(0), number)[2] % 2**64 == 2**number - 1


@settings(deadline=None)
@given(data=st.binary(max_size=50), before=st.binary(max_size=9), behind=st.binary(max_size=9))
def test_a_hash_depends_on_the_bytes_alone_and_not_on_what_is_around_them(
    data: bytes, before: bytes, behind: bytes
) -> None:
    alone = hash_of(as_array(data + bytes(64)), 0, len(data))
    array = as_array(before + data + behind + b"\xff" * 64)
    assert hash_of(array, len(before), len(before) + len(data)) == alone


def test_hashes_of_similar_bytes_differ() -> None:
    pieces = [f"{word} {number}".encode() for word in ("", "line", "a longer line of text") for number in range(20_000)]
    pieces += [b"x" * length for length in range(200)] + [bytes(length) for length in range(200)]
    hashes = {int(hash_of(as_array(piece + bytes(64)), 0, len(piece))) for piece in pieces}
    assert len(hashes) == len(set(pieces))


@settings(deadline=None)
@given(data=st.binary(min_size=1, max_size=40), other=st.binary(max_size=40), place=st.integers(0, 39))
def test_bytes_are_the_same_if_every_one_is(data: bytes, other: bytes, place: int) -> None:
    changed = bytearray(data)
    changed[place % len(data)] ^= 1
    array = as_array(data + other + data + other + bytes(changed) + bytes(64))
    step = len(data) + len(other)
    assert is_same(array, 0, step, len(data))
    assert not is_same(array, 0, 2 * step, len(data))


def test_elements_are_written_and_read() -> None:
    array = np.zeros(3, dtype=np.int32)
    assert put_and_get(array, 1, -5) == -5
    assert array.tolist() == [0, -5, 0]
