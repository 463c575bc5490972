# SPDX-License-Identifier: Apache-2.0
"""Dropped and failed records on their way to the files of their unit.

Where the op that dropped a record also writes, its line goes to the unit's files at once. Otherwise it travels with
the next batch that leaves the worker, so that it is written, and committed, with the unit that it belongs to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from thresher.core.batch import DocumentBatch
from thresher.core.task import Task

if TYPE_CHECKING:
    from thresher.ledger.scores import ScoreRows

Line = tuple[int, bytes]
"""Position of the record in its file, and what to write about it."""


class Baggage(msgspec.Struct):
    """Lines that wait to be written."""

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
        """Length of all lines, and the room of the scores."""
        lines = sum(len(line) for _, line in (*self.dropped, *self.quarantined))
        return lines + sum(rows.nbytes for rows in self.scores)

    def add(self, other: Baggage) -> None:
        """Take over what `other` holds."""
        self.dropped.extend(other.dropped)
        self.quarantined.extend(other.quarantined)
        self.scores.extend(other.scores)


def sorted_lines(lines: list[Line]) -> list[bytes]:
    """In the order of the input, whatever stage they come from, so that files do not depend on how batches are cut."""
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def attach(task: Task, baggage: Baggage) -> None:
    """Let `baggage` travel with `task`."""
    if baggage:
        task.__dict__["_baggage"] = baggage


def detach(task: Task) -> Baggage | None:
    """Take the baggage off a task."""
    found: Baggage | None = task.__dict__.pop("_baggage", None)
    return found


def carrier(like: Task, baggage: Baggage) -> DocumentBatch:
    """A batch without records that carries `baggage`."""
    batch = DocumentBatch([], like.dataset_name)
    attach(batch, baggage)
    return batch
