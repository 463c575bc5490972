# SPDX-License-Identifier: Apache-2.0
"""Loading kernels that are compiled already without what Numba sets up to compile others, which would take half of the
time that loading takes.

This leans on how Numba loads from its cache. So it is tried after compiling, in a process of its own, and done from
then on where that went well.
"""

from __future__ import annotations

import importlib
from typing import Any

_PACKAGE = __package__ or "thresher.kernels"


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
