# SPDX-License-Identifier: Apache-2.0
"""The folder of compiled kernels: a private folder of the user whose name changes when anything changes that the
machine code depends on. Numba itself detects a changed kernel, but not a changed function that the kernel calls.

The contents of the folder are executed, so no other user may write to it. This module imports next to nothing, because
it runs before Numba is imported.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

from thresher.kernels.build.module_graph import all_modules, path_of

VARIABLE = "NUMBA_CACHE_DIR"
"""Environment variable with which Numba names its cache folder."""
_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT", "NUMBA_DISABLE_JIT")
UNUSED_S = 90 * 86400.0
"""Builds that were not read for this long are removed; if needed again, they are compiled again."""
_NOT_COMPILED = frozenset(
    {
        "build.background",
        "build.builder",
        "build.cache",
        "build.compile",
        "build.module_graph",
        "build.progress",
        "build.loading_check",
        "build.markers",
        "counts.groups",
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


@cache
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
    import re

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
