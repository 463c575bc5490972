# SPDX-License-Identifier: Apache-2.0
"""Evidence of crashes: what is known against tasks and records, and what follows for the next call that gets them.

The driver reads the note of a worker that crashed and sends it to all workers. All of them decide alike, because a
decision depends on the notes alone:

- a batch that crashed a worker or took too long, or on which two workers were killed, is run record by record;
- a record that crashes workers when it is alone is quarantined once the weights of its crashes suffice;
- if each record of such a batch succeeds alone, the stage gets half as many records per call from then on;
- once several records of a stage were quarantined, its next batches are run record by record at once.

A crash is caused by the stage. A SIGKILL may come from any process, and a call may take too long because the machine is
busy, so both weigh half for a single record: it is quarantined only if that happens twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

CRASHED, TIMEOUT = "worker-crashed", "timeout"
CERTAIN, DOUBTFUL = 2, 1
"""Weight of a crash that the stage caused, and of one that may have an outside cause."""
CUTS, CONDEMNS = 2, 3
"""Weight from which a batch is cut, and from which a record is quarantined."""
SEVERAL = 3
"""Number of quarantined records from which the batches of a stage are run record by record at once."""
PATIENCE = 12
"""Number of crashes in one stage without a finding before its units are blamed."""


class Suspect(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One crash in a stage, or (without `error`) the news that all records of a batch succeeded alone."""

    stage: str
    """The stage."""
    names: tuple[str, ...]
    """Names of what the stage was given."""
    size: int = 0
    """Number of records."""
    alone: bool = False
    """True if it was a single record, or could not be cut."""
    weight: int = 0
    """Weight of the crash."""
    evidence: int = 0
    """Weight of earlier crashes of calls that held more."""
    error: str = ""
    """`worker-crashed`, `timeout` or `out-of-memory`."""
    message: str = ""
    """Text for the quarantine file."""


class Charge(NamedTuple):
    """The evidence against one task or record in one stage."""

    weight: int = 0
    """Sum over all crashes."""
    deaths: int = 0
    """Number of crashes."""
    is_condemned: bool = False
    """True if it is quarantined instead of being tried again."""
    error: str = ""
    """Kind of the last crash."""
    message: str = ""
    """Text of the last crash."""


NO_CHARGE = Charge()


class Suspicions:
    """The evidence of one run."""

    def __init__(self) -> None:
        self.charges: dict[tuple[str, str], Charge] = {}
        """By stage and name; empty while no worker crashed in a stage: then tasks are never cut."""
        self._condemned: Counter[str] = Counter()
        """By stage: quarantined records."""
        self._in_vain: Counter[str] = Counter()
        """By stage: crashes since the last finding."""
        self._most_rows: dict[str, int] = {}
        """By stage: maximum number of records per call."""
        self._groups: set[str] = set()
        """Stages in which a call for several tasks crashed a worker."""
        self._news: list[Suspect] = []
        """Findings of this process that it has not reported yet."""

    def learn(self, suspect: Suspect) -> None:
        """Add a crash, or the news that records succeeded alone."""
        stage = suspect.stage
        if not suspect.error:
            self._drop_charge(suspect)
            return
        self._in_vain[stage] += 1
        if len(suspect.names) > 1:
            self._groups.add(stage)
        for name in suspect.names:
            known_charge = self.charges.get((stage, name), NO_CHARGE)
            weight = known_charge.weight + suspect.weight
            proven = weight >= CERTAIN or suspect.evidence >= CONDEMNS
            is_condemned = suspect.alone and proven and weight + suspect.evidence >= CONDEMNS
            if is_condemned and not known_charge.is_condemned:
                self._condemned[stage] += 1
                self._in_vain[stage] = 0
            charge = Charge(weight, known_charge.deaths + 1, is_condemned, suspect.error, suspect.message)
            self.charges[stage, name] = charge

    def learn_all(self, suspects: Iterable[Suspect]) -> None:
        """Add all of them, in order."""
        for suspect in suspects:
            self.learn(suspect)

    def _drop_charge(self, cleared: Suspect) -> None:
        stage = cleared.stage
        self._in_vain[stage] = 0
        for name in cleared.names:
            self.charges.pop((stage, name), None)
        if cleared.size > 1:
            known = self._most_rows.get(stage, cleared.size)
            self._most_rows[stage] = max(1, min(known, cleared.size // 2))

    def clear(self, stage: str, name: str, size: int) -> None:
        """Note, to be reported, that a batch was processed record by record; `size`: of how many, where none failed."""
        news = Suspect(stage, (name,), size)
        self.learn(news)
        self._news.append(news)

    def take_news(self) -> list[Suspect]:
        """Return what this process found out since the last call."""
        taken = self._news
        if taken:
            self._news = []
        return taken

    def has_condemned(self, stage: str) -> bool:
        """Return True if any record of a stage is quarantined."""
        return self._condemned[stage] > 0

    def has_lost_groups(self, stage: str) -> bool:
        """Return True if a call for several tasks crashed a worker."""
        return stage in self._groups

    def against(self, stage: str, name: str) -> Charge:
        """Return the evidence against a task or record."""
        return self.charges.get((stage, name), NO_CHARGE)

    def is_notorious(self, stage: str) -> bool:
        """Return True if the batches of a stage are run record by record at once."""
        return self._condemned[stage] >= SEVERAL

    def most_rows(self, stage: str) -> int | None:
        """Return the maximum number of records per call of a stage; `None` if there is no limit."""
        return self._most_rows.get(stage)

    def leads_somewhere(self, stage: str) -> bool:
        """Return True if crashes in a stage led to a finding lately; otherwise its units are blamed."""
        return self._in_vain[stage] <= PATIENCE


KNOWN = Suspicions()
"""The evidence that this process has received."""
