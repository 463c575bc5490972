# SPDX-License-Identifier: Apache-2.0
"""Dropped and failed records on their way to the files of their unit.

Where the op that dropped a record also writes, its line goes to the unit's files at once. Otherwise it travels with
the next batch that leaves the worker, so that it is written, and committed, with the unit that it belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from thresher.core.records.record_task import FailedRows, NoRecords, RecordTask
from thresher.core.task import Task

if TYPE_CHECKING:
    from thresher.core.records.record_ids import RecordIds
    from thresher.ledger.scores import ScoreRows
    from thresher.ledger.unit_output import UnitOutput

EXAMPLE_CHARACTERS = 200
Line = tuple[int, bytes]
"""Position of the record in its file, and what to write about it."""


class Baggage(msgspec.Struct):
    """Lines and scores that are not yet written."""

    dropped: list[Line] = []
    """Records for `dropped_to`."""
    quarantined: list[Line] = []
    """Records for the quarantine file."""
    scores: list[ScoreRows] = []
    """Scores for the sidecar."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.quarantined or self.scores)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all lines and scores."""
        lines = sum(len(line) for _, line in (*self.dropped, *self.quarantined))
        return lines + sum(rows.nbytes for rows in self.scores)

    def write_to(self, output: UnitOutput) -> None:
        """Write everything to the files of a unit."""
        output.quarantine(sorted_lines(self.quarantined))
        output.dropped(sorted_lines(self.dropped))
        output.scores(self.scores)

    def add(self, other: Baggage) -> None:
        """Take over what `other` holds."""
        self.dropped.extend(other.dropped)
        self.quarantined.extend(other.quarantined)
        self.scores.extend(other.scores)


def sorted_lines(lines: list[Line]) -> list[bytes]:
    """Return lines in input order, whichever stage they come from: files must not depend on how batches are cut."""
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def attach(task: Task, baggage: Baggage) -> None:
    """Let `baggage` travel with `task`."""
    if baggage:
        task.__dict__["_baggage"] = baggage


def detach(task: Task) -> Baggage | None:
    """Remove the baggage from a task and return it."""
    found: Baggage | None = task.__dict__.pop("_baggage", None)
    return found


def is_carrier(task: Task) -> bool:
    """Return True if a task has no records and only carries lines about others."""
    return isinstance(task, RecordTask) and not task.num_items


def positions(ids: RecordIds | None, count: int) -> list[int]:
    """Return the positions of `count` records in their file; 0 where they are unknown."""
    found = [] if ids is None else ids.positions.tolist()
    return found if len(found) == count else [0] * count


def carrier(dataset_name: str, baggage: Baggage) -> NoRecords:
    """Return a task without records that carries `baggage`."""
    task = NoRecords(dataset_name)
    attach(task, baggage)
    return task


def example_of(failed: FailedRows) -> str:
    """Return the first of some records that failed, and why."""
    ids = failed.record_ids
    known = ids is not None and len(ids) and ids.source_at(0)[0].strip(":")  # records that a stage made have no file
    place = f"{ids.at(0)}: " if ids is not None and known else ""
    text = f"{place}{next(iter(failed.messages), '')}"
    return "".join(c if c.isprintable() else " " for c in text[:EXAMPLE_CHARACTERS])
