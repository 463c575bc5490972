# SPDX-License-Identifier: Apache-2.0
"""Compile kernels once per machine: what a plan needs while its run waits, the rest in the background."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any

from thresher.kernels.build import cache
from thresher.kernels.build.cache import (
    CHOICE,
    NATIVE_LOADING,
    QUICK_LOADING,
    has_kernels,
    is_ready,
    mark_ready,
    modules_with_kernels,
    with_needed,
)
from thresher.kernels.build.progress import Announcer, BuildProgress

_START = "import sys; sys.path[:] = {path!r}; from {package}.build.{module} import {function}; {function}({arguments})"
_TICK_S = 0.25
_MOST_PROCESSES = 8
"""More processes gain little, and each takes up to 200 MB."""


class CannotCompile(Exception):
    """A module of kernels could not be compiled."""


def compile_missing(modules: Sequence[str], announcer: Announcer, what: str = "the text rules of this recipe") -> bool:
    """Compile the kernels of some modules, and of those they import, that are not in the cache yet. Return True if
    something was compiled."""
    if are_ready(modules):
        return False
    wanted = with_needed(modules)
    with _build_lock(announcer):
        missing = [module for module in wanted if not is_ready(module)]
        has_some = any(map(has_kernels, missing))
        if has_some:
            _compile(missing, announcer, what)
        mark_ready(missing)
        return has_some


def compile_all(announcer: Announcer) -> bool:
    """Compile every kernel of this package that is not in the cache yet. Return True if something was compiled."""
    return compile_missing(modules_with_kernels(), announcer, "all text rules")


def are_ready(modules: Sequence[str]) -> bool:
    """Return True if the kernels of some modules, and of those they import, are compiled and checked."""
    return all(map(is_ready, modules))


def start_python(module: str, function: str, arguments: str, **options: Any) -> Any:
    """Start a process that calls a function of a module of this package."""
    import subprocess

    path = [entry or os.getcwd() for entry in sys.path]
    code = _START.format(path=path, package=cache.PACKAGE, module=module, function=function, arguments=arguments)
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, **options)


def try_loading(modules: Sequence[str]) -> bool:
    """Check in separate processes, which may crash, which loading methods work for some modules and give the same
    results. Return False if a process was killed, so that the result is not known."""
    import subprocess

    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    started = [
        start_python("loading_check", "check", repr(list(modules)), env={**os.environ, CHOICE: choice}, **options)
        for choice in ("0", "1")
    ]
    by_numba, alone = ((process.communicate()[0], process.returncode) for process in started)
    if any(status in (-signal.SIGKILL, -signal.SIGTERM) for _, status in (by_numba, alone)):
        return False
    QUICK_LOADING.record(by_numba[1] == 0)
    NATIVE_LOADING.record(by_numba[1] == 0 and by_numba == alone)
    return True


def _compile(modules: list[str], announcer: Announcer, what: str) -> None:
    """Compile and check modules."""
    kernels = [module for module in modules if has_kernels(module)]
    processes = min(_MOST_PROCESSES, len(kernels), len(os.sched_getaffinity(0)))
    if cache.is_temporary():
        announcer.line(
            f"compiled rules are kept in {cache.folder()}: the cache folder of this user cannot be written to"
        )
    progress = BuildProgress(kernels, processes, announcer)
    progress.begin(what)
    _build(kernels, processes, progress)
    if not try_loading(modules):
        raise CannotCompile("the processes that check the compiled kernels were killed; start the run again")
    with contextlib.suppress(OSError):  # another process removes them, or the folder cannot be listed
        cache.remove_old_builds()
    progress.end()


def _build(modules: list[str], processes: int, progress: BuildProgress) -> None:
    """Compile modules in a separate process and show its progress."""
    import subprocess
    import tempfile

    with tempfile.TemporaryFile() as errors:
        arguments = f"{modules!r}, {processes}"
        process = start_python("builder", "main", arguments, stdout=subprocess.PIPE, stderr=errors, bufsize=0)
        try:
            for module in _lines(process.stdout, progress):
                progress.done(module)
        finally:
            process.kill()
            process.stdout.close()
            process.wait()
        if progress.left:
            errors.seek(0)
            text = errors.read().decode("utf-8", "replace").strip()
            raise CannotCompile(f"not compiled: {', '.join(sorted(progress.left))}\n{text}")


def _lines(stream: IO[bytes], progress: BuildProgress) -> Iterator[str]:
    """Yield the lines that a process prints until it ends, and show progress meanwhile."""
    held = b""
    while True:
        progress.tick()
        if not select.select([stream], [], [], _TICK_S)[0]:
            continue
        piece = os.read(stream.fileno(), 4096)
        if not piece:
            return
        *lines, held = (held + piece).split(b"\n")
        yield from (line.decode() for line in lines)


@contextlib.contextmanager
def _build_lock(announcer: Announcer) -> Iterator[None]:
    """Let one process compile at a time; the others wait, and then find everything compiled."""
    with open(os.path.join(cache.folder(), "lock"), "a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announcer.line("another process is compiling text rules for this machine; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # no locks on this file system: both compile, and the files of one replace those of the other
        yield
