# SPDX-License-Identifier: Apache-2.0
"""Admission control of large records: how many of them the workers of a run may hold at the same time.

A record takes several times its size while it is processed: as bytes, as text, as a column, as a line. For chunks of a
few megabytes that is negligible; for a record of a sixteenth of the memory it is half of the memory. So a worker
requests room before it reads a large record, and again before each step, and waits while the other workers leave too
little. One record may be read or filtered while another is rewritten, which takes the most. Room is granted only if all
admitted records can finish, one after the other if necessary. A worker without competitors is always admitted, so that
every record can be processed alone.

The ratio of memory to record size in each step is measured by each worker and kept in a shared table.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Sequence

from thresher.core.planning.plan import Op, Plan
from thresher.core.records.record_task import RecordTask
from thresher.core.task import RawChunk, Task
from thresher.runtime.memory.large_table import LargeTable, WorkerRow, find_table, is_safe
from thresher.runtime.memory.usage import CALIBRATE_EVERY_S, private_bytes, proportional_bytes, release_freed

FIRST_FACTOR = 8.0
"""Assumed ratio of memory to record size before any was measured. Accented text, rewritten, takes 7."""
LEAST_FACTOR = 2.0
READING_FACTOR = 1.7
"""Ratio while a record is read: its buffer, and the smaller one that it outgrew."""
MARGIN = 1.04
"""Margin by which the next record may take more than the last."""
KEPT = 0.95
"""Decay of the known ratio after a record that took less."""
USABLE = 0.97
"""Share of the memory that is planned with."""
ABOVE_BYTES = 80 * 10**6
"""Assumed memory of the driver and the zygote, if they are not measured to be larger."""
WAIT_S = 0.01
MOST_STEPS = 16
"""Number of steps of an op with ratios of their own."""
WIDTHS = 3
"""Number of text widths: one, two or four bytes per character in Python. The memory of a record depends on it."""
_STRETCH = 2**20


class ProcessMeter:
    """Memory of processes with or without large records; shared pages count proportionally.

    The exact value takes longer the more shared memory is mapped: for payloads of 100 MB, reading it four times per
    record was most of the work of a consumer. So it is read now and then, and its difference from the private memory,
    which changes little, is kept in between.
    """

    def __init__(self) -> None:
        self._corrections: dict[int, tuple[float, int]] = {}
        """Time of the exact measurement, and its difference from the private memory, by process."""

    def own(self) -> int:
        """Return the memory of this process."""
        return self._bytes_of(os.getpid())

    def above(self) -> int:
        """Return the memory of the zygote and the driver."""
        zygote = os.getppid()
        return max(ABOVE_BYTES, sum(self._bytes_of(pid) for pid in (zygote, _parent_of(zygote)) if pid > 1))

    def _bytes_of(self, pid: int) -> int:
        now = time.monotonic()
        measured_at, correction = self._corrections.get(pid, (-CALIBRATE_EVERY_S, 0))
        if now - measured_at >= CALIBRATE_EVERY_S:
            exact = proportional_bytes(pid)
            correction = 0 if exact is None else exact - private_bytes(pid)
            self._corrections[pid] = (now, correction)
        return max(0, private_bytes(pid) + correction)


class LargeGate:
    """Admission of the large records of one worker."""

    def __init__(self, fd: int, memory_bytes: int, meter: ProcessMeter | None = None) -> None:
        """`fd`: the shared table; `memory_bytes`: the limit of the run; `meter`: measures this process and its
        ancestors."""
        self._table = LargeTable(fd)
        self._memory = memory_bytes
        self._meter = meter or ProcessMeter()
        self._inside = False
        self._granted = 0
        """Bytes granted for its record."""
        self._before = 0
        """Private memory before the record was read."""
        self._step: int | None = None
        """The step that is being measured."""
        self._nbytes = 0
        """Size of the record in that step."""
        self._publish_idle()

    @property
    def inside(self) -> bool:
        """True if a large record is admitted."""
        return self._inside

    def read(self, most_bytes: int, steps: Sequence[int]) -> None:
        """Wait until there is room to read a record of at most `most_bytes` that will go through `steps`; `enter`
        follows once its size is known."""
        if not self._inside:
            self._begin()
            self._wait_for(None, most_bytes, steps)

    def enter(self, nbytes: int, step: int, steps: Sequence[int]) -> None:
        """Wait until there is room to process a record of `nbytes` in `step`; `steps`: all steps of the record."""
        if self._inside and (step, nbytes) == (self._step, self._nbytes):
            return
        if self._inside:
            self._measure()
        else:
            self._begin()
        self._step, self._nbytes = step, nbytes
        self._wait_for(step, nbytes, steps)

    def leave(self) -> None:
        """Release the room of the record, and keep what it was measured to take."""
        if not self._inside:
            return
        self._measure()
        self._inside = False
        self._step = None
        release_freed()
        with self._table.locked():
            self._publish_idle()

    # -- requests -----------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        gc.collect()
        release_freed()
        _reset_peak()
        self._base = self._meter.own()
        self._before = private_bytes()
        self._inside = True

    def _publish_idle(self) -> None:
        """Publish this worker's memory without a large record."""
        self._granted = 0
        self._base = self._meter.own()
        self._above = self._meter.above()
        self._table.write(WorkerRow(os.getpid(), self._base))

    def _wait_for(self, step: int | None, nbytes: int, steps: Sequence[int]) -> None:
        """Wait for a step, or for reading (`None`). Each attempt uses the latest ratio, which other workers may have
        measured."""
        while not self._try_acquire(READING_FACTOR if step is None else self._factor(step), nbytes, steps):
            time.sleep(WAIT_S)

    def _try_acquire(self, factor: float, nbytes: int, steps: Sequence[int]) -> bool:
        with self._table.locked():
            wanted = int(factor * nbytes)
            claim = max(wanted, int(max(map(self._factor, steps), default=0.0) * nbytes))
            if not self._has_room(wanted, claim):
                if self._granted:
                    self._table.write(WorkerRow(os.getpid(), self._base, self._granted, max(self._granted, claim), 1))
                return False
            self._granted = wanted
            self._table.write(WorkerRow(os.getpid(), self._base, wanted, claim))
            return True

    def _has_room(self, wanted: int, claim: int) -> bool:
        others = self._table.others()
        inside = [other for other in others if other.taken]
        if not inside or wanted <= self._granted:
            return True
        room = int(USABLE * self._memory) - self._above - self._base - sum(other.base for other in others)
        if is_safe(room, [(wanted, claim), *((other.taken, other.claim) for other in inside)]):
            return True
        return bool(self._granted) and all(other.waits for other in inside)  # all others wait: one must proceed

    # -- measuring ----------------------------------------------------------------------------------------------------

    def _factor(self, step: int) -> float:
        return self._table.factor(step) or FIRST_FACTOR

    def _measure(self) -> None:
        """Keep the peak memory of the record in the current step."""
        peak = _peak_bytes()
        _reset_peak()
        if self._step is None or not peak or not self._nbytes:
            return
        measured = MARGIN * max(0, peak - self._before) / self._nbytes
        with self._table.locked():
            known = self._table.factor(self._step)
            self._table.set_factor(self._step, max(LEAST_FACTOR, measured, KEPT * known))


