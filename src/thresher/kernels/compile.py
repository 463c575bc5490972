# SPDX-License-Identifier: Apache-2.0
"""Compiling kernels once per machine: module by module, in processes beside each other.

A kernel is compiled when its module is imported for the first time, and loaded from the cache folder later. So to
compile is to import, in processes of their own, before workers are started.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING

from thresher.kernels import cache
from thresher.kernels.proven import CHOICE, NATIVELY, QUICKLY, is_untried, note_tried, note_untried

if TYPE_CHECKING:
    import subprocess

_HERE = os.path.dirname(__file__)
_PACKAGE = __package__ or "thresher.kernels"
_CODE = "import sys; sys.path[:] = {path!r}; from {package}.compile import _import_alone; _import_alone({module!r})"
_PROOF = "import sys; sys.path[:] = {path!r}; from {package}.proof import prove; prove({modules!r})"
_IMPORT = re.compile(rf"^from {re.escape(_PACKAGE)}\.(\w+) import", re.MULTILINE)
_KERNEL = re.compile(r"^@(kernel|njit)\(", re.MULTILINE)
_READY = ".ready"
"""How names of files end that say that a module is compiled."""
SECONDS_EACH = 3.0
"""About how long a module takes: for the line that tells the user to wait."""


class CannotCompile(Exception):
    """A module of kernels could not be imported."""


def compile_missing(modules: Sequence[str], tell: Callable[[str], None]) -> None:
    """Compile the kernels of some modules of this package, and of those that they need, where they are not in the cache
    yet. `tell` gets lines for the user."""
    if are_ready(modules):
        if is_untried():
            _try_what_was_left()
        return
    wanted = _with_needed(modules)
    with _alone(tell):
        missing = [module for module in wanted if not _is_ready(module)]
        if missing:
            _compile(missing, tell)


def are_ready(modules: Sequence[str]) -> bool:
    """Whether the kernels of some modules are in the cache, and of those that they need."""
    return all(_is_ready(module) for module in _with_needed(modules))


def _compile(missing: list[str], tell: Callable[[str], None]) -> None:
    processes = max(1, len(os.sched_getaffinity(0)))
    with_kernels = sum(_has_kernels(module) for module in missing)
    about = max(1, round(with_kernels * SECONDS_EACH / min(processes, max(1, with_kernels))))
    if cache.is_temporary():
        tell(f"compiled kernels are kept in {cache.folder()}: the user's cache folder cannot be written to")
    tell(f"compiling the text kernels for this machine, once (about {about} s)")
    started = time.monotonic()
    note_untried()
    running: dict[str, subprocess.Popen[bytes]] = {}
    waiting = list(missing)
    try:
        while waiting or running:
            _start_some(waiting, running, processes)
            _wait_for_one(running)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    _prove_loading(missing)
    note_tried()
    _tidy()
    tell(f"the text kernels are compiled ({time.monotonic() - started:.0f} s)")


def _try_what_was_left() -> None:
    """A start that compiled was killed before it tried what it had made; or it is still at it, and will."""
    with _file_of_lock() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        if is_untried():
            ready = (entry.removesuffix(_READY) for entry in os.listdir(cache.folder()) if entry.endswith(_READY))
            _prove_loading(sorted(ready))
            note_tried()


def _tidy() -> None:
    from thresher.kernels.old_builds import remove_old_builds

    with contextlib.suppress(OSError):  # somebody else removes them, or the folder is not to be listed
        remove_old_builds()


def _prove_loading(modules: list[str]) -> None:
    """Whether what was compiled can be loaded in the quick ways, and then does the same, tried where nothing can be
    harmed."""
    import subprocess

    code = _PROOF.format(path=[entry or os.getcwd() for entry in sys.path], package=_PACKAGE, modules=modules)
    by_numba, alone = (
        subprocess.run(
            [sys.executable, "-c", code], check=False, capture_output=True, env={**os.environ, CHOICE: choice}
        )
        for choice in ("0", "1")
    )
    QUICKLY.note(by_numba.returncode == 0)
    NATIVELY.note(by_numba.returncode == alone.returncode == 0 and by_numba.stdout == alone.stdout)


def _start_some(waiting: list[str], running: dict[str, subprocess.Popen[bytes]], most: int) -> None:
    """Start modules whose needs are ready."""
    import subprocess

    for module in list(waiting):
        if len(running) >= most:
            return
        if any(need in waiting or need in running for need in _needed(module)):
            continue
        waiting.remove(module)
        if not _has_kernels(module):
            _mark_ready(module)
            continue
        code = _CODE.format(path=[entry or os.getcwd() for entry in sys.path], package=_PACKAGE, module=module)
        running[module] = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )


def _wait_for_one(running: dict[str, subprocess.Popen[bytes]]) -> None:
    import subprocess

    while running:
        for module, process in list(running.items()):
            try:
                _, errors = process.communicate(timeout=0.05)
            except subprocess.TimeoutExpired:
                continue
            del running[module]
            if process.returncode:
                text = errors.decode("utf-8", "replace").strip()
                raise CannotCompile(f"the kernels of {_PACKAGE}.{module} could not be compiled:\n{text}")
            _mark_ready(module)
            return


def _import_alone(module: str) -> None:
    """In a process of its own, which ends with the one that started it."""
    import ctypes
    import importlib

    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
    importlib.import_module(f"{_PACKAGE}.{module}")


@contextlib.contextmanager
def _alone(tell: Callable[[str], None]) -> Iterator[None]:
    """One start at a time compiles; the others wait, and find everything there."""
    with _file_of_lock() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("another start compiles the text kernels for this machine; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # a file system without locks: both compile, and the files of one replace those of the other
        yield


def _file_of_lock() -> IO[str]:
    return open(os.path.join(cache.folder(), "lock"), "a", encoding="ascii")


# -- which modules, and whether they are there ------------------------------------------------------------------------


def _with_needed(modules: Sequence[str]) -> list[str]:
    """The modules and all that they import of this package, needs first."""
    found: list[str] = []
    for module in modules:
        needs = _with_needed([need for need in _needed(module) if need not in found])
        found += [name for name in (*needs, module) if name not in found]
    return found


def _needed(module: str) -> list[str]:
    """What a module imports of this package; never in a circle."""
    return list(dict.fromkeys(_IMPORT.findall(_source(module))))


def _has_kernels(module: str) -> bool:
    return _KERNEL.search(_source(module)) is not None


def _source(module: str) -> str:
    with open(_path(module), encoding="utf-8") as file:
        return file.read()


def _path(module: str) -> str:
    return os.path.join(_HERE, f"{module}.py")


def _is_ready(module: str) -> bool:
    return os.path.exists(_mark(module))


def _mark(module: str) -> str:
    return os.path.join(cache.folder(), module + _READY)


def _mark_ready(module: str) -> None:
    with open(_mark(module), "w", encoding="ascii"):
        pass
