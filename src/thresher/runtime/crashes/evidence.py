# SPDX-License-Identifier: Apache-2.0
"""What workers died on, and what follows for the next one that is given the same.

The driver learns of a death and of the note that the worker left, and tells all workers. All of them come to the same
verdict, because it depends on what was told alone:

- a batch that crashed a worker or took too long, or on which two workers were killed, is run record by record;
- a record that workers die on when it is alone is set aside, as soon as that weighs enough;
- a batch of which each record works alone failed only together: the stage gets half as many records from then on;
- where several records of a stage were set aside, its next batches are run record by record at once.

A crash is the stage's doing. A SIGKILL may have come from anybody, and a record may have taken too long because the
machine was busy, so both weigh half where the record is alone: it is set aside only if that happens twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

CRASHED, TIMEOUT = "worker-crashed", "timeout"
CERTAIN, DOUBTFUL = 2, 1
"""What a death weighs that the stage caused, and one that may have come from outside."""
CUTS, CONDEMNS = 2, 3
"""What must weigh against a batch to cut it, and against a record to set it aside."""
SEVERAL = 3
"""After so many records of a stage were set aside, it is isolated at once."""
PATIENCE = 12
"""Deaths in one stage that lead to nothing before they are blamed on the unit."""


class Suspect(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """One death in a stage, or (without `error`) the news that a batch failed only together."""

    stage: str
    """The stage."""
    names: tuple[str, ...]
    """What it was given."""
    size: int = 0
    """How many records."""
    alone: bool = False
    """Whether it was a single record, or could not be cut."""
    weight: int = 0
    """How certain it is that the stage caused it."""
    evidence: int = 0
    """What was known against it before from calls that held more."""
    error: str = ""
    """`worker-crashed`, `timeout` or `out-of-memory`."""
    message: str = ""
    """For people."""


class Charge(NamedTuple):
    """What is known against one thing in one stage."""

    weight: int = 0
    """The sum over all deaths."""
    deaths: int = 0
    """How many."""
    is_condemned: bool = False
    """Whether it is not tried any more."""
    error: str = ""
    """Of the last death."""
    message: str = ""
    """Of the last death."""


NO_CHARGE = Charge()


class Suspicions:
    """All that was learnt in this run."""

    def __init__(self) -> None:
        self._charges: dict[tuple[str, str], Charge] = {}
        self._condemned: Counter[str] = Counter()
        """By stage: records that were set aside."""
        self._in_vain: Counter[str] = Counter()
        """By stage: deaths since something was last found out."""
        self._most_rows: dict[str, int] = {}
        """By stage: records that it may be given at once."""
        self._groups: set[str] = set()
        """Stages in which a call for several tasks ended a worker."""
        self._news: list[Suspect] = []
        """What this process found out and has not told yet."""

    def __bool__(self) -> bool:
        return bool(self._charges)

    def learn(self, suspect: Suspect) -> None:
        """Take one more death, or clearing, into account."""
        stage = suspect.stage
        if not suspect.error:
            self._drop_charge(suspect)
            return
        self._in_vain[stage] += 1
        if len(suspect.names) > 1:
            self._groups.add(stage)
        for name in suspect.names:
            known_charge = self._charges.get((stage, name), NO_CHARGE)
            weight = known_charge.weight + suspect.weight
            proven = weight >= CERTAIN or suspect.evidence >= CONDEMNS
            is_condemned = suspect.alone and proven and weight + suspect.evidence >= CONDEMNS
            if is_condemned and not known_charge.is_condemned:
                self._condemned[stage] += 1
                self._in_vain[stage] = 0
            charge = Charge(weight, known_charge.deaths + 1, is_condemned, suspect.error, suspect.message)
            self._charges[stage, name] = charge

    def learn_all(self, suspects: Iterable[Suspect]) -> None:
        """Take all of them into account, in order."""
        for suspect in suspects:
            self.learn(suspect)

    def _drop_charge(self, cleared: Suspect) -> None:
        stage = cleared.stage
        self._in_vain[stage] = 0
        for name in cleared.names:
            self._charges.pop((stage, name), None)
        if cleared.size > 1:
            known = self._most_rows.get(stage, cleared.size)
            self._most_rows[stage] = max(1, min(known, cleared.size // 2))

    def clear(self, stage: str, name: str, size: int) -> None:
        """A batch came to its end record by record; `size`: of how many, where none of them failed. To be told."""
        news = Suspect(stage, (name,), size)
        self.learn(news)
        self._news.append(news)

    def take_news(self) -> list[Suspect]:
        """What this process found out since it was last asked."""
        taken = self._news
        if taken:
            self._news = []
        return taken

    def has_condemned(self, stage: str) -> bool:
        """Whether there is any record that a stage is not given any more."""
        return self._condemned[stage] > 0

    def has_lost_groups(self, stage: str) -> bool:
        """Whether a call for several tasks ended a worker."""
        return stage in self._groups

    def against(self, stage: str, name: str) -> Charge:
        """What is known against something."""
        return self._charges.get((stage, name), NO_CHARGE)

    def is_notorious(self, stage: str) -> bool:
        """Whether a stage is isolated at once."""
        return self._condemned[stage] >= SEVERAL

    def most_rows(self, stage: str) -> int | None:
        """How many records a stage may be given at once; `None`: any number."""
        return self._most_rows.get(stage)

    def leads_somewhere(self, stage: str) -> bool:
        """Whether deaths in a stage were followed by a finding lately; otherwise its units are to blame."""
        return self._in_vain[stage] <= PATIENCE


_here = Suspicions()


def suspicions() -> Suspicions:
    """What this process was told."""
    return _here
