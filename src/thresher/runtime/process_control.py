# SPDX-License-Identifier: Apache-2.0
"""What a process says about itself to the kernel, and how groups of processes are ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
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


def _prctl(option: int, value: Any) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def kill_group(pid: int) -> None:
    """End a worker and what its stages started: it leads a process group of its own."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
