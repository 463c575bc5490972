# SPDX-License-Identifier: Apache-2.0
"""Finds out what workers died on: reads the note that a dead one left, and tells the others.

Also watches the time: a worker whose call takes longer than `timeout_s` is to be ended.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from thresher.core.out_of_memory import OUT_OF_MEMORY
from thresher.runtime.death_notes import PROCESS, Note, is_overdue, read_note
from thresher.runtime.process_pool import Gone
from thresher.runtime.suspicions import CERTAIN, CRASHED, DOUBTFUL, TIMEOUT, Suspect, Suspicions

LOOK_EVERY_NS = 50_000_000
"""How often workers are looked at for calls that take too long."""


@dataclass(frozen=True)
class Finding:
    """What is known about a death."""

    reason: str
    """For people."""
    blamed: bool = True
    """Whether what the worker held is to blame; otherwise what it died on will be isolated."""
    condemned: str = ""
    """Stage and kind of error, where one record will be set aside for it."""


class Coroner:
    """Knows the notes of all workers, and what was learnt from those of dead ones."""

    def __init__(self) -> None:
        self.watches_time = False
        """Whether any stage has a `timeout_s`."""
        self._arenas: dict[int, int] = {}
        self._overdue: dict[int, Note] = {}
        """What a worker was at when it was to be ended; it may have gone on to something else since."""
        self._looked_ns = 0
        self._suspicions = Suspicions()
        self._told: list[Suspect] = []
        """Everything that workers should know, in order."""
        self._knows: dict[int, int] = {}
        """Worker to how much of that it was told."""

    def watch(self, worker: int, arena: int) -> None:
        """A worker starts; its notes will be in this arena."""
        self._arenas[worker] = arena

    def overdue(self, now_ns: int) -> list[int]:
        """Workers that are in a call for too long."""
        if not self.watches_time or now_ns - self._looked_ns < LOOK_EVERY_NS:
            return []
        self._looked_ns = now_ns
        late = []
        for worker, arena in self._arenas.items():
            if worker not in self._overdue and is_overdue(arena, now_ns):
                note = read_note(arena)
                if note is not None and 0 < note.deadline_ns < now_ns:
                    self._overdue[worker] = note
                    late.append(worker)
        return late

    def news_for(self, worker: int) -> list[Suspect]:
        """What a worker was not told yet."""
        known = self._knows.get(worker, 0)
        if known == len(self._told):
            return []
        self._knows[worker] = len(self._told)
        return self._told[known:]

    def cleared(self, suspects: list[Suspect]) -> None:
        """A worker found that batches came to their end record by record."""
        for suspect in suspects:
            self._learn(suspect)

    def examine(self, worker: int, gone: Gone) -> Finding:
        """What a worker died on."""
        arena = self._arenas.pop(worker)
        self._knows.pop(worker, None)
        note = self._overdue.pop(worker, None) or (None if gone.expected else read_note(arena))
        if note is None:
            return Finding(gone.reason)
        reason = "a call took longer than timeout_s" if gone.overdue else gone.reason
        reason = f"{reason}, while {note}"
        if note.kind != PROCESS or not gone.status:
            return Finding(reason)
        suspect = _suspect(note, gone, reason)
        before = self._condemned(suspect)
        self._learn(suspect)
        condemned = f"{note.stage}/{suspect.error}" if self._condemned(suspect) > before else ""
        return Finding(reason, not self._suspicions.leads_somewhere(note.stage), condemned)

    def _condemned(self, suspect: Suspect) -> int:
        return sum(self._suspicions.against(suspect.stage, name).is_condemned for name in suspect.names)

    def _learn(self, suspect: Suspect) -> None:
        self._suspicions.learn(suspect)
        self._told.append(suspect)


def _suspect(note: Note, gone: Gone, reason: str) -> Suspect:
    """What a death says about what the worker was at."""
    killed = gone.status == -signal.SIGKILL and not gone.overdue
    error = TIMEOUT if gone.overdue else OUT_OF_MEMORY if killed else CRASHED
    text = (
        "worker was killed by signal 9 while it worked on this record alone, and before; the kernel does that where "
        "memory runs out; give the run more memory, or let the stage need less"
        if killed
        else reason
    )
    weight = DOUBTFUL if killed else CERTAIN
    return Suspect(note.stage, note.names, note.size, note.alone, weight, note.evidence, error, text)
