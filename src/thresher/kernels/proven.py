# SPDX-License-Identifier: Apache-2.0
"""Which quick ways to load kernels have gone well on this machine, for all that was compiled so far. They are tried
after compiling, in processes of their own."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from thresher.kernels import cache

CHOICE = "THRESHER_NATIVE_KERNELS"
"""A variable of the environment: with `0` Numba loads every kernel, with `1` none that can be loaded without it, proven
or not."""


@dataclass(frozen=True)
class Way:
    """A way to load kernels."""

    name: str
    """The mark in the cache folder is called after it."""

    def is_proven(self) -> bool:
        """Whether it went well for everything that was compiled so far."""
        return os.path.exists(self._mark()) and not is_untried()

    def note(self, went_well: bool) -> None:
        """Remember how it went."""
        if went_well:
            with open(self._mark(), "w", encoding="ascii"):
                pass
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._mark())

    def _mark(self) -> str:
        return os.path.join(cache.folder(), f"{self.name}.proven")


QUICKLY = Way("quick_load")
"""By Numba, without what it sets up to compile others: `quick_load`."""
NATIVELY = Way("native")
"""Without Numba: `native`."""


def is_untried() -> bool:
    """Whether something is being compiled, or was by a process that was killed before it could try the result."""
    return os.path.exists(_untried_mark())


def note_untried() -> None:
    """Something is about to be compiled."""
    with open(_untried_mark(), "w", encoding="ascii"):
        pass


def note_tried() -> None:
    """All that was compiled was tried."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(_untried_mark())


def _untried_mark() -> str:
    return os.path.join(cache.folder(), "untried")


def native_is_wanted() -> bool:
    """Whether kernels are loaded without Numba, where they can be."""
    said = os.environ.get(CHOICE)
    return NATIVELY.is_proven() if said is None else said == "1"
