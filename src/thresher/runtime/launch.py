# SPDX-License-Identifier: Apache-2.0
"""Starting Python processes of our own. Imports next to nothing, so that it can be the first act of a run.

A process that is started here has its own process group, so that Ctrl-C reaches the driver alone; its stdin is empty,
and what it prints goes to stderr, because stdout belongs to results.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys

FIRST_FD = 3
"""Where a started process finds the descriptors that it was given."""
SINGLE_THREADED = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false,retain:false",
    "ARROW_DEFAULT_MEMORY_POOL": "jemalloc",
}
"""What keeps imports from starting threads, and Arrow's own code from taking another allocator than ours: that one maps
a gigabyte at once and gives less back."""
_CODE = "import sys; sys.path[:] = {path!r}; from thresher.runtime.{module} import main; main({arguments})"

_early: tuple[int, socket.socket] | None = None


def launch_zygote() -> tuple[int, socket.socket]:
    """Start a zygote, or take the one that was started early: its pid, and our end of the connection."""
    global _early
    early, _early = _early, None
    return early or _launch()


def launch_early() -> None:
    """Start a zygote before it is known whether it is needed; it ends by itself when this process does."""
    global _early
    if _early is None:
        _early = _launch()


def early_socket() -> socket.socket | None:
    """Our end of the connection to a zygote that was started early and that nobody has taken yet."""
    return None if _early is None else _early[1]


def _launch() -> tuple[int, socket.socket]:
    mine, its = socket.socketpair()
    own = {name: os.environ[name] for name in SINGLE_THREADED if name in os.environ}
    try:
        pid = start_python("zygote", f"{os.getpid()}, {own!r}", (its.fileno(),), {**os.environ, **SINGLE_THREADED})
    finally:
        its.close()
    return pid, mine


def start_python(module: str, arguments: str, fds: tuple[int, ...], environment: dict[str, str]) -> int:
    """Run `main(arguments)` of one of our modules in a new process that gets copies of `fds`, from `FIRST_FD` on."""
    flags = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    flags += [f"-W{option}" for option in sys.warnoptions]
    code = _CODE.format(path=search_path(), module=module, arguments=arguments)
    # Copies above the numbers that are assigned, so that none is overwritten before it is handed on.
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
    """Where this process finds modules, in a form that means the same in another one."""
    here = os.getcwd()
    return [entry or here for entry in sys.path]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
