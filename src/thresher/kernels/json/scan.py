# SPDX-License-Identifier: Apache-2.0
"""Primitives of JSON scanners: single bytes, and masks of 64 bytes at which a string may stop.

They are generated as LLVM code because Numba checks every index for being negative and never builds masks itself.
Nothing here checks bounds: callers do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.decorators import inlined as inlined
from thresher.kernels.build.decorators import ir, llvm_bits, llvm_block, numba_types, primitive
from thresher.kernels.build.signatures import types

_QUOTE, _BACKSLASH, _FIRST_PRINTABLE = 34, 92, 32

Bytes = npt.NDArray[np.uint8]
BYTES_OUT = types.Array(types.uint8, 1, "C")
"""Bytes that a kernel writes."""


def _primitive(function: Callable[..., Any]) -> Callable[..., int]:
    """Return a primitive with one result."""
    return primitive(function)


def _primitives(function: Callable[..., Any]) -> Callable[..., tuple[int, ...]]:
    """Return a primitive with several results."""
    return primitive(function)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    """Return a pointer to one byte of an array."""
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _block_at(builder: Any, position: Any) -> Any:
    return builder.bitcast(position, llvm_block().as_pointer())


def _int64s(count: int) -> Any:
    """Return the type of so many integers together."""
    return numba_types.UniTuple(numba_types.int64, count)


def _everywhere(value: int) -> Any:
    """Return a block of equal bytes."""
    return ir.Constant(llvm_block(), [ir.Constant(llvm_bits(8), value)] * 64)


@_primitive
def byte_at(_typing: Any, data: Any, index: Any) -> Any:
    """Return one byte as a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = _pointer(context, builder, signature.args[0], *arguments)
        return builder.zext(builder.load(position), llvm_bits(64))

    return types.int64(data, types.int64), generate


@_primitive
def put_byte(_typing: Any, data: Any, index: Any, value: Any) -> Any:
    """Write one byte."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, index, value = arguments
        position = _pointer(context, builder, signature.args[0], array, index)
        builder.store(builder.trunc(value, llvm_bits(8)), position)
        return context.get_dummy_value()

    return types.void(data, types.int64, types.int64), generate


@_primitive
def string_stops(_typing: Any, data: Any, index: Any) -> Any:
    """Return which of 64 bytes are a quotation mark, a backslash or a control character."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = _pointer(context, builder, signature.args[0], *arguments)
        block = builder.load(_block_at(builder, position), align=1)
        return _stops(builder, block)

    return types.int64(data, types.int64), generate


@_primitives
def string_marks(_typing: Any, data: Any, index: Any) -> Any:
    """Return which of 64 bytes are backslashes, and which are quotation marks or control characters."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = _pointer(context, builder, signature.args[0], *arguments)
        block = builder.load(_block_at(builder, position), align=1)
        backslashes = builder.icmp_unsigned("==", block, _everywhere(_BACKSLASH))
        quotes = builder.icmp_unsigned("==", block, _everywhere(_QUOTE))
        controls = builder.icmp_unsigned("<", block, _everywhere(_FIRST_PRINTABLE))
        masks = [builder.bitcast(mask, llvm_bits(64)) for mask in (backslashes, builder.or_(quotes, controls))]
        return context.make_tuple(builder, signature.return_type, masks)

    return _int64s(2)(data, types.int64), generate


@_primitive
def copy_block(_typing: Any, data: Any, index: Any, out: Any, out_index: Any) -> Any:
    """Copy 64 bytes."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data, index, out, out_index = arguments
        source = _pointer(context, builder, signature.args[0], data, index)
        target = _pointer(context, builder, signature.args[2], out, out_index)
        builder.store(builder.load(_block_at(builder, source), align=1), _block_at(builder, target), align=1)
        return context.get_dummy_value()

    return types.void(data, types.int64, out, types.int64), generate


@_primitive
def high_bytes(_typing: Any, data: Any, index: Any) -> Any:
    """Return which of 64 bytes are not ASCII."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = _pointer(context, builder, signature.args[0], *arguments)
        block = builder.load(_block_at(builder, position), align=1)
        return builder.bitcast(builder.icmp_signed("<", block, _everywhere(0)), llvm_bits(64))

    return types.int64(data, types.int64), generate


@_primitives
def utf8_kinds(_typing: Any, data: Any, index: Any) -> Any:
    """Return five masks of 64 bytes: continuation bytes; first bytes of characters of two bytes or more, of three or
    more, of four or more; and first bytes that do not allow every continuation byte, or none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        position = _pointer(context, builder, signature.args[0], *arguments)
        block = builder.load(_block_at(builder, position), align=1)
        from_two = builder.icmp_unsigned(">=", block, _everywhere(0xC0))
        high = builder.icmp_signed("<", block, _everywhere(0))
        doubtful = builder.icmp_unsigned(">", block, _everywhere(0xF3))
        for byte in (0xC0, 0xC1, 0xE0, 0xED, 0xF0):
            doubtful = builder.or_(doubtful, builder.icmp_unsigned("==", block, _everywhere(byte)))
        kinds = [
            builder.xor(high, from_two),
            from_two,
            builder.icmp_unsigned(">=", block, _everywhere(0xE0)),
            builder.icmp_unsigned(">=", block, _everywhere(0xF0)),
            doubtful,
        ]
        return context.make_tuple(
            builder, signature.return_type, [builder.bitcast(kind, llvm_bits(64)) for kind in kinds]
        )

    return _int64s(5)(data, types.int64), generate


def _stops(builder: Any, block: Any) -> Any:
    quotes = builder.icmp_unsigned("==", block, _everywhere(_QUOTE))
    backslashes = builder.icmp_unsigned("==", block, _everywhere(_BACKSLASH))
    controls = builder.icmp_unsigned("<", block, _everywhere(_FIRST_PRINTABLE))
    return builder.bitcast(builder.or_(builder.or_(quotes, backslashes), controls), llvm_bits(64))


@_primitive
def count_bits(_typing: Any, bits: Any) -> Any:
    """Return how many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.int64), generate


@_primitive
def first_bit(_typing: Any, bits: Any) -> Any:
    """Return the number of the lowest bit that is set; 64 where there is none."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.int64), generate
