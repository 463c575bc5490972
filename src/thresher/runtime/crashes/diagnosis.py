# SPDX-License-Identifier: Apache-2.0
"""Find out what workers crashed on, from the notes that they left, and pass it on to the others."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from thresher.runtime.crashes.crash_notes import PROCESS, Note
from thresher.runtime.crashes.evidence import CERTAIN, CRASHED, DOUBTFUL, TIMEOUT, Suspect, Suspicions
from thresher.runtime.processes.pool import Gone
from thresher.stage_errors import OUT_OF_MEMORY


@dataclass(frozen=True)
class Finding:
    """The cause of a crash, as far as it is known."""

    reason: str
    """Text for messages."""
    blamed: bool = True
    """True if the units that the worker held are blamed; otherwise the task that it crashed on will be isolated."""
    condemned: str = ""
    """Stage and kind of error, if a record will be quarantined for it."""


class Coroner:
    """The evidence from the notes of crashed workers, and what each worker has received of it."""

    def __init__(self) -> None:
        self._suspicions = Suspicions()
        self._told: list[Suspect] = []
        """All findings, in order."""
        self._knows: dict[int, int] = {}
        """By worker: the number of findings that it has received."""

    def news_for(self, worker: int) -> list[Suspect]:
        """Return the findings that a worker has not received yet."""
        known = self._knows.get(worker, 0)
        if known == len(self._told):
            return []
        self._knows[worker] = len(self._told)
        return self._told[known:]

    def cleared(self, suspects: list[Suspect]) -> None:
        """Add the news of a worker that batches succeeded record by record."""
        for suspect in suspects:
            self._learn(suspect)

    def examine(self, worker: int, gone: Gone, note: Note | None) -> Finding:
        """Return the cause of a crash and learn from it; `note`: of the call that the worker was in, if any."""
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
    """Return the evidence of a crash against what the worker was working on."""
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
