# SPDX-License-Identifier: Apache-2.0
"""How much memory there is, how much a tree of processes takes, and giving freed memory back."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from thresher.runtime.launch import SINGLE_THREADED

_PAGE = os.sysconf("SC_PAGE_SIZE")
DEFAULT_SHARE = 0.6
"""What a run may use of the machine, or of its control group, unless it is told."""
TIDY_ABOVE = 64 * 2**20
"""Memory is given back when a worker holds this much more than after the last time."""
RECYCLE_SHARE = 0.75
"""A worker that has taken more of its share should be replaced, before allocations begin to fail in it."""
_CHECK_EVERY_S = 0.5
_LOOK_EVERY_S = 0.01
_TELL_EVERY_S = 1.0
_CALIBRATE_EVERY_S = 10.0
_AT_ONCE = 4
"""How many corrections are measured at once."""


# -- what there is ----------------------------------------------------------------------------------------------------


def available_memory() -> int:
    """What this process and its children may take: of the machine, or of the control group if that allows less."""
    machine = os.sysconf("SC_PHYS_PAGES") * _PAGE
    return min([machine, *_group_limits()])


def default_memory() -> int:
    """The ceiling of a run that is not told any."""
    return int(available_memory() * DEFAULT_SHARE)


def _group_limits(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> list[int]:
    """Limits of the control groups that this process is in (version 2, then version 1)."""
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
    """What one worker may take for itself, of the memory of a run: its part of what payloads and the other processes
    leave, and at least what the largest record needs that must be worked on, alone if need be."""
    return max(memory_bytes * 5 // 8 // max(1, workers), memory_bytes * 3 // 8)


# -- what is used -----------------------------------------------------------------------------------------------------


def private_bytes(pid: int | str = "self") -> int:
    """Resident memory that is neither file nor shared memory; 0 for a process that is gone."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            _, resident, shared, *_ = statm.read().split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * _PAGE


def proportional_bytes(pid: int) -> int | None:
    """The share of a process in its pages, without shared memory. Exact, and slow: the kernel walks its page tables."""
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
    """Processes that a process started and that still live."""
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
    """Memory of some processes and their descendants, without shared memory segments, which the driver counts itself.

    `statm` is cheap, counts pages that forked siblings share several times, and counts files not at all. The difference
    to the truth hardly changes, so it is measured for one process after the other, now and then, and added.
    """

    def __init__(self) -> None:
        self._corrections: dict[int, int] = {}
        self._descendants: dict[int, list[int]] = {}
        self._due: list[int] = []
        """Processes whose correction is to be measured again."""
        self._calibrated_at = 0.0

    def measure(self, pids: Iterable[int], now: float) -> int:
        """Bytes in use."""
        return sum(self.measure_each(pids, now).values())

    def measure_each(self, pids: Iterable[int], now: float) -> dict[int, int]:
        """Bytes in use by each of the processes, with what is below it; of two that it is below, the later has it."""
        live = dict.fromkeys(pids)
        gone = [pid for pid in self._corrections if pid not in live]
        new = [pid for pid in live if pid not in self._corrections]
        for pid in gone:
            del self._corrections[pid]
            self._descendants.pop(pid, None)
        if gone or new:
            self._due = [pid for pid in live if pid not in new]  # what they share has changed
        elif not self._due and now - self._calibrated_at >= _CALIBRATE_EVERY_S:
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


# -- giving back ------------------------------------------------------------------------------------------------------


def choose_memory_pool() -> None:
    """Of Arrow's allocators, jemalloc was measured to be as fast as any and to keep the least.

    Not every build of Arrow has it. The next best one is that of the C library, because the third maps a gigabyte at
    once, which the kernel would count against the share of a worker.
    """
    import pyarrow as pa

    try:
        pool = pa.jemalloc_memory_pool()
    except NotImplementedError:
        pool = pa.system_memory_pool()
    pa.set_memory_pool(pool)


