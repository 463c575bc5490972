# SPDX-License-Identifier: Apache-2.0
"""Load compiled kernels with llvmlite alone, and call them through ctypes.

Importing Numba takes longer than the rest of a warm start. So when Numba has compiled a kernel, its machine code is
stored a second time, as an object file without the wrappers for the interpreter. After compiling, separate processes
check that kernels loaded in this way return the same results as those that Numba loads; only then are they used. A
kernel that cannot be stored or loaded in this way is loaded by Numba.
"""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from functools import cache as once
from typing import Any

import numpy as np

from thresher.kernels.build import cache
from thresher.kernels.build.cache import module_of, uses_native_loading
from thresher.kernels.build.signatures import Array, Items, Scalar, Signature

_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_SUCCESS = (0, -2)
"""Status codes of Numba's machine code if nothing was raised; -2 stands for the result None."""
_LIBRARY = frozenset({"memcpy", "memmove", "memset", "memcmp"})
"""Functions outside of the object file that a kernel may call."""
_NO_DESTRUCTOR = "define void @NRT_MemInfo_call_dtor(i64 %memory) { ret void }"
"""Replaces the function of Numba's runtime that frees an array which a kernel allocated: kernels allocate none."""


class Unsupported(Exception):
    """The kernel cannot be loaded or called without Numba."""


def load(function: Callable[..., Any], signature: Signature, compiled: Callable[[], Any]) -> Any:
    """Load a kernel from the cache folder, or return None if Numba has to load it. `compiled` returns Numba's own."""
    if not uses_native_loading():
        return None
    try:
        with open(_path(function), "rb") as file:
            content = file.read()
        return NativeKernel(function, signature, _address(content), compiled)
    except (OSError, ValueError, KeyError, Unsupported, AttributeError, ImportError, RuntimeError):
        return None  # never stored, damaged, or stored by another version


def keep(function: Callable[..., Any], signature: Signature, dispatcher: Any) -> None:
    """Store the machine code of a kernel that Numba has just compiled, unless that is not possible."""
    with contextlib.suppress(OSError, Unsupported, AttributeError, RuntimeError, ValueError):
        parameters_of(signature)
        if dispatcher.stats.cache_hits:
            return  # loaded, not compiled: its assembly is not known
        (overload,) = dispatcher.overloads.values()
        library, name = overload.library, overload.fndesc.llvm_func_name
        code = object_code(library.get_llvm_str(), name, library.codegen._tm)
        temporary = f"{_path(function)}.{os.getpid()}"
        with open(temporary, "wb") as file:
            file.write(f"{zlib.crc32(code)} {name}\n".encode() + code)
        os.replace(temporary, _path(function))


def parameters_of(signature: Signature) -> list[Scalar | Array]:
    """Return the parameters of a kernel, with tuples flattened."""
    if signature.result.name not in _RESULTS:
        raise Unsupported(f"the result is {signature.result.name}")
    if sys.maxsize < 2**63 - 1:
        raise Unsupported("addresses have less than 64 bits")
    found: list[Scalar | Array] = []
    for kind in signature.parameters:
        if isinstance(kind, Items):
            found += parameters_of(Signature(signature.result, kind.kinds))
        else:
            found.append(kind)
    if any(isinstance(kind, Scalar) and kind.name != "int64" for kind in found):
        raise Unsupported("a parameter is a number other than int64")
    return found


def object_code(assembly: str, name: str, machine: Any) -> bytes:
    """Compile LLVM assembly to an object file that has the function `name` and what it calls, and nothing else."""
    from llvmlite import binding

    module = binding.parse_assembly(assembly)
    module.link_in(binding.parse_assembly(_NO_DESTRUCTOR))
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
    passes = binding.create_new_module_pass_manager()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, binding.create_pass_builder(machine, binding.create_pipeline_tuning_options(speed_level=0)))
    for function in module.functions:
        if function.is_declaration and not function.name.startswith("llvm.") and function.name not in _LIBRARY:
            raise Unsupported(f"the kernel calls {function.name}")
    code: bytes = machine.emit_object(module)
    return code


