# SPDX-License-Identifier: Apache-2.0
"""Read the notes of the workers of one machine: of those that ended, and of those whose call takes too long."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from thresher.runtime.crashes.call_clock import CallClock, Seen, stolen_ns, waits_ns
from thresher.runtime.crashes.crash_notes import Note, read_note, timed_call

if TYPE_CHECKING:
    from thresher.core.stage import ProcessingStage


def shortest_limit_s(stages: Iterable[ProcessingStage[Any, Any]]) -> float:
    """Return the shortest `timeout_s` of some stages; 0: none has any."""
    return min((stage.timeout_s for stage in stages if stage.timeout_s), default=0.0)


class NoteWatch:
    """The files in which the workers of a machine write their notes."""

    def __init__(self) -> None:
        self._clock: CallClock | None = None
        """Measures calls, where any stage has a `timeout_s`."""
        self._files: dict[int, int] = {}
        self._overdue: dict[int, Note] = {}
        """The note of a worker when it was to be ended; it may have made other calls since."""

    def measure_calls(self, shortest_limit_s: float) -> None:
        """Look for calls that take too long; `shortest_limit_s`: the shortest limit of any stage."""
        self._clock = CallClock(shortest_limit_s) if shortest_limit_s else None

    @property
    def interval_s(self) -> float | None:
        """Time from one look for calls that take too long to the next; `None`: there are no limits."""
        return self._clock.interval_ns / 10**9 if self._clock is not None else None

    def watch(self, worker: int, file: int) -> None:
        """Add a worker whose notes will be at the end of this file, a descriptor that the caller closes."""
        self._files[worker] = file

    def overdue(self, now_ns: int) -> list[int]:
        """Return workers that are in a call for too long; each is returned once."""
        if self._clock is None or not self._clock.is_due(now_ns):
            return []
        found = {}
        for worker, file in self._files.items():
            call = timed_call(file) if worker not in self._overdue else None
            if call is not None:
                found[worker] = Seen(call.turn, call.limit_ns, waits_ns(call.process))
        late = []
        for worker in self._clock.look(now_ns, found, stolen_ns()):
            note, call = read_note(self._files[worker]), timed_call(self._files[worker])
            if note is not None and call is not None and call.turn == found[worker].turn:
                self._overdue[worker] = note
                late.append(worker)
        return late

    def note_of_dead(self, worker: int, *, expected: bool) -> Note | None:
        """Return the note of a worker that has ended; `None` if it was told to end, or was in no call."""
        file = self._files.pop(worker)
        return self._overdue.pop(worker, None) or (None if expected else read_note(file))
