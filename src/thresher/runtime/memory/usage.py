# SPDX-License-Identifier: Apache-2.0
"""Available memory, the memory of a process tree, and the return of freed memory to the system."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from thresher.runtime.processes.launch import SINGLE_THREADED
from thresher.stage_errors import ControlSignal

_PAGE = os.sysconf("SC_PAGE_SIZE")
DEFAULT_SHARE = 0.6
"""Share of the machine's or control group's memory that a run uses by default."""
TIDY_ABOVE = 64 * 2**20
"""Freed memory is returned when private memory has grown by this much since the last time."""
RECYCLE_SHARE = 0.75
"""Share of its memory limit beyond which a worker is replaced, before its allocations fail."""
_CHECK_EVERY_S = 0.5
_SAMPLE_EVERY_S = 0.01
_REPORT_EVERY_S = 1.0
CALIBRATE_EVERY_S = 10.0
_AT_ONCE = 4
"""Number of processes that are calibrated at once."""


# -- available memory -------------------------------------------------------------------------------------------------


def available_memory() -> int:
    """Return the memory that this process and its children may use: the machine's, or the control group's if that is
    less."""
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE
    return min([machine, *_group_limits()])


def default_memory() -> int:
    """Return the memory limit of a run without an explicit one."""
    return int(available_memory() * DEFAULT_SHARE)


def _group_limits(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> list[int]:
    """Return the limits of the control groups of this process (version 2, then version 1)."""
    found = []
    try:
        lines = Path(own).read_text("ascii").splitlines()
    except OSError:
        return []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        top, name = (root, "memory.max") if not controllers else (f"{root}/memory", "memory.limit_in_bytes")
        parts = group.strip("/").split("/")
        for depth in range(len(parts) + 1):
            try:
                text = Path(top, *parts[:depth], name).read_text("ascii").strip()
            except OSError:
                continue
            if text.isdigit():
                found.append(int(text))
    return found


def worker_share(memory_bytes: int, workers: int) -> int:
    """Return the private memory limit of one worker: its part of what payloads and other processes leave, and at least
    what the largest supported record needs."""
    return max(memory_bytes * 5 // 8 // max(1, workers), memory_bytes * 3 // 8)


# -- memory in use ----------------------------------------------------------------------------------------------------


def private_bytes(pid: int | str = "self") -> int:
    """Return resident memory without files and shared memory; 0 for a process that has exited."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            _, resident, shared, *_ = statm.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def proportional_bytes(pid: int) -> int | None:
    """Return the proportional set size of a process, without shared memory. Exact but slow: the kernel walks its page
    tables."""
    total = 0
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as rollup:
            for line in rollup:
                if line.startswith((b"Pss_Anon:", b"Pss_File:")):
                    total += int(line.split()[1]) * 1024
    except OSError:
        return None
    return total


def children_of(pid: int) -> list[int]:
    """Return the running children of a process."""
    found: list[int] = []
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                found.extend(int(child) for child in children.read().split())
        except OSError:
            continue
    return found


class TreeMeter:
    """Memory of processes and their descendants, without shared memory segments, which the driver counts itself.

    `statm` is cheap, but counts pages that forked siblings share several times, and files not at all. The difference
    from the exact value changes little, so it is measured for a few processes at a time and added as a correction.
    """

    def __init__(self) -> None:
        self._corrections: dict[int, int] = {}
        self._descendants: dict[int, list[int]] = {}
        self._due: list[int] = []
        """Processes that are to be calibrated again."""
        self._calibrated_at = 0.0

    def measure(self, pids: Iterable[int], now: float) -> int:
        """Return the bytes in use."""
        return sum(self.measure_each(pids, now).values())

    def measure_each(self, pids: Iterable[int], now: float) -> dict[int, int]:
        """Return the bytes in use by each process and its descendants; a descendant of two is counted with the later
        one."""
        live = dict.fromkeys(pids)
        gone = [pid for pid in self._corrections if pid not in live]
        new = [pid for pid in live if pid not in self._corrections]
        for pid in gone:
            del self._corrections[pid]
            self._descendants.pop(pid, None)
        if gone or new:
            self._due = [pid for pid in live if pid not in new]  # the pages that they share have changed
        elif not self._due and now - self._calibrated_at >= CALIBRATE_EVERY_S:
            self._due = list(live)
        due, self._due = [*new, *self._due[:_AT_ONCE]], self._due[_AT_ONCE:]
        for pid in due:
            self._calibrate(pid)
            self._calibrated_at = now
        used = {}
        counted = set(live)
        for pid in reversed(live):
            others = [below for below in self._descendants[pid] if below not in counted]
            counted.update(others)
            used[pid] = max(0, private_bytes(pid) + self._corrections[pid]) + sum(map(private_bytes, others))
        return used

    def _calibrate(self, pid: int) -> None:
        exact = proportional_bytes(pid)
        self._corrections[pid] = 0 if exact is None else exact - private_bytes(pid)
        self._descendants[pid] = _all_below(pid)


