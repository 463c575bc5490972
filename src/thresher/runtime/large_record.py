# SPDX-License-Identifier: Apache-2.0
"""The large record that a flow holds: asks at the gate before it is read and before each step, and leaves in time."""

from __future__ import annotations

import time
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.plan import Op, Plan
from thresher.core.task import EmptyTask, RawChunk, Task
from thresher.runtime.large_gate import LargeGate, OpenGate

MOST_STEPS = 16
"""Steps of an op whose factors are kept apart."""
WIDTHS = 3
"""Kinds of text: what Python keeps in one byte a character, in two, in four. What a record takes depends on it."""
_STRETCH = 2**20


class LargeRecord:
    """What one flow asks for. Most flows never hold anything large, and never ask."""

    def __init__(self, plan: Plan, op: Op, gate: LargeGate | OpenGate) -> None:
        self._gate = gate
        self._large_bytes = 2 * plan.settings.chunk_bytes
        self._most_bytes = plan.settings.max_record_bytes
        self._first_step = op.index * MOST_STEPS * WIDTHS
        self._places = min(MOST_STEPS, len(op.steps))
        self._nbytes = 0
        """Bytes of the record that is held, or may be; 0: none."""
        self._width = 0
        self._waited_s = 0.0

    def before_read(self, nbytes: int = 0) -> None:
        """Before something large is read: wait until there is room for `nbytes`, or for the largest record."""
        started = time.perf_counter()
        self._nbytes = nbytes or self._most_bytes
        # What is read by its size (a page of many rows) need not be one record that goes on as a whole.
        steps = [] if nbytes else [step for width in range(WIDTHS) for step in self._steps(width)]
        self._gate.read(self._nbytes, steps)
        self._waited_s += time.perf_counter() - started

    def admit(self, task: Task) -> None:
        """Before a task enters the op: if it is large, each of its steps asks for room."""
        if self.is_large(task):
            self._nbytes = task.nbytes
            self._width = _text_width(task)
        else:
            self.leave()

    def is_large(self, task: Task) -> bool:
        """Whether each step of the op asks for room before it works on the task."""
        return not isinstance(task, EmptyTask) and task.nbytes > self._large_bytes

    def at_step(self, place: int) -> None:
        """Before a step of the op works on what became of the record: wait until there is room. What a generator makes
        next is counted to the step that its last result reached."""
        if self._nbytes:
            steps = self._steps(self._width)
            self._gate.enter(self._nbytes, steps[min(place, self._places - 1)], steps)

    def leave(self) -> None:
        """The record is gone, or is about to wait for something else than room."""
        if self._nbytes:
            self._gate.leave()
            self._nbytes = 0

    def take_waited_s(self) -> float:
        """Seconds that reading waited since this was last asked: they are no work."""
        waited, self._waited_s = self._waited_s, 0.0
        return waited

    def _steps(self, width: int) -> range:
        """The numbers of the op's steps, for text of one kind."""
        first = self._first_step + width
        return range(first, first + self._places * WIDTHS, WIDTHS)


def _text_width(task: Task) -> int:
    """Which kind of text a record is, as far as its bytes tell; the widest where they are not at hand."""
    buffer: Any = None
    if isinstance(task, RawChunk):
        buffer = task.data
    elif isinstance(task, DocumentBatch) and task.raw_lines is not None:
        buffer = task.raw_lines.buffer
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
