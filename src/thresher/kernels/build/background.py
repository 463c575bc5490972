# SPDX-License-Identifier: Apache-2.0
"""Compile in the background the kernels that no run has needed yet, so that the next recipe need not wait.

The process outlives the run that started it. It runs at idle priority, is the first to be killed when memory is short,
and may be killed at any time. It takes no lock that a run waits for: a run that needs a module meanwhile compiles it
itself, and files are replaced atomically.
"""

from __future__ import annotations

import contextlib
import fcntl
import os

from thresher.kernels.build import cache
from thresher.kernels.build.cache import has_kernels, is_ready, mark_ready, modules_with_kernels, with_needed
from thresher.kernels.build.compile import start_python, try_loading
from thresher.kernels.build.progress import cost_s

CHOICE = "THRESHER_BACKGROUND_COMPILE"
"""Environment variable: `0` turns compiling in the background off."""
_BATCH = 4
"""Number of modules that are compiled before they are checked and marked: each check takes about two seconds."""


def start_in_background() -> bool:
    """Start a detached process that compiles everything that is not compiled yet. Return False if there is nothing to
    do or it is turned off."""
    if os.environ.get(CHOICE) == "0" or cache.is_temporary() or not _missing():
        return False
    import subprocess

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    start_python("background", "main", "", cwd="/", start_new_session=True, **quiet).wait()
    return True


def main() -> None:
    """Detach from the process that started this one, and compile."""
    if os.fork():
        os._exit(0)
    _give_way()
    cache.use_own_folder()
    with open(os.path.join(cache.folder(), "background-lock"), "a", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # another process compiles, or the file system has no locks
        _compile_rest()


def _compile_rest() -> None:
    from thresher.kernels.build.builder import build

    while missing := _missing():
        some = sorted(missing, key=lambda module: cost_s([module]))[:_BATCH]
        batch = [module for module in with_needed(some) if not is_ready(module)]
        if build([module for module in batch if has_kernels(module)], 1, lambda module: None) is not None:
            return
        if not try_loading(batch):
            return
        mark_ready(batch)


def _missing() -> list[str]:
    return [module for module in modules_with_kernels() if not is_ready(module)]


def _give_way() -> None:
    """Lower the priority below that of every other process."""
    os.nice(19)
    with contextlib.suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("1000")
