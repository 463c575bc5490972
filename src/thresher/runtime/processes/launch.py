# SPDX-License-Identifier: Apache-2.0
"""Start of our own Python processes. Imports almost nothing, so that it can run first.

A process started here has its own process group, so that Ctrl-C reaches the driver alone. Its stdin is empty, and its
output goes to stderr, because stdout is reserved for results.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys

FIRST_FD = 3
"""First descriptor that a started process receives."""
SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false,retain:false",
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
}
"""Settings that keep imports from starting threads, and make Arrow use the allocator that we configure: its default
maps a gigabyte at once and returns less of it."""
_CODE = "import sys; sys.path[:] = {path!r}; from thresher.runtime.processes.{module} import main; main({arguments})"

_early: tuple[int, socket.socket] | None = None


def launch_zygote() -> tuple[int, socket.socket]:
    """Start a zygote, or take the one that was started early; return its process id and our end of the connection."""
    global _early
    early, _early = _early, None
    return early or _launch()


def launch_early() -> None:
    """Start a zygote before it is known whether one is needed; it exits with this process."""
    global _early
    if _early is None:
        _early = _launch()


def early_socket() -> socket.socket | None:
    """Return our end of the connection to a zygote that was started early and is not in use yet."""
    return None if _early is None else _early[1]


def _launch() -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair()
    user_values = {name: os.environ[name] for name in SINGLE_THREADED if name in os.environ}
    try:
        pid = start_python(
            "zygote", f"{os.getpid()}, {user_values!r}", (theirs.fileno(),), {**os.environ, **SINGLE_THREADED}
        )
    finally:
        theirs.close()
    return pid, ours


def start_python(module: str, arguments: str, fds: tuple[int, ...], environment: dict[str, str]) -> int:
    """Run `main(arguments)` of a module of this package in a new process that gets copies of `fds`, from `FIRST_FD`
    on."""
    flags = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    flags += [f"-W{option}" for option in sys.warnoptions]
    code = _CODE.format(path=search_path(), module=module, arguments=arguments)
    # Copies above the assigned numbers, so that none is overwritten before it is passed on.
    copies = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, FIRST_FD + len(fds)) for fd in fds]
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    ]
    if _is_open(2):
        actions.append((os.POSIX_SPAWN_DUP2, 2, 1))
    else:
        actions += [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    actions += [(os.POSIX_SPAWN_DUP2, copy, FIRST_FD + place) for place, copy in enumerate(copies)]
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", *flags, "-c", code],
            environment,
            file_actions=actions,
            setpgroup=0,
            setsigmask=[],
        )
    finally:
        for copy in copies:
            os.close(copy)


def search_path() -> list[str]:
    """Return the module search path with absolute entries, which are valid in another process."""
    here = os.getcwd()
    return [entry or here for entry in sys.path]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
