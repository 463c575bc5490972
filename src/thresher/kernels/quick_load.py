# SPDX-License-Identifier: Apache-2.0
"""Loading kernels that are compiled already without what Numba sets up to compile others, which would take half of the
time that loading takes.

This leans on how Numba loads from its cache. So it is tried after compiling, in a process of its own, and done from
then on where that went well.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from thresher.kernels import cache

_PACKAGE = __package__ or "thresher.kernels"


def is_proven() -> bool:
    """Whether it went well for everything that was compiled so far."""
    return os.path.exists(_mark())


def note(went_well: bool) -> None:
    """Remember how it went."""
    if went_well:
        with open(_mark(), "w", encoding="ascii"):
            pass
    elif is_proven():
        os.unlink(_mark())


def install() -> None:
    """From now on this process loads our kernels quickly; those of others as ever."""
    caching: Any = importlib.import_module("numba.core.caching")
    rtsys: Any = importlib.import_module("numba.core.runtime").rtsys
    usual = caching.FunctionCache.load_overload

    def load_overload(self: Any, signature: Any, context: Any) -> Any:
        if not str(self._py_func.__module__).startswith(f"{_PACKAGE}."):
            return usual(self, signature, context)
        rtsys.initialize(context)  # what compiled code calls to have and to give back memory
        with self._guard_against_spurious_io_errors():
            return self._load_overload(signature, context)

    caching.FunctionCache.load_overload = load_overload


def prove(modules: Sequence[str]) -> None:
    """Load some modules in this way; where it does not work the process may come to its end at once."""
    cache.use_own_folder()
    install()
    for module in modules:
        importlib.import_module(f"{_PACKAGE}.{module}")


def _mark() -> str:
    return os.path.join(cache.folder(), "quick_load.proven")
