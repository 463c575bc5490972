# SPDX-License-Identifier: Apache-2.0
"""Find the modules that define kernels and the modules that each of them imports. Modules are named relative to
`thresher.kernels`, such as `counts.words`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

KERNELS = os.path.dirname(os.path.dirname(__file__))
"""The folder of `thresher.kernels`."""
PACKAGE = "thresher.kernels"
_IMPORT = re.compile(rf"^from {re.escape(PACKAGE)}\.(\w+\.\w+) import", re.MULTILINE)
_KERNEL = re.compile(r"^@(kernel|njit)\(", re.MULTILINE)


def with_needed(modules: Sequence[str]) -> list[str]:
    """Return the modules and everything they import of this package, dependencies first."""
    found: list[str] = []
    for module in modules:
        needs = with_needed([need for need in needed(module) if need not in found])
        found += [name for name in (*needs, module) if name not in found]
    return found


def needed(module: str) -> list[str]:
    """Return the modules of this package that a module imports; imports are never circular."""
    return list(dict.fromkeys(_IMPORT.findall(_source(module))))


def has_kernels(module: str) -> bool:
    """Return True if a module defines kernels itself."""
    return _KERNEL.search(_source(module)) is not None


def modules_with_kernels() -> list[str]:
    """Return every module that defines kernels or imports one that does, dependencies first."""
    return with_needed([name for name in all_modules() if any(map(has_kernels, with_needed([name])))])


def all_modules() -> list[str]:
    """Return every module below `thresher.kernels`, in order."""
    rooms = [entry.name for entry in os.scandir(KERNELS) if entry.is_dir() and not entry.name.startswith("_")]
    return sorted(
        f"{room}.{entry.removesuffix('.py')}"
        for room in rooms
        for entry in os.listdir(os.path.join(KERNELS, room))
        if entry.endswith(".py") and not entry.startswith("_")
    )


def _source(module: str) -> str:
    return _text(path_of(module))


def module_of(function: Callable[..., Any]) -> str:
    """Return the module of a kernel."""
    return function.__module__.removeprefix(f"{PACKAGE}.")


def path_of(module: str) -> str:
    """Return the file of a module."""
    return os.path.join(KERNELS, *module.split(".")) + ".py"


@cache
def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
