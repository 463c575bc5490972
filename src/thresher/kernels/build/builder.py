# SPDX-License-Identifier: Apache-2.0
"""The process that compiles kernels. It imports Numba once, compiles one function, which sets up most of the compiler,
and forks a process for each module. It prints the name of each module that is compiled."""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence

from thresher.kernels.build import decorators
from thresher.kernels.build.cache import PACKAGE, has_kernels, needed, with_needed
from thresher.kernels.build.progress import cost_s

_PR_SET_PDEATHSIG = 1


def main(modules: Sequence[str], processes: int) -> None:
    """Compile the kernels of some modules and exit; the status is 1 if one of them could not be compiled."""
    end_with_parent()
    failed = build(modules, processes, _print)
    sys.exit(1 if failed else 0)


def build(modules: Sequence[str], processes: int, done: Callable[[str], None]) -> str | None:
    """Compile modules, the slowest first, and call `done` with the name of each. Return the name of the module that
    failed, or None."""
    decorators.prepare_to_compile()
    waiting = sorted(modules, key=_longest_first(modules), reverse=True)
    running: dict[int, str] = {}
    try:
        while waiting or running:
            for module in [module for module in waiting if not _waits_for(module, [*waiting, *running.values()])]:
                if len(running) >= processes:
                    break
                waiting.remove(module)
                running[_fork(module)] = module
            pid, status = os.wait()
            module = running.pop(pid)
            if status:
                return module
            done(module)
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return None


def _longest_first(modules: Sequence[str]) -> Callable[[str], float]:
    """Return a sort key: the compile time of a module, plus that of the slowest module that waits for it."""
    chains = {module: cost_s([module]) for module in modules}
    for module in modules:
        for need in with_needed([module])[:-1]:
            if need in chains:
                chains[need] = max(chains[need], cost_s([need, module]))
    return chains.__getitem__


def _waits_for(module: str, unfinished: Sequence[str]) -> bool:
    return any(need in unfinished for need in with_needed(needed(module)))


def _fork(module: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        end_with_parent()
        if has_kernels(module):
            importlib.import_module(f"{PACKAGE}.{module}")
        status = 0
    except BaseException:
        sys.stderr.write(f"{PACKAGE}.{module}:\n{traceback.format_exc()}")
        sys.stderr.flush()
    os._exit(status)


def end_with_parent() -> None:
    """Make the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))


def _print(module: str) -> None:
    sys.stdout.write(f"{module}\n")
    sys.stdout.flush()
