# SPDX-License-Identifier: Apache-2.0
"""Large records: how many of them the workers of a run may hold at the same time.

A record takes several times its size while it is worked on: as bytes, as text, as a column, as a line. For chunks of a
few megabytes that is nothing; for a record of a sixteenth of the memory it is half of it. So a worker asks before it
holds one, and again before each step that the record goes through, and waits while the others leave no room. One may
be read or filtered while another is rewritten, which takes the most. Room is given only if all that are inside can
come to their end, one after the other if need be. Whoever is alone is let in, so a record is worked on alone if need
be.

How many times its size a record takes in each step is measured by each worker and kept in a table for all.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Sequence

from thresher.runtime.large_table import Entry, LargeTable, find_table, is_safe
from thresher.runtime.memory import private_bytes, proportional_bytes, release_freed

FIRST_FACTOR = 8.0
"""So many times its size is a record expected to take before any was measured. Accented text, rewritten, takes 7."""
LEAST_FACTOR = 2.0
READING_FACTOR = 1.7
"""As much as a record takes while it is read: its buffer, and the smaller one that it outgrew."""
MARGIN = 1.04
"""The next record may take this much more than the last."""
KEPT = 0.95
"""Where a record took less than those before it, the next one is expected to take this part of what they took."""
USABLE = 0.97
"""The part of the memory that is planned with."""
ABOVE_BYTES = 80 * 10**6
"""What the driver and the zygote take, where they are not measured to be larger."""
WAIT_S = 0.01


class ProcessMeter:
    """What processes take, whether they hold a large record or not; pages that several share, by their parts."""

    def own(self) -> int:
        """This one."""
        return proportional_bytes(os.getpid()) or private_bytes()

    def above(self) -> int:
        """The zygote that it was forked from, and the driver."""
        zygote = os.getppid()
        return max(ABOVE_BYTES, sum(proportional_bytes(pid) or 0 for pid in (zygote, _parent_of(zygote)) if pid > 1))


class LargeGate:
    """Where one worker asks for room."""

    def __init__(self, fd: int, memory_bytes: int, meter: ProcessMeter | None = None) -> None:
        """`fd`: the table; `memory_bytes`: the limit of the run; `meter`: measures this process and those above it."""
        self._table = LargeTable(fd)
        self._memory = memory_bytes
        self._meter = meter or ProcessMeter()
        self._inside = False
        self._taken = 0
        """Bytes that it was given for its record."""
        self._before = 0
        """Private memory before the record was there."""
        self._step: int | None = None
        """The step that is measured."""
        self._nbytes = 0
        """Size of the record in it."""
        self._settle()

    @property
    def inside(self) -> bool:
        """Whether a large record may be held now."""
        return self._inside

    def read(self, most_bytes: int, steps: Sequence[int]) -> None:
        """Wait until there is room to read a record of at most `most_bytes`, which will then go through `steps`;
        `enter` follows when its size is known."""
        if not self._inside:
            self._begin()
            self._wait_for(None, most_bytes, steps)

    def enter(self, nbytes: int, step: int, steps: Sequence[int]) -> None:
        """Wait until there is room to work on a record of `nbytes` in `step`; `steps`: all that it goes through."""
        if self._inside and (step, nbytes) == (self._step, self._nbytes):
            return
        if self._inside:
            self._measure()
        else:
            self._begin()
        self._step, self._nbytes = step, nbytes
        self._wait_for(step, nbytes, steps)

    def leave(self) -> None:
        """The record is done; what it took is remembered."""
        if not self._inside:
            return
        self._measure()
        self._inside = False
        self._step = None
        release_freed()
        with self._table.locked():
            self._settle()

    # -- asking -------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        gc.collect()
        release_freed()
        _reset_peak()
        self._base = self._meter.own()
        self._before = private_bytes()
        self._inside = True

    def _settle(self) -> None:
        """Without a record: say what this worker takes by itself."""
        self._taken = 0
        self._base = self._meter.own()
        self._above = self._meter.above()
        self._table.write(Entry(os.getpid(), self._base))

    def _wait_for(self, step: int | None, nbytes: int, steps: Sequence[int]) -> None:
        """For a step, or for reading. Others may have measured by the next time what the step takes."""
        while not self._may_have(READING_FACTOR if step is None else self._factor(step), nbytes, steps):
            time.sleep(WAIT_S)

    def _may_have(self, factor: float, nbytes: int, steps: Sequence[int]) -> bool:
        with self._table.locked():
            wanted = int(factor * nbytes)
            claim = max(wanted, int(max(map(self._factor, steps), default=0.0) * nbytes))
            if not self._is_room(wanted, claim):
                if self._taken:
                    self._table.write(Entry(os.getpid(), self._base, self._taken, max(self._taken, claim), 1))
                return False
            self._taken = wanted
            self._table.write(Entry(os.getpid(), self._base, wanted, claim))
            return True

    def _is_room(self, wanted: int, claim: int) -> bool:
        others = self._table.others()
        inside = [other for other in others if other.taken]
        if not inside or wanted <= self._taken:
            return True
        room = int(USABLE * self._memory) - self._above - self._base - sum(other.base for other in others)
        if is_safe(room, [(wanted, claim), *((other.taken, other.claim) for other in inside)]):
            return True
        return bool(self._taken) and all(other.waits for other in inside)  # somebody must go on

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _factor(self, step: int) -> float:
        return self._table.factor(step) or FIRST_FACTOR

    def _measure(self) -> None:
        """Keep what the record took at most since it entered the step."""
        peak = _peak_bytes()
        _reset_peak()
        if self._step is None or not peak or not self._nbytes:
            return
        measured = MARGIN * max(0, peak - self._before) / self._nbytes
        with self._table.locked():
            known = self._table.factor(self._step)
            self._table.set_factor(self._step, max(LEAST_FACTOR, measured, KEPT * known))


class OpenGate:
    """Where there is no limit, or only one worker: nobody waits."""

    inside = False

    def read(self, most_bytes: int, steps: Sequence[int]) -> None:
        """There is room."""

    def enter(self, nbytes: int, step: int, steps: Sequence[int]) -> None:
        """There is room."""

    def leave(self) -> None:
        """Nobody asks."""


_gate: LargeGate | OpenGate | None = None


def gate_for(memory_bytes: int) -> LargeGate | OpenGate:
    """This process's gate; made when it is first asked for."""
    global _gate  # one per process
    if _gate is None:
        fd = find_table() if memory_bytes else None
        _gate = OpenGate() if fd is None else LargeGate(fd, memory_bytes)
    return _gate


def _forget_gate() -> None:
    global _gate  # a child asks for itself
    _gate = None


os.register_at_fork(after_in_child=_forget_gate)


def _parent_of(pid: int) -> int:
    """0 for a process that is gone."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[1])
    return 0


def _reset_peak() -> None:
    """Let the kernel measure the peak of this process anew."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak_bytes() -> int:
    """The most private memory since `_reset_peak`, as far as the kernel tells: pages of shared memory are taken off."""
    peak = shared = 0
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                peak = int(line.split()[1]) * 1024
            elif line.startswith((b"RssFile:", b"RssShmem:")):
                shared += int(line.split()[1]) * 1024
    return max(0, peak - shared)
