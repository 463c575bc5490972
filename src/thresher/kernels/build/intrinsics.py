# SPDX-License-Identifier: Apache-2.0
"""Building blocks of kernels: masks of 64 bytes, bit operations, and array elements without Numba's check for negative
indices.

A mask has one bit for each of 64 bytes, the first byte in the lowest bit. The vector code is LLVM's and independent of
the processor. Nothing here checks bounds: callers do.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from thresher.kernels.build.decorators import helper as helper
from thresher.kernels.build.decorators import ir, llvm_bits, llvm_block, numba_types, primitive
from thresher.kernels.build.decorators import kernel as kernel
from thresher.kernels.build.signatures import types

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
"""Bytes that are only read; read-only arrays are accepted."""
INT32 = types.Array(types.int32, 1, "C", readonly=True)
"""32-bit numbers that are only read."""
INT64 = types.Array(types.int64, 1, "C", readonly=True)
"""64-bit numbers that are only read."""
TABLE32 = types.Array(types.int32, 2, "C", readonly=True)
"""Rows of 32-bit numbers that are only read."""
OUT = types.Array(types.int64, 2, "C")
"""Rows of 64-bit numbers that a kernel writes."""

NONE, ONE, ALL = np.uint64(0), np.uint64(1), np.uint64(2**64 - 1)
"""Masks: no bit, the lowest, every bit."""

integer: Any = np.int64
"""Converts anything in a kernel to a 64-bit integer; typed as Any for the type checker."""

_MULTIPLIER, _OTHER_MULTIPLIER = np.uint64(0xFF3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)


# -- elements of arrays ---------------------------------------------------------------------------------------------


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index], inbounds=True)


@primitive
def get(_typing: Any, array: Any, index: Any) -> Any:
    """`array[index]` of an array of one dimension."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = _pointer(context, builder, signature.args[0], *arguments)
        return context.unpack_value(builder, signature.return_type, position)

    return array.dtype(array, types.int64), generate


@primitive
def put(_typing: Any, array: Any, index: Any, value: Any) -> Any:
    """`array[index] = value` for an array of one dimension."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held, index, value = arguments
        position = _pointer(context, builder, signature.args[0], held, index)
        context.pack_value(builder, signature.args[2], value, position)
        return context.get_dummy_value()

    return types.void(array, types.int64, array.dtype), generate


@primitive
def flattened(_typing: Any, array: Any) -> Any:
    """Return the items of an array as one of one dimension; it must not outlive the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        given = context.make_array(signature.args[0])(context, builder, arguments[0])
        made = context.make_array(signature.return_type)(context, builder)
        populate: Any = importlib.import_module("numba.np.arrayobj").populate_array
        populate(made, given.data, [given.nitems], [given.itemsize], given.itemsize, None)
        return made._getvalue()

    return numba_types.Array(array.dtype, 1, "C", readonly=not array.mutable)(array), generate


@primitive
def load8(_typing: Any, data: Any, index: Any) -> Any:
    """Return eight bytes from `index` on as a number, the first byte lowest."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load(builder.bitcast(position, llvm_bits(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), generate


@primitive
def put8(_typing: Any, data: Any, index: Any, value: Any) -> Any:
    """Write eight bytes from `index` on, the lowest of the number first."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held, index, value = arguments
        position = _pointer(context, builder, signature.args[0], held, index)
        builder.store(value, builder.bitcast(position, llvm_bits(64).as_pointer()), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.uint64), generate


# -- masks of 64 bytes ----------------------------------------------------------------------------------------------


def _block(context: Any, builder: Any, kind: Any, data: Any, index: Any) -> Any:
    position = _pointer(context, builder, kind, data, index)
    return builder.load(builder.bitcast(position, llvm_block().as_pointer()), align=1)


def _spread(builder: Any, byte: Any) -> Any:
    """Return the same byte 64 times."""
    one = builder.insert_element(ir.Constant(llvm_block(), ir.Undefined), byte, ir.Constant(llvm_bits(32), 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(llvm_bits(32), 64), [0] * 64))


@primitive
def mask_equal(_typing: Any, data: Any, index: Any, byte: Any) -> Any:
    """Return which of 64 bytes are `byte`."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held, index, byte = arguments
        block = _block(context, builder, signature.args[0], held, index)
        return builder.bitcast(builder.icmp_unsigned("==", block, _spread(builder, byte)), llvm_bits(64))

    return types.uint64(data, types.int64, types.uint8), generate


@primitive
def mask_folded(_typing: Any, data: Any, index: Any, letter: Any) -> Any:
    """Return which of 64 bytes are an ASCII letter, given in lower case, in either case."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held, index, letter = arguments
        block = _block(context, builder, signature.args[0], held, index)
        small = builder.or_(block, _spread(builder, ir.Constant(llvm_bits(8), 0x20)))
        return builder.bitcast(builder.icmp_unsigned("==", small, _spread(builder, letter)), llvm_bits(64))

    return types.uint64(data, types.int64, types.uint8), generate


@primitive
def mask_range(_typing: Any, data: Any, index: Any, low: Any, high: Any) -> Any:
    """Return which of 64 bytes lie between `low` and `high`, both included."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        held, index, low, high = arguments
        block = _block(context, builder, signature.args[0], held, index)
        above = builder.sub(block, _spread(builder, low))
        width = _spread(builder, builder.sub(high, low))
        return builder.bitcast(builder.icmp_unsigned("<=", above, width), llvm_bits(64))

    return types.uint64(data, types.int64, types.uint8, types.uint8), generate


# -- bits -----------------------------------------------------------------------------------------------------------


@primitive
def popcount(_typing: Any, bits: Any) -> Any:
    """Return how many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate


@primitive
def trailing_zeros(_typing: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set; 64 if none is."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(llvm_bits(1), 0))

    return types.int64(types.uint64), generate


@helper
def low_bits(number: int) -> Any:
    """Return a mask with the `number` lowest bits set, from 0 to 64 of them."""
    if number >= 64:
        return ALL
    return (ONE << np.uint64(number)) - ONE


# -- bytes of texts -------------------------------------------------------------------------------------------------


@primitive
def _folded_product(_typing: Any, one: Any, other: Any) -> Any:
    """Return the product of two 64-bit numbers in 128 bits, its halves combined."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(*(builder.zext(argument, llvm_bits(128)) for argument in arguments))
        high = builder.lshr(product, ir.Constant(llvm_bits(128), 64))
        return builder.trunc(builder.xor(product, high), llvm_bits(64))

    return types.uint64(types.uint64, types.uint64), generate


@helper
def hash_bytes(data: Any, start: int, end: int) -> Any:
    """Return a 64-bit hash of bytes."""
    value = np.uint64(end - start) * _OTHER_MULTIPLIER
    position = start
    while end - position > 16:
        value = _folded_product(load8(data, position) ^ _MULTIPLIER, load8(data, position + 8) ^ value)
        position += 16
    left = end - position
    first = load8(data, position) & low_bits(8 * min(left, 8))
    second = load8(data, position + 8) & low_bits(8 * (left - 8)) if left > 8 else NONE
    return _folded_product(_folded_product(first ^ _MULTIPLIER, second ^ value), _OTHER_MULTIPLIER)


@helper
def same_bytes(data: Any, one: int, other: int, length: int) -> bool:
    """Return True if `length` bytes are the same at two positions."""
    done = 0
    while length - done >= 8:
        if load8(data, one + done) != load8(data, other + done):
            return False
        done += 8
    left = low_bits(8 * (length - done))
    return bool((load8(data, one + done) & left) == (load8(data, other + done) & left))
