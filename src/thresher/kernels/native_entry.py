# SPDX-License-Identifier: Apache-2.0
"""The function through which the machine code of a kernel is called without Numba.

What Numba compiles takes every array as seven numbers or more. This one takes NumPy's own objects, reads where their
data is, and calls it. Nothing here checks an argument: who calls it does.
"""

from __future__ import annotations

import sys
from typing import Any

from thresher.kernels.signatures import Array, Items, Scalar, Signature

ENTRY = "thresher_entry"
"""The name of the function."""
HEADER_BYTES = object.__basicsize__
"""What every object of Python begins with; NumPy puts the place of the data behind it, then the number of dimensions
and where their sizes are."""
_SIZES = HEADER_BYTES + 16
_OK, _NONE = 0, -2
"""What machine code of Numba gives where it has raised nothing."""
_BYTES = {"boolean": 1, "uint8": 1, "uint16": 2, "uint32": 4, "int32": 4, "uint64": 8, "int64": 8, "float64": 8}


class NoEntry(Exception):
    """The signature has something that is not known here."""


def parameters_of(signature: Signature) -> list[Scalar | Array]:
    """What a kernel takes, with the values of tuples one by one."""
    found: list[Scalar | Array] = []
    for kind in signature.parameters:
        if isinstance(kind, Items):
            found += parameters_of(Signature(signature.result, kind.kinds))
        else:
            found.append(kind)
    if any(isinstance(kind, Scalar) and kind.name != "int64" for kind in found):
        raise NoEntry("a number that is no int64")
    return found


def compile_entry(signature: Signature, native: str) -> bytes:
    """An object file with the function; `native` is the name of what it calls."""
    if signature.result.name not in ("void", "boolean", "int64"):
        raise NoEntry(f"a result that is {signature.result.name}")
    if sys.maxsize < 2**63 - 1:
        raise NoEntry("addresses of less than 64 bits")
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(str(_module(signature, native)))
    module.verify()
    made: bytes = (
        binding.Target.from_default_triple().create_target_machine(opt=2, codemodel="large").emit_object(module)
    )
    return made


def _module(signature: Signature, native: str) -> Any:
    """`int32 entry(int64 *result, …)`, with an object for every array and an int64 for every number."""
    from llvmlite import ir

    word, status = ir.IntType(64), ir.IntType(32)
    parameters = parameters_of(signature)
    widths = [2 * kind.ndim + 5 if isinstance(kind, Array) else 1 for kind in parameters]
    module = ir.Module(name="entry")
    called = ir.Function(module, ir.FunctionType(status, [word] * (2 + sum(widths))), native)
    entry = ir.Function(module, ir.FunctionType(status, [word] * (1 + len(parameters))), ENTRY)
    builder = ir.IRBuilder(entry.append_basic_block())
    held = [builder.alloca(word) for _ in range(2)]  # the result, and what an error would be told with
    for one in held:
        builder.store(ir.Constant(word, 0), one)
    values = [builder.ptrtoint(one, word) for one in held]
    for kind, argument in zip(parameters, entry.args[1:], strict=True):
        values += _array(builder, kind, argument) if isinstance(kind, Array) else [argument]
    code = builder.call(called, values)
    builder.store(builder.load(held[0]), builder.inttoptr(entry.args[0], word.as_pointer()))
    builder.ret(code)
    return module


def _array(builder: Any, kind: Array, argument: Any) -> list[Any]:
    """An array as Numba takes it: who owns it (twice), how many items, their size, the data, sizes and steps."""
    from llvmlite import ir

    word = ir.IntType(64)

    def number(value: int) -> Any:
        return ir.Constant(word, value)

    def at(address: Any, offset: int) -> Any:
        return builder.load(builder.inttoptr(builder.add(address, number(offset)), word.as_pointer()))

    data, sizes_at = at(argument, HEADER_BYTES), at(argument, _SIZES)
    sizes = [at(sizes_at, 8 * axis) for axis in range(kind.ndim)]
    item = number(_BYTES[kind.item.name])
    steps, items = [item], sizes[-1]
    for size in reversed(sizes[:-1]):
        steps.insert(0, builder.mul(items, item))
        items = builder.mul(items, size)
    return [number(0), number(0), items, item, data, *sizes, *steps]