def choose_pool_when_imported() -> None:
    """`choose_memory_pool` as soon as Arrow is imported by whoever needs it, which may be now or never."""
    if "pyarrow" in sys.modules:
        choose_memory_pool()
    elif not any(isinstance(finder, _ArrowFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _ArrowFinder())


class _ArrowFinder:
    """Is asked for every module that is imported, and has something to add to one."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != "pyarrow":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = cast(Any, _ArrowLoader(spec.loader))
        return spec


class _ArrowLoader:
    """Loads Arrow as ever, under our settings for it, and chooses the allocator."""

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


class WorkerFull(BaseException):
    """Memory ran out in a worker that had kept much of it from earlier calls: not the fault of what it works on now.
    No `except Exception` stops it."""


class MemoryKeeper:
    """Watches what a worker takes for itself, and gives freed memory back to the system when it has piled up."""

    def __init__(self, share_bytes: int = 0) -> None:
        """`share_bytes`: what the worker may take beyond what it has now; 0: no limit."""
        self._share = share_bytes
        self._checked_at = 0.0
        self._looked_at = 0.0
        self._told_at = 0.0
        self._level = self._base = private_bytes()
        self._kept = 0
        """What it had kept beyond the base when it was last between two calls."""

    def before_call(self, now: float) -> int:
        """Called before each call of an op. What the worker has kept, if one more call like the last one would take it
        beyond its share: another worker should make that call."""
        if not self._share or now - self._looked_at < _LOOK_EVERY_S:
            return 0
        self._looked_at = now
        before, self._kept = self._kept, private_bytes() - self._base
        if not self._would_be_full(before):
            return 0
        self.give_back()
        self._kept = self._level - self._base
        return self._kept if self._would_be_full(before) else 0

    def _would_be_full(self, before: int) -> bool:
        return self._kept + max(0, self._kept - before) > self._share

    def between_chunks(self, now: float) -> int:
        """Called now and then within a long call. What the worker has kept, if that is so much that it should get no
        further call; said at most once a second."""
        if not self._share or now - self._looked_at < _LOOK_EVERY_S:
            return 0
        self._looked_at = now
        most = RECYCLE_SHARE * self._share
        if private_bytes() - self._base <= most or now - self._told_at < _TELL_EVERY_S:
            return 0
        self.give_back()
        kept = self._level - self._base
        if kept <= most:
            return 0
        self._told_at = now
        return kept

    def was_set_up(self, before: int) -> None:
        """Stages were set up since private memory was `before`: what they loaded is no growth."""
        self._base += max(0, private_bytes() - before)

    def raise_if_full(self) -> None:
        """Called where memory ran out: raise if the worker had kept so much before that a new one may do better."""
        if self._share and self._kept > self._share // 2:
            raise WorkerFull(f"the worker had kept {self._kept // 10**6} MB from earlier calls")

    def after_call(self, now: float, held_bytes: int) -> None:
        """Called after each call of an op; looks at memory now and then."""
        if now - self._checked_at < _CHECK_EVERY_S:
            return
        self._checked_at = now
        if held_bytes > TIDY_ABOVE:
            import gc

            gc.collect()  # views of payloads that sit in reference cycles keep shared memory busy
        self.tidy()

    def tidy(self) -> None:
        """Called when there is nothing to do."""
        if private_bytes() > self._level + TIDY_ABOVE:
            self.give_back()

    def give_back(self) -> None:
        """Return freed memory of Arrow and of the C library."""
        release_freed()
        self._level = private_bytes()


def release_freed() -> None:
    """What Arrow and the C library keep for later goes back to the system."""
    import ctypes

    arrow = sys.modules.get("pyarrow")
    if arrow is not None:
        arrow.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)


_keeper: MemoryKeeper | None = None


def watch_for_out_of_memory(keeper: MemoryKeeper) -> None:
    """The memory of this process is watched by `keeper` from now on."""
    global _keeper
    _keeper = keeper


def raise_if_full() -> None:
    """Called where memory ran out in a stage: raises `WorkerFull` in a worker that should be replaced instead."""
    if _keeper is not None:
        _keeper.raise_if_full()