@once
def _engine() -> Any:
    """Return what links object files into this process; machine code stays until the process ends."""
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(codemodel="jitdefault", jit=True)
    return binding.create_mcjit_compiler(binding.parse_assembly(""), machine)


def _address(content: bytes) -> int:
    """Load the machine code of a file and return the address of its function."""
    from llvmlite import binding

    header, _, code = content.partition(b"\n")
    checksum, _, name = header.decode().partition(" ")
    if zlib.crc32(code) != int(checksum):
        raise ValueError("the file is damaged")
    engine = _engine()
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address: int = engine.get_function_address(name)
    if not address:
        raise ValueError(f"the file has no function {name}")
    return address


def _path(function: Callable[..., Any]) -> str:
    module = module_of(function)
    return os.path.join(cache.folder(), f"{module}.{function.__qualname__}.native")


class NativeKernel:
    """A kernel whose machine code was loaded from the cache folder. It runs without the interpreter's lock."""

    def __init__(
        self, function: Callable[..., Any], signature: Signature, address: int, compiled: Callable[[], Any]
    ) -> None:
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        parameters = parameters_of(signature)
        self._required = [_required(kind) for kind in parameters]
        self._has_tuples = any(isinstance(kind, Items) for kind in signature.parameters)
        self._result = _RESULTS[signature.result.name]
        # Numba passes addresses of the result and of an error, and every array as several numbers.
        words = 2 + sum(2 * kind.ndim + 5 if isinstance(kind, Array) else 1 for kind in parameters)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *([ctypes.c_int64] * words))(address)
        self._compiled = compiled

    @property
    def _numba_type_(self) -> Any:
        """Return the type that Numba needs to compile a kernel that calls this one."""
        return self._compiled()._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        values = list(_flattened(arguments)) if self._has_tuples else arguments
        if len(values) != len(self._required):
            raise TypeError(f"the kernel {self.__name__} takes {len(self._required)} values, not {len(values)}")
        numbers: list[int] = []
        for value, required in zip(values, self._required, strict=True):
            if required is None:
                numbers.append(operator.index(value))  # accepts NumPy's integers too
                continue
            dtype, ndim, flags = required
            if not (
                isinstance(value, np.ndarray)
                and value.dtype == dtype
                and value.ndim == ndim
                and value.flags.num & flags == flags
            ):
                raise TypeError(f"the kernel {self.__name__} takes {_expectation(required)}, not {_description(value)}")
            # No owner (twice), the items, the bytes of an item, the address, the shape and the strides.
            numbers += (0, 0, value.size, dtype.itemsize, value.ctypes.data, *value.shape, *value.strides)
        result, error = ctypes.c_int64(), ctypes.c_int64()
        status = self._function(ctypes.addressof(result), ctypes.addressof(error), *numbers)
        if status not in _SUCCESS:
            raise RuntimeError(f"the kernel {self.__name__} ended with status {status}, which is a bug in Thresher")
        return self._result(result.value)


_Required = tuple[np.dtype[Any], int, int]
"""The type of the items, the number of dimensions and the flags that an array must have."""


def _required(kind: Scalar | Array) -> _Required | None:
    """Return what an array must be; None for a number."""
    if isinstance(kind, Scalar):
        return None
    flags = _C_CONTIGUOUS | _ALIGNED | (0 if kind.readonly else _WRITEABLE)
    return np.dtype("bool" if kind.item.name == "boolean" else kind.item.name), kind.ndim, flags


def _flattened(values: tuple[Any, ...]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, tuple):
            yield from _flattened(value)
        else:
            yield value


def _no_result(_value: int) -> None:
    return None


_RESULTS: dict[str, Callable[[int], Any]] = {"void": _no_result, "boolean": bool, "int64": int}
"""Converters of the results that are supported, by the name of the type."""


def _expectation(required: _Required) -> str:
    dtype, ndim, flags = required
    return f"a {'writable' if flags & _WRITEABLE else 'readable'} C array of {dtype} with {ndim} dimensions"


def _description(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    return f"one of {value.dtype} with {value.ndim} dimensions and the flags {value.flags.num:#x}"
