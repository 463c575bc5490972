# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled kernels: a private folder of the user whose name changes when anything changes that the
machine code depends on. Numba itself detects a changed kernel, but not a changed function that the kernel calls.

Marker files in it name the modules that are compiled and checked, and the loading methods that work on this machine. A
module is marked after its kernels were compiled and loaded with each method in separate processes. Modules are named
relative to `thresher.kernels`, such as `counts.words`.

The contents of the folder are executed, so no other user may write to it. This module imports next to nothing, because
it runs before Numba is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache as once
from typing import Any

KERNELS = os.path.dirname(os.path.dirname(__file__))
"""The folder of `thresher.kernels`."""
PACKAGE = "thresher.kernels"
_IMPORT = re.compile(rf"^from {re.escape(PACKAGE)}\.(\w+\.\w+) import", re.MULTILINE)
_KERNEL = re.compile(r"^@(kernel|njit)\(", re.MULTILINE)
VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable with which Numba names its cache folder."""
_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT", "NUMBA_DISABLE_JIT")
CHOICE = "THRESHER_NATIVE_KERNELS"
"""Environment variable: with `0` Numba loads every kernel; with `1` kernels are loaded without Numba wherever possible,
checked or not."""
_READY = ".ready"
"""Suffix of the files that mark modules."""
UNUSED_S = 90 * 86400.0
"""Builds that were not read for this long are removed; if needed again, they are compiled again."""
_NOT_COMPILED = frozenset(
    {
        "build.background",
        "build.builder",
        "build.cache",
        "build.compile",
        "build.progress",
        "build.loading_check",
    }
)
"""Modules that decide when and where kernels are compiled; machine code does not depend on them."""


def use_own_folder() -> None:
    """Set Numba's cache folder to ours, unless it is set already. Call this before Numba is imported."""
    if os.path.basename(os.environ.get(VARIABLE, "")) != name_of_build():
        wanted = os.path.join(os.path.abspath(_base()), name_of_build())
        os.environ[VARIABLE] = wanted if _is_ours(wanted) else _temporary_folder()
    config = _config_of_numba()
    if config is not None:
        config.CACHE_DIR = os.environ[VARIABLE]


def folder() -> str:
    """Return the folder that is in use."""
    return os.environ[VARIABLE]


def is_temporary() -> bool:
    """Return True if the user's own cache folder could not be used."""
    return folder().startswith(os.path.join(_temporary(), "thresher-"))


def _config_of_numba() -> Any:
    """Return Numba's configuration if a user's own code has imported Numba before; otherwise None."""
    return getattr(sys.modules.get("numba"), "config", None)


@once
def name_of_build() -> str:
    """Return a name for the machine code that depends on the contents of our sources, the compiler, Python and the
    processor, and not on where anything is: copies of the same sources share a build."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {sys.hexversion} {sys.platform} {_target()}".encode())
    digest.update(repr([os.environ.get(name) for name in _SETTINGS]).encode())
    for name in ("numba", "llvmlite"):
        digest.update(_version_file(name))
    for module in all_modules():
        if module not in _NOT_COMPILED:
            with open(path_of(module), "rb") as file:
                digest.update(module.encode() + file.read())
    return f"kernels-{digest.hexdigest()[:16]}"


def _base() -> str:
    """Return the parent folder of builds: the folder that the user set for Numba, or one in the user's cache."""
    given = os.environ.get(VARIABLE)
    if given:
        return os.path.dirname(given) if os.path.basename(given).startswith("kernels-") else given
    cached = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cached, "thresher")


def _version_file(package: str) -> bytes:
    """Return the contents of the version file of a package; importing the package would take much longer."""
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        return b""
    try:
        with open(os.path.join(os.path.dirname(found.origin), "_version.py"), "rb") as file:
            return file.read()
    except OSError:
        return found.origin.encode()


def _target() -> str:
    """Return the target of the compiler: this processor, unless Numba's settings name one and all of its features."""
    if os.environ.get("NUMBA_CPU_NAME") and os.environ.get("NUMBA_CPU_FEATURES") is not None:
        return os.uname().machine
    return _processor()


def _processor() -> str:
    """Return the processor as the system describes it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(8192).split("\n\n")[0].splitlines()
    except OSError:
        import platform

        return platform.processor() or platform.machine()
    return " ".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def _is_ours(path: str) -> bool:
    """Create a folder if it is missing. Return True if it is writable and belongs to this user alone."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
    except FileExistsError:
        pass  # another process created it in between
    except OSError:
        return False
    status = os.lstat(path)
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return (
        stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not others_write and os.access(path, os.W_OK)
    )


def _temporary_folder() -> str:
    """Return a folder for machines without a writable home. The next run finds it again, unless another user created
    it."""
    shared = os.path.join(_temporary(), f"thresher-{os.getuid()}")
    path = os.path.join(shared, name_of_build())
    if _is_ours(shared) and _is_ours(path):
        return path
    import tempfile

    return tempfile.mkdtemp(prefix="thresher-kernels-")


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()


def remove_old_builds() -> None:
    """Remove builds beside the one in use, to which something was just added, that were not used for a long time. Each
    version of Thresher, Numba and Python creates its own build."""
    import shutil

    now_s = os.stat(folder()).st_mtime
    for path in _other_builds():
        if now_s - _last_used(path) > UNUSED_S:
            shutil.rmtree(path, ignore_errors=True)


def _other_builds() -> Iterator[str]:
    """Yield the folders of this user with the name of a build, except the one in use."""
    in_use = folder()
    with os.scandir(os.path.dirname(in_use)) as entries:
        for entry in entries:
            is_other = re.fullmatch(r"kernels-[0-9a-f]{16}", entry.name) is not None and entry.path != in_use
            if is_other and entry.is_dir(follow_symlinks=False) and entry.stat().st_uid == os.getuid():
                yield entry.path


def _last_used(path: str) -> float:
    """Return when anything in a folder was last written or, if the file system records it, read."""
    used = os.stat(path).st_mtime
    for parent, _, names in os.walk(path):
        for name in names:
            status = os.lstat(os.path.join(parent, name))
            used = max(used, status.st_mtime, status.st_atime)
    return used


# -- the modules and what they import ---------------------------------------------------------------------------------


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


@once
def _text(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


# -- marker files -----------------------------------------------------------------------------------------------------


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
        return os.path.join(folder(), f"{self.name}.works")


QUICK_LOADING = LoadingMethod("quick_load")
"""Loading by Numba, without the parts of Numba that are only needed to compile."""
NATIVE_LOADING = LoadingMethod("native")
"""Loading without Numba: `native`."""


def is_ready(module: str) -> bool:
    """Return True if the kernels of a module, and of all modules it imports, are compiled and checked."""
    return os.path.exists(os.path.join(folder(), module + _READY))


def mark_ready(modules: Iterable[str]) -> None:
    """Mark modules as compiled and checked."""
    for module in modules:
        _touch(os.path.join(folder(), module + _READY))


def uses_native_loading() -> bool:
    """Return True if kernels are loaded without Numba where possible."""
    said = os.environ.get(CHOICE)
    return NATIVE_LOADING.works() if said is None else said == "1"


def _touch(path: str) -> None:
    with open(path, "w", encoding="ascii"):
        pass
