# SPDX-License-Identifier: Apache-2.0
"""Marker files in the cache folder: which modules are compiled and checked, and which loading methods work on this
machine. A module is marked after its kernels were compiled and loaded with each method in separate processes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass

from thresher.kernels.build import cache

CHOICE = "THRESHER_NATIVE_KERNELS"
"""Environment variable: with `0` Numba loads every kernel; with `1` kernels are loaded without Numba wherever possible,
checked or not."""
_READY = ".ready"
"""Suffix of the files that mark modules."""


@dataclass(frozen=True)
class LoadingMethod:
    """A method of loading kernels."""

    name: str
    """Name of its marker file."""

    def works(self) -> bool:
        """Return True if it worked for everything that was compiled so far."""
        return os.path.exists(self._mark())

    def record(self, works: bool) -> None:
        """Record whether it works."""
        if works:
            _touch(self._mark())
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._mark())

    def _mark(self) -> str:
        return os.path.join(cache.folder(), f"{self.name}.works")


QUICK_LOADING = LoadingMethod("quick_load")
"""Loading by Numba, without the parts of Numba that are only needed to compile."""
NATIVE_LOADING = LoadingMethod("native")
"""Loading without Numba: `native`."""


def is_ready(module: str) -> bool:
    """Return True if the kernels of a module, and of all modules it imports, are compiled and checked."""
    return os.path.exists(os.path.join(cache.folder(), module + _READY))


def mark_ready(modules: Iterable[str]) -> None:
    """Mark modules as compiled and checked."""
    for module in modules:
        _touch(os.path.join(cache.folder(), module + _READY))


def uses_native_loading() -> bool:
    """Return True if kernels are loaded without Numba where possible."""
    said = os.environ.get(CHOICE)
    return NATIVE_LOADING.works() if said is None else said == "1"


def _touch(path: str) -> None:
    with open(path, "w", encoding="ascii"):
        pass