_gate: LargeGate | None = None


def gate_for(memory_bytes: int) -> LargeGate | None:
    """Return the gate of this process, created on the first call; `None` without a memory limit or other workers."""
    global _gate  # one per process
    if _gate is None:
        fd = find_table() if memory_bytes else None
        _gate = None if fd is None else LargeGate(fd, memory_bytes)
    return _gate


def _forget_gate() -> None:
    global _gate  # a child process gets its own gate
    _gate = None


os.register_at_fork(after_in_child=_forget_gate)


class LargeRecord:
    """Requests of one flow. Most flows never hold a large record and make none."""

    def __init__(self, plan: Plan, op: Op, gate: LargeGate) -> None:
        self._gate = gate
        self.large_bytes = max(2 * plan.settings.chunk_bytes, plan.settings.large_bytes)
        """Size above which a task requests room before each step."""
        self._most_bytes = plan.settings.max_record_bytes
        self._first_step = op.index * MOST_STEPS * WIDTHS
        self._num_steps = min(MOST_STEPS, len(op.steps))
        self._nbytes = 0
        """Size of the record that is held, or may be; 0: none."""
        self._width = 0

    def before_read(self, nbytes: int = 0) -> float:
        """Wait, before something large is read, until there is room for `nbytes`, or for the largest record; return the
        seconds that it took."""
        started = time.perf_counter()
        self._nbytes = nbytes or self._most_bytes
        # What is read by its size (a page of many rows) is not necessarily one record.
        steps = [] if nbytes else [step for width in range(WIDTHS) for step in self._steps(width)]
        self._gate.read(self._nbytes, steps)
        return time.perf_counter() - started

    def admit(self, task: Task, nbytes: int) -> None:
        """Prepare for a task that enters the op: if it is large, each of its steps requests room."""
        if nbytes > self.large_bytes:
            self._nbytes = nbytes
            self._width = _text_width(task)
        else:
            self.leave()

    def at_step(self, place: int) -> None:
        """Wait, before a step of the op, until there is room. The next output of a generator counts to the step that
        its last one reached."""
        if self._nbytes:
            steps = self._steps(self._width)
            self._gate.enter(self._nbytes, steps[min(place, self._num_steps - 1)], steps)

    def leave(self) -> None:
        """Release the room: the record is done, or is about to wait for something other than room."""
        if self._nbytes:
            self._gate.leave()
            self._nbytes = 0

    def _steps(self, width: int) -> range:
        """Return the numbers of the op's steps, for text of one width."""
        first = self._first_step + width
        return range(first, first + self._num_steps * WIDTHS, WIDTHS)


def _text_width(task: Task) -> int:
    """Return the text width of a record, as far as its bytes show; the widest if they are not available."""
    buffer = task.raw_buffer if isinstance(task, RawChunk | RecordTask) else None
    if buffer is None:
        return WIDTHS - 1
    width = 0
    view = memoryview(buffer).cast("B")
    for start in range(0, view.nbytes, _STRETCH):
        stretch = bytes(view[start : start + _STRETCH])
        if not stretch.isascii():
            width = max(width, 2 if max(stretch) >= 0xF0 else 1)
        elif b"\\u" in stretch:
            width = max(width, 2 if b"\\ud" in stretch or b"\\uD" in stretch else 1)
        if width == WIDTHS - 1:
            break
    return width


def _parent_of(pid: int) -> int:
    """Return the parent of a process; 0 if the process has exited."""
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/stat", "rb") as stat:
        return int(stat.read().rpartition(b")")[2].split()[1])
    return 0


def _reset_peak() -> None:
    """Reset the kernel's peak measurement of this process."""
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


def _peak_bytes() -> int:
    """Return the peak private memory since `_reset_peak`, estimated by subtracting shared pages."""
    peak = shared = 0
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"VmHWM:"):
                peak = int(line.split()[1]) * 1024
            elif line.startswith((b"RssFile:", b"RssShmem:")):
                shared += int(line.split()[1]) * 1024
    return max(0, peak - shared)
