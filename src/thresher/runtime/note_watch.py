# SPDX-License-Identifier: Apache-2.0
"""Reads the notes of the workers of one machine: of those that have died, and of those whose call takes too long."""

from __future__ import annotations

from thresher.runtime.death_notes import Note, is_overdue, read_note

LOOK_EVERY_NS = 50_000_000
"""How often workers are looked at for calls that take too long."""


class NoteWatch:
    """Knows where each worker writes what it is at."""

    def __init__(self) -> None:
        self.watches_time = False
        """Whether any stage has a `timeout_s`."""
        self._files: dict[int, int] = {}
        self._overdue: dict[int, Note] = {}
        """What a worker was at when it was to be ended; it may have gone on to something else since."""
        self._looked_ns = 0

    def watch(self, worker: int, file: int) -> None:
        """A worker starts; its notes will be at the end of this file, a descriptor that others close."""
        self._files[worker] = file

    def overdue(self, now_ns: int) -> list[int]:
        """Workers that are in a call for too long; each is told once."""
        if not self.watches_time or now_ns - self._looked_ns < LOOK_EVERY_NS:
            return []
        self._looked_ns = now_ns
        late = []
        for worker, file in self._files.items():
            if worker not in self._overdue and is_overdue(file, now_ns):
                note = read_note(file)
                if note is not None and 0 < note.deadline_ns < now_ns:
                    self._overdue[worker] = note
                    late.append(worker)
        return late

    def note_of_dead(self, worker: int, *, expected: bool) -> Note | None:
        """What a worker was at that has ended; nothing, if it was told to end."""
        file = self._files.pop(worker)
        return self._overdue.pop(worker, None) or (None if expected else read_note(file))
