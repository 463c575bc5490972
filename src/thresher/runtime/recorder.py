# SPDX-License-Identifier: Apache-2.0
"""Recording of commits: in the ledger, or only in memory if there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.records import CommitRecord
from thresher.ledger.unit_output import UnitOutput
from thresher.runtime.unit_tracker import UnitState


class LedgerRecorder:
    """Records the commits of a run."""

    def __init__(self, run: OpenRun, *, writes: bool) -> None:
        """`writes`: True if there are output files, so that a commit may have to clean up after a crashed attempt."""
        self._run = run
        self._writes = writes
        self.on_commit: Callable[[Unit, CommitRecord], None] | None = None
        """Called with every recorded commit."""

    def before_first_commit(self) -> None:
        """Delete old output now, and not before, for `mode="overwrite"` and `fresh`."""
        self._run.before_first_commit()

    def commit_here(self, unit: Unit, epoch: int, state: UnitState) -> CommitRecord:
        """Commit a unit of which no worker holds any output: none was written."""
        if not self._writes and not state.quarantined:
            return _record(unit, self._run.attempt, state.tally)
        output = UnitOutput(self._run.target, None, unit, epoch)
        output.quarantine(state.quarantined)
        return output.commit(state.tally)

    def committed(self, unit: Unit, record: Any) -> None:
        """Add a commit to the ledger; `record` is the commit record of the worker."""
        known = self._run.fold(unit.id, record)
        if self.on_commit is not None:
            self.on_commit(unit, known)

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
