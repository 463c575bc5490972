# SPDX-License-Identifier: Apache-2.0
"""Where compiled kernels are kept: a folder of the user's own, with a name that changes when anything changes that the
machine code depends on. Numba itself notices a changed kernel, but not a changed function that the kernel calls.

What is in the folder is run, so nobody else may write to it. Imports next to nothing: it runs before Numba does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import stat
import sys
from functools import cache
from typing import Any

VARIABLE = "NUMBA_CACHE_DIR"
"""The setting of Numba that names its folder."""
_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT", "NUMBA_DISABLE_JIT")
_HERE = os.path.dirname(__file__)


def use_own_folder() -> None:
    """Tell Numba where our kernels are, unless it was told so already. To be called before Numba is imported."""
    if os.path.basename(os.environ.get(VARIABLE, "")) != name_of_build():
        wanted = os.path.join(os.path.abspath(_base()), name_of_build())
        os.environ[VARIABLE] = wanted if _is_ours(wanted) else _temporary_folder()
    config = _config_of_numba()
    if config is not None:
        config.CACHE_DIR = os.environ[VARIABLE]


def folder() -> str:
    """The folder that is in use."""
    return os.environ[VARIABLE]


def is_temporary() -> bool:
    """Whether the user's own cache folder could not be used."""
    return folder().startswith(os.path.join(_temporary(), "thresher-"))


def _config_of_numba() -> Any:
    """The settings of a Numba that is there already because a user's own code was first."""
    return getattr(sys.modules.get("numba"), "config", None)


@cache
def name_of_build() -> str:
    """A name for the machine code: of our sources and where they are, the compiler, Python and the processor."""
    digest = hashlib.sha256(f"{sys.implementation.cache_tag} {sys.hexversion} {sys.platform} {_processor()}".encode())
    digest.update(repr([os.environ.get(name) for name in _SETTINGS]).encode())
    digest.update(_HERE.encode())  # Numba keeps what it compiled under the path of the source
    for name in ("numba", "llvmlite"):
        digest.update(_version_file(name))
    for entry in sorted(os.listdir(_HERE)):
        if entry.endswith(".py"):
            with open(os.path.join(_HERE, entry), "rb") as file:
                digest.update(entry.encode() + file.read())
    return f"kernels-{digest.hexdigest()[:16]}"


def _base() -> str:
    """The folder in which builds are: the one that the user gave to Numba, or one in the user's cache."""
    given = os.environ.get(VARIABLE)
    if given:
        return os.path.dirname(given) if os.path.basename(given).startswith("kernels-") else given
    cached = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cached, "thresher")


def _version_file(package: str) -> bytes:
    """What says which version of a package is installed; importing the package would take much longer."""
    found = importlib.util.find_spec(package)
    if found is None or not found.origin:
        return b""
    try:
        with open(os.path.join(os.path.dirname(found.origin), "_version.py"), "rb") as file:
            return file.read()
    except OSError:
        return found.origin.encode()


def _processor() -> str:
    """The processor as the system describes it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read(8192).split("\n\n")[0].splitlines()
    except OSError:
        import platform

        return platform.processor() or platform.machine()
    return " ".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))


def _is_ours(path: str) -> bool:
    """Whether a folder is there, can be written to, and belongs to this user alone; it is made where it is missing."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if not os.path.isdir(path):
            os.mkdir(path, 0o700)
    except FileExistsError:
        pass  # another start was a little earlier
    except OSError:
        return False
    facts = os.lstat(path)
    others_write = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not others_write and os.access(path, os.W_OK)


def _temporary_folder() -> str:
    """For machines without a home that can be written to. The next run finds it again, unless somebody else made it."""
    shared = os.path.join(_temporary(), f"thresher-{os.getuid()}")
    path = os.path.join(shared, name_of_build())
    if _is_ours(shared) and _is_ours(path):
        return path
    import tempfile

    return tempfile.mkdtemp(prefix="thresher-kernels-")


def _temporary() -> str:
    import tempfile

    return tempfile.gettempdir()
