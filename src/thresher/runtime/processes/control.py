# SPDX-License-Identifier: Apache-2.0
"""Process control: exit with the parent, SIGTERM, memory limits and process groups."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
from typing import Any

from thresher.stage_errors import ControlSignal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15


def end_with_parent(parent: int, with_signal: signal.Signals) -> None:
    """Make the kernel signal this process when its parent exits; exit at once if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, int(with_signal))
    if os.getppid() != parent:
        os._exit(1)


def name_process(name: str) -> None:
    """Set the name that `top` shows."""
    _prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]))


class Ended(ControlSignal):
    """Raised on SIGTERM wherever a worker is. No `except Exception` catches it."""


def stop_on_sigterm() -> None:
    """Make SIGTERM raise `Ended` once, so that stages are torn down; further ones are ignored."""
    own_pid = os.getpid()

    def raise_ended(*_: object) -> None:
        if os.getpid() != own_pid:  # a process that a stage forked gets the default behaviour
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)
            return
        ignore_sigterm()
        raise Ended

    signal.signal(signal.SIGTERM, raise_ended)


def ignore_sigterm() -> None:
    """Ignore SIGTERM from now on: the process is exiting already, and its last steps are not interrupted."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def limit_private_memory(limit_bytes: int) -> None:
    """Limit the additional private memory of this process: beyond it, allocations fail, in this process only.

    The kernel counts mapped memory, not memory in use, so the limit is generous.
    """
    most = data_bytes() + limit_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def data_bytes() -> int:
    """Return the value that RLIMIT_DATA limits: private writable memory that this process has mapped."""
    with open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmData:"):
                return int(line.split()[1]) * 1024
    return 0


def _prctl(option: int, value: Any) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def request_stop(pid: int) -> None:
    """Send SIGTERM to a worker, so that it tears down and exits whatever it is doing."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGTERM)


def kill_group(pid: int) -> None:
    """Kill a worker and the processes its stages started: it leads its own process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
