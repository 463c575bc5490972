# SPDX-License-Identifier: Apache-2.0
"""Finds out what workers died on, from the note that a dead one left, and tells the others."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from thresher.runtime.crashes.crash_notes import PROCESS, Note
from thresher.runtime.crashes.evidence import CERTAIN, CRASHED, DOUBTFUL, TIMEOUT, Suspect, Suspicions
from thresher.runtime.processes.pool import Gone
from thresher.stage_errors import OUT_OF_MEMORY


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
    """Knows what was learnt from the notes of dead workers."""

    def __init__(self) -> None:
        self._suspicions = Suspicions()
        self._told: list[Suspect] = []
        """Everything that workers should know, in order."""
        self._knows: dict[int, int] = {}
        """Worker to how much of that it was told."""

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

    def examine(self, worker: int, gone: Gone, note: Note | None) -> Finding:
        """What a worker died on; `note`: what it was at, if it was at anything."""
        self._knows.pop(worker, None)
        if note is None:
            return Finding(gone.reason)
        reason = "a call took longer than timeout_s" if gone.overdue else gone.reason
        reason = f"{reason}, while {note}"
        if note.kind != PROCESS or gone.status is None:
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
    overran_alone = gone.overdue and note.alone
    weight = DOUBTFUL if killed or overran_alone else CERTAIN
    evidence = max(note.evidence, DOUBTFUL) if overran_alone else note.evidence  # so that twice is enough for any task
    return Suspect(note.stage, note.names, note.size, note.alone, weight, evidence, error, text)
