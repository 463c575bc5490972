# SPDX-License-Identifier: Apache-2.0
"""Records commits: in the ledger, or in memory alone where there is none."""

from __future__ import annotations

from typing import Any

from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.ledger.open_run import OpenRun
from thresher.ledger.records import CommitRecord
from thresher.ledger.unit_output import UnitOutput
from thresher.runtime.unit_book import UnitPage


class LedgerRecorder:
    """Keeps what a run has committed."""

    def __init__(self, run: OpenRun, *, writes: bool) -> None:
        """`writes`: whether there are output files, so that a commit may have to clear up after a crashed attempt."""
        self._run = run
        self._writes = writes

    def before_first_commit(self) -> None:
        """`mode="overwrite"` and `fresh` delete now, and not before."""
        self._run.before_first_commit()

    def commit_here(self, unit: Unit, epoch: int, page: UnitPage) -> CommitRecord:
        """Commit a unit that no worker holds anything of: nothing of it was written."""
        if not self._writes and not page.quarantined:
            return _record(unit, self._run.attempt, page.tally)
        output = UnitOutput(self._run.place, None, unit, epoch)
        output.quarantine(page.quarantined)
        return output.commit(page.tally)

    def committed(self, unit: Unit, record: Any) -> None:
        """Fold a commit into the ledger; `record` is what the worker said of it."""
        self._run.fold(unit.id, record)

    def sync(self) -> None:
        """Make the ledger durable."""
        self._run.sync()


def _record(unit: Unit, attempt: int, tally: Tally) -> CommitRecord:
    totals = tally.totals()
    return CommitRecord(
        unit=unit.id,
        attempt=attempt,
        read=totals["read"],
        written=totals["written"],
        dropped=totals["dropped"],
        quarantined=totals["quarantined"],
        order=unit.order,
        tally=tally,
    )
