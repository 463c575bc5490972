# SPDX-License-Identifier: Apache-2.0
"""What makes kernels of functions. A kernel whose machine code is in the cache folder is ready without Numba, which is
imported when the first one has to be compiled, or loaded in Numba's own way."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

from thresher.kernels import native, quick_load
from thresher.kernels.cache import use_own_folder
from thresher.kernels.proven import QUICKLY
from thresher.kernels.signatures import Signature, as_numba

# Kernels are loaded or compiled as their modules are imported, and all of those import this one first.
use_own_folder()

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}


class _Later:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


ir: Any = _Later("llvmlite.ir")
"""LLVM's own language, for primitives."""
numba_types: Any = _Later("numba.types")
"""Numba's types, for primitives that need more than `signatures` has."""


def llvm_bits(number: int) -> Any:
    """LLVM's type of so many bits."""
    return ir.IntType(number)


def llvm_block() -> Any:
    """LLVM's type of 64 bytes."""
    return ir.VectorType(llvm_bits(8), 64)


class _Part:
    """A function that kernels call. Numba is given it when it compiles one of them, and asks for its type."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        self._function = function
        self._make = make
        self._made: Any = None
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def compiled(self) -> Any:
        """Numba's own object."""
        if self._made is None:
            self._made = self._make(self._function)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        made = self.compiled()
        typing = _module("numba.core.registry").cpu_target.typing_context
        typing.refresh()  # it has to know of what was made after the compiler began
        return typing.resolve_value_type(made)

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled()(*arguments)


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Compile a loop for these types of arguments: once for a machine, and without holding the interpreter."""

    def made(function: Function) -> Function:
        ready: Any = None
        if isinstance(signature, Signature):
            ready = native.load(function, signature, lambda: _compiled(function, signature))
        return cast(Function, ready or _compiled(function, signature))

    return made


def helper(function: Function) -> Function:
    """Compile what kernels call, as a part of them."""
    return cast(Function, _Part(function, lambda given: _numba().njit(given, **_OPTIONS)))


def inlined(function: Function) -> Function:
    """Compile what kernels call for single bytes into the place of the call: a call costs more than they do."""
    return cast(Function, _Part(function, lambda given: _numba().njit(given, forceinline=True, **_OPTIONS)))


def primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    """What kernels call with values; the function is called with their types, and says how to compile it."""

    @functools.wraps(function)
    def typed(*kinds: Any) -> Any:
        found = function(*kinds)
        return found and (as_numba(found[0]), found[1])

    return _Part(typed, lambda given: _module("numba.extending").intrinsic(given))


def _compiled(function: Callable[..., Any], signature: Any) -> Any:
    """Compile with Numba, or load what it compiled before."""
    dispatcher = _numba().njit(as_numba(signature), cache=True, **_OPTIONS)(function)
    if isinstance(signature, Signature):
        native.keep(function, signature, dispatcher)
    return dispatcher


@functools.cache
def _numba() -> Any:
    numba = _module("numba")
    if QUICKLY.is_proven():
        quick_load.install()
    return numba


def _module(name: str) -> Any:
    return importlib.import_module(name)
