# SPDX-License-Identifier: Apache-2.0
"""What a process says about itself to the kernel, and how groups of processes are ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def end_with_parent(parent: int, with_signal: signal.Signals) -> None:
    """Let the kernel end this process when its parent dies, also if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, int(with_signal))
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """The name that `top` shows."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


class Ended(BaseException):
    """This process was asked to end in the middle of whatever it does. No `except Exception` stops it."""


def end_when_asked() -> None:
    """Let SIGTERM raise `Ended` once, so that what was set up is torn down; a second one changes nothing."""
    me = os.getpid()

    def raise_ended(*_: object) -> None:
        if os.getpid() != me:  # a process that a stage forked: it ends as it would anywhere
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        ignore_asking()
        raise Ended

    signal.signal(signal.SIGTERM, raise_ended)


def ignore_asking() -> None:
    """From here on this process ends anyway: what it does last is not interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def limit_private_memory(limit_bytes: int) -> None:
    """Let this process take so much more memory for itself: beyond that an allocation fails, here and nowhere else.

    The kernel counts what is mapped, not what is in use, so the limit is on the generous side.
    """
    most = data_bytes() + limit_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def data_bytes() -> int:
    """What RLIMIT_DATA is compared with: writable memory that this process has mapped for itself."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def _prctl(option: int, value: Any) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def ask_to_end(pid: int) -> None:
    """Ask a worker to tear down and end, whatever it is doing."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)


def kill_group(pid: int) -> None:
    """End a worker and what its stages started: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
