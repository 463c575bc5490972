# SPDX-License-Identifier: Apache-2.0
"""Decorators that turn functions into kernels. Importing a module never compiles: a kernel whose machine code is in the
cache folder is loaded, without Numba if possible, and any other kernel is compiled when it is first called. Runs
compile what they need beforehand (`compile`), with progress shown to the user."""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable
from typing import Any, TypeVar, cast

from thresher.kernels.build import native
from thresher.kernels.build.cache import PACKAGE, QUICK_LOADING, folder, is_ready, module_of, use_own_folder
from thresher.kernels.build.signatures import Signature, as_numba

# Kernels are loaded as their modules are imported, and all of those import this one first.
use_own_folder()

Function = TypeVar("Function", bound=Callable[..., Any])
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "boundscheck": False}


class _Later:
    """A module that is imported when one of its attributes is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


ir: Any = _Later("llvmlite.ir")
"""LLVM's intermediate representation, for primitives."""
numba_types: Any = _Later("numba.types")
"""Numba's types, for primitives that need more than `signatures` has."""


def llvm_bits(number: int) -> Any:
    """Return LLVM's integer type with this number of bits."""
    return ir.IntType(number)


def llvm_block() -> Any:
    """Return LLVM's type for a vector of 64 bytes."""
    return ir.VectorType(llvm_bits(8), 64)


class _Part:
    """A function that kernels call. Numba reads its type when it compiles one of them."""

    def __init__(self, function: Callable[..., Any], make: Callable[[Callable[..., Any]], Any]) -> None:
        self._function = function
        self._make = make
        self._made: Any = None
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    def compiled(self) -> Any:
        """Return Numba's compiled object."""
        if self._made is None:
            self._made = self._make(self._function)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        made = self.compiled()
        typing = _module("numba.core.registry").cpu_target.typing_context
        typing.refresh()  # registers what was defined after the compiler was set up
        return typing.resolve_value_type(made)

    def __call__(self, *arguments: Any) -> Any:
        return self.compiled()(*arguments)


class LateKernel:
    """A kernel that was not compiled yet when its module was imported."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._signature = signature
        self._made: Any = None

    def ready(self) -> Any:
        """Return the kernel; compile it if that was not done meanwhile."""
        if self._made is None:
            self._made = _loaded(self._function, self._signature)
        return self._made

    @property
    def _numba_type_(self) -> Any:
        """Return the type that Numba needs to compile a kernel that calls this one."""
        return self.ready()._numba_type_

    def __call__(self, *arguments: Any) -> Any:
        return self.ready()(*arguments)


_late: list[LateKernel] = []
_compiles_on_import = False


def kernel(signature: Any) -> Callable[[Function], Function]:
    """Turn a loop into a kernel for these argument types. It runs without the interpreter's lock."""

    def made(function: Function) -> Function:
        if _compiles_on_import or is_ready(module_of(function)):
            return cast(Function, _loaded(function, signature))
        late = LateKernel(function, signature)
        _late.append(late)
        return cast(Function, late)

    return made


def compile_on_import() -> None:
    """Make this process compile, or load, every kernel when its module is imported."""
    global _compiles_on_import
    _compiles_on_import = True


def load_late_kernels() -> None:
    """Load kernels that were compiled after their modules were imported. Call this before a fork, so that it is done
    once."""
    for late in _late:
        if is_ready(module_of(late)):
            late.ready()
    _late[:] = [late for late in _late if not is_ready(module_of(late))]


def prepare_to_compile() -> None:
    """Import Numba and compile a function, which sets up what every kernel needs; then compile on import."""
    compile_on_import()
    numba = _numba()

    def total(numbers: Any, least: int) -> int:
        found = 0
        for n in range(len(numbers)):
            if numbers[n] > least:
                found += numbers[n]
        return found

    numba.njit("int64(int64[::1], int64)", **_OPTIONS)(total)


def helper(function: Function) -> Function:
    """Compile a function that kernels call, as a part of them."""
    return cast(Function, _Part(function, lambda given: _numba().njit(given, **_OPTIONS)))


def inlined(function: Function) -> Function:
    """Compile a function on single bytes that kernels call, and inline it: a call costs more than its body."""
    return cast(Function, _Part(function, lambda given: _numba().njit(given, forceinline=True, **_OPTIONS)))


def primitive(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a code generator into a function that kernels can call. The generator is called with the types of the
    arguments."""

    @functools.wraps(function)
    def typed(*kinds: Any) -> Any:
        found = function(*kinds)
        return found and (as_numba(found[0]), found[1])

    return _Part(typed, lambda given: _module("numba.extending").intrinsic(given))


def _loaded(function: Callable[..., Any], signature: Any) -> Any:
    """Load a kernel from the cache folder, or let Numba load or compile it."""
    found: Any = None
    if isinstance(signature, Signature):
        found = native.load(function, signature, lambda: _compiled(function, signature))
    return found or _compiled(function, signature)


def _compiled(function: Callable[..., Any], signature: Any) -> Any:
    """Compile a kernel with Numba, or load what Numba compiled before."""
    dispatcher = _numba().njit(as_numba(signature), cache=True, **_OPTIONS)(function)
    if isinstance(signature, Signature):
        native.keep(function, signature, dispatcher)
    return dispatcher


@functools.cache
def _numba() -> Any:
    numba = _module("numba")
    _keep_in_our_folder()
    if QUICK_LOADING.works():
        load_quickly()
    return numba


def load_quickly() -> None:
    """Make Numba load our compiled kernels without setting up what it only needs to compile, which takes half of the
    loading time. Kernels of other packages are loaded as usual.

    This relies on internals of Numba's cache, so it is used only after a check (`loading_check`) has succeeded.
    """
    caching = _module("numba.core.caching")
    rtsys = _module("numba.core.runtime").rtsys
    original = caching.FunctionCache.load_overload

    def load_overload(self: Any, signature: Any, context: Any) -> Any:
        if not str(self._py_func.__module__).startswith(f"{PACKAGE}."):
            return original(self, signature, context)
        rtsys.initialize(context)  # the memory management that compiled code calls
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, context)

    caching.FunctionCache.load_overload = load_overload


def _keep_in_our_folder() -> None:
    """Make Numba name cached kernels after their modules alone. By default it uses the path of the source, so that a
    copy of the same sources would be compiled again."""
    kept: Any = _module("numba.core.caching").FunctionCache._impl_class
    in_given_folder: Any = kept._locator_classes[0]

    class Locator(in_given_folder):  # type: ignore[misc]  # a class of Numba's, which has no types
        def __init__(self, function: Callable[..., Any], path: str) -> None:
            super().__init__(function, path)
            self._cache_path = os.path.join(folder(), "numba")

        def get_source_stamp(self) -> str:
            return os.path.basename(folder())  # its name depends on the contents of the sources

        @classmethod
        def from_function(cls, function: Callable[..., Any], path: str) -> Any:
            is_ours = function.__module__.startswith(f"{PACKAGE}.")
            return super().from_function(function, path) if is_ours else None

    kept._locator_classes = [Locator, *kept._locator_classes]


def _module(name: str) -> Any:
    return importlib.import_module(name)