def _all_below(pid: int) -> list[int]:
    below = children_of(pid)
    for child in list(below):
        below.extend(_all_below(child))
    return below


# -- freed memory -----------------------------------------------------------------------------------------------------


def choose_memory_pool() -> None:
    """Select jemalloc, which was measured to be as fast as any of Arrow's allocators and to retain the least.

    Not every build of Arrow has it. The second choice is the allocator of the C library, because the third one maps a
    gigabyte at once, which counts against the memory limit of a worker.
    """
    import pyarrow as pa

    try:
        pool = pa.jemalloc_memory_pool()
    except NotImplementedError:
        pool = pa.system_memory_pool()
    pa.set_memory_pool(pool)


def choose_pool_when_imported() -> None:
    """Call `choose_memory_pool` now, or when Arrow is imported."""
    if "pyarrow" in sys.modules:
        choose_memory_pool()
    elif not any(isinstance(finder, _ArrowFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ArrowFinder())


class _ArrowFinder:
    """Import hook that wraps the loader of Arrow."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = cast(Any, _ArrowLoader(spec.loader))
        return spec


class _ArrowLoader:
    """Loader of Arrow that applies our settings and selects the allocator."""

    def __init__(self, usual: Any) -> None:
        self._usual = usual

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._usual.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        before = {name: os.environ.get(name) for name in SINGLE_THREADED}
        os.environ.update(SINGLE_THREADED)
        try:
            self._usual.exec_module(module)
            choose_memory_pool()
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value


class WorkerFull(ControlSignal):
    """Raised if memory ran out in a worker that retains much from earlier calls, so that the current task is not to
    blame. No `except Exception` catches it."""


class MemoryKeeper:
    """Monitor of a worker's private memory, which returns freed memory to the system when it has accumulated."""

    def __init__(self, share_bytes: int = 0) -> None:
        """`share_bytes`: private memory limit beyond what the worker has now; 0: no limit."""
        self._share = share_bytes
        self._checked_at = 0.0
        self._sampled_at = 0.0
        self._reported_at = 0.0
        self._level = self._base = private_bytes()
        self._kept = 0
        """Bytes beyond the base at the last check between two calls."""

    def before_call(self, now: float) -> int:
        """Check before a call of an op. Return the retained bytes if another call like the last one would exceed the
        limit, so that another worker should run it; else 0."""
        if not self._share or now - self._sampled_at < _SAMPLE_EVERY_S:
            return 0
        self._sampled_at = now
        before, self._kept = self._kept, private_bytes() - self._base
        if not self._would_be_full(before):
            return 0
        self.give_back()
        self._kept = self._level - self._base
        return self._kept if self._would_be_full(before) else 0

    def _would_be_full(self, before: int) -> bool:
        return self._kept + max(0, self._kept - before) > self._share

    def between_chunks(self, now: float) -> int:
        """Check within a long call. Return the retained bytes if the worker should get no further call, at most once a
        second; else 0."""
        if not self._share or now - self._sampled_at < _SAMPLE_EVERY_S:
            return 0
        self._sampled_at = now
        most = RECYCLE_SHARE * self._share
        if private_bytes() - self._base <= most or now - self._reported_at < _REPORT_EVERY_S:
            return 0
        self.give_back()
        kept = self._level - self._base
        if kept <= most:
            return 0
        self._reported_at = now
        return kept

    def was_set_up(self, before: int) -> None:
        """Exclude from the growth what stages loaded in their setup since private memory was `before`."""
        self._base += max(0, private_bytes() - before)

    def raise_if_full(self) -> None:
        """Raise `WorkerFull` if memory ran out and the worker had retained so much before that a new one may
        succeed."""
        if self._share and self._kept > self._share // 2:
            raise WorkerFull(f"the worker had kept {self._kept // 10**6} MB from earlier calls")

    def after_call(self, now: float, held_bytes: int) -> None:
        """Check memory at intervals; called after each call of an op."""
        if now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        if held_bytes > TIDY_ABOVE:
            import gc

            gc.collect()  # views of payloads in reference cycles keep segments in use
        self.tidy()

    def tidy(self) -> None:
        """Return freed memory if much has accumulated; called when the worker is idle."""
        if private_bytes() > self._level + TIDY_ABOVE:
            self.give_back()

    def give_back(self) -> None:
        """Return freed memory of Arrow and the C library to the system."""
        release_freed()
        self._level = private_bytes()


def release_freed() -> None:
    """Return the memory that Arrow and the C library retain to the system."""
    import ctypes

    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


_keeper: MemoryKeeper | None = None


def watch_for_out_of_memory(keeper: MemoryKeeper) -> None:
    """Register `keeper` for `raise_if_full` in this process."""
    global _keeper
    _keeper = keeper


def raise_if_full() -> None:
    """Raise `WorkerFull` if memory ran out in a stage and this worker should be replaced."""
    if _keeper is not None:
        _keeper.raise_if_full()
