# SPDX-License-Identifier: Apache-2.0
"""Kernels without Numba: machine code from the cache folder, copied into memory and called.

Numba takes longer to import than everything else that a run starts with. So when it has compiled a kernel, the machine
code is kept a second time, in a form that needs no loader (`native_link`). That what is loaded in this way gives the
same as what Numba loads is tried after compiling, in processes of their own, and it is used from then on where that
went well. A kernel that cannot be kept or loaded in this way is loaded by Numba.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import operator
import os
import struct
import zlib
from collections.abc import Callable
from functools import cache as once
from typing import Any

import msgspec
import numpy as np

from thresher.kernels import cache
from thresher.kernels.native_entry import ENTRY, HEADER_BYTES, NoEntry, compile_entry, parameters_of
from thresher.kernels.native_link import CannotLink, link
from thresher.kernels.proven import native_is_wanted
from thresher.kernels.signatures import Array, Items, Scalar, Signature

_C_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400
_FINE = (0, -2)
"""What machine code gives where it has raised nothing."""


def load(function: Callable[..., Any], signature: Signature, compiled: Callable[[], Any]) -> Any:
    """A kernel that is in the cache folder and may be loaded from there, or None. `compiled` makes that of Numba."""
    if not native_is_wanted() or not _knows_arrays():
        return None
    try:
        with open(_path(function), "rb") as file:
            content = file.read()
        return NativeKernel(function, signature, _address(content), compiled)
    except (OSError, ValueError, KeyError, NoEntry, AttributeError):
        return None  # it was never kept, is damaged, or memory cannot be made executable: Numba knows what to do


def keep(function: Callable[..., Any], signature: Signature, dispatcher: Any) -> None:
    """Keep a kernel that Numba has just compiled; where that is not possible, there is none."""
    with contextlib.suppress(OSError, CannotLink, NoEntry, AttributeError, RuntimeError, ValueError):
        (overload,) = dispatcher.overloads.values()
        code: bytes = overload.library.serialize_using_object_code()[2][0]
        name: str = overload.fndesc.llvm_func_name
        image = link([code, compile_entry(signature, name)], ENTRY)
        header = {"entry": image.entry, "own": image.own, "outside": image.outside, "check": zlib.crc32(image.content)}
        beside = f"{_path(function)}.{os.getpid()}"
        with open(beside, "wb") as file:
            file.write(msgspec.json.encode(header) + b"\n" + image.content)
        os.replace(beside, _path(function))


@once
def _knows_arrays() -> bool:
    """Whether arrays lie in memory as the entries of kernels take for granted."""
    array = np.zeros((3, 5), dtype=np.uint8)
    data, _, sizes = (ctypes.c_int64 * 3).from_address(id(array) + HEADER_BYTES)
    return data == array.ctypes.data and tuple((ctypes.c_int64 * 2).from_address(sizes)) == array.shape


def _address(content: bytes) -> int:
    """Copy the machine code of a file into memory for good; where its function is."""
    first, _, image = content.partition(b"\n")
    header = msgspec.json.decode(first)
    if zlib.crc32(image) != header["check"]:
        raise ValueError("the file is damaged")
    memory = mmap.mmap(
        -1, len(image), prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    )
    _kept.append(memory)
    memory.write(image)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for place, target in header["own"]:
        struct.pack_into("<Q", memory, place, start + target)
    for place, name in header["outside"]:
        struct.pack_into("<Q", memory, place, _in_library(name))
    _make_executable(start, len(image))
    return start + int(header["entry"])


def _make_executable(start: int, length: int) -> None:
    """From now on memory is run and read, and not written."""
    library = ctypes.CDLL(None, use_errno=True)
    size = ctypes.c_size_t(-(-length // mmap.PAGESIZE) * mmap.PAGESIZE)
    if library.mprotect(ctypes.c_void_p(start), size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise OSError(ctypes.get_errno(), "memory cannot be made executable")


_kept: list[mmap.mmap] = []
"""Memory with machine code: it stays as long as the process."""


@once
def _in_library(name: str) -> int:
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value or 0


def _path(function: Callable[..., Any]) -> str:
    module = function.__module__.rpartition(".")[2]
    return os.path.join(cache.folder(), f"{module}.{function.__qualname__}.native")


class NativeKernel:
    """A kernel whose machine code was loaded from the cache folder. Other threads go on while it runs."""

    def __init__(
        self, function: Callable[..., Any], signature: Signature, address: int, compiled: Callable[[], Any]
    ) -> None:
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        parameters = parameters_of(signature)
        self._wanted = [_wanted(kind) for kind in parameters]
        self._has_tuples = any(isinstance(kind, Items) for kind in signature.parameters)
        self._result = _RESULTS[signature.result.name]
        self._numbers = [place for place, kind in enumerate(parameters) if isinstance(kind, Scalar)]
        takes = [ctypes.c_int64 if isinstance(kind, Scalar) else ctypes.py_object for kind in parameters]
        self._entry = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, *takes)(address)
        self._compiled = compiled

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks for when a kernel that it compiles calls this one."""
        return self._compiled()._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        values = _flat(arguments) if self._has_tuples else list(arguments)
        if len(values) != len(self._wanted):
            raise TypeError(f"the kernel {self.__name__} takes {len(self._wanted)} values, not {len(values)}")
        for value, wanted in zip(values, self._wanted, strict=True):
            if wanted is not None and not (
                isinstance(value, np.ndarray)
                and value.dtype == wanted[0]
                and value.ndim == wanted[1]
                and value.flags.num & wanted[2] == wanted[2]
            ):
                raise TypeError(f"the kernel {self.__name__} takes {_told(wanted)}, not {_shown(value)}")
        for place in self._numbers:
            values[place] = operator.index(values[place])  # a number of NumPy's is one too
        result = ctypes.c_int64()
        status = self._entry(ctypes.addressof(result), *values)
        if status not in _FINE:
            raise RuntimeError(f"the kernel {self.__name__} ended with status {status}, which is a fault of Thresher")
        return self._result(result.value)


def _wanted(kind: Scalar | Array) -> tuple[np.dtype[Any], int, int] | None:
    """The type of the items, the dimensions and the flags that an array must have; None for a number."""
    if isinstance(kind, Scalar):
        return None
    flags = _C_CONTIGUOUS | _ALIGNED | (0 if kind.readonly else _WRITEABLE)
    return np.dtype("bool" if kind.item.name == "boolean" else kind.item.name), kind.ndim, flags


def _flat(values: tuple[Any, ...]) -> list[Any]:
    flat: list[Any] = []
    for value in values:
        if isinstance(value, tuple):
            flat += _flat(value)
        else:
            flat.append(value)
    return flat


def _nothing(_value: int) -> None:
    return None


_RESULTS: dict[str, Callable[[int], Any]] = {"void": _nothing, "boolean": bool, "int64": int}
"""How what the machine code has given is read."""


def _told(wanted: tuple[np.dtype[Any], int, int]) -> str:
    return f"a {'written' if wanted[2] & _WRITEABLE else 'read'} C array of {wanted[0]} with {wanted[1]} dimensions"


def _shown(value: Any) -> str:
    if not isinstance(value, np.ndarray):
        return f"a {type(value).__name__}"
    return f"one of {value.dtype} with {value.ndim} dimensions and the flags {value.flags.num:#x}"
