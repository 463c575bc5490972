# SPDX-License-Identifier: Apache-2.0
"""Count what became of records in a stage, and keep those that were sent to outlets and the lines about those that were
dropped or set aside.

If the op that a record leaves also writes, it goes to the unit's files at once. Otherwise it travels with the next
batch that leaves the worker, so that it is written, and committed, with the unit that it belongs to.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from thresher.core.outlets import unknown_outlet
from thresher.core.pipeline import Stage
from thresher.core.records.record_task import FILTERED, DroppedRows, FailedRows, NoRecords, RecordTask, score_list
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.errors import RunFailedError
from thresher.ledger.quarantine import dropped_lines, quarantine_lines
from thresher.runtime.memory.split import only_heads

if TYPE_CHECKING:
    from thresher.core.records.record_ids import RecordIds
    from thresher.ledger.scores import ScoreRows
    from thresher.ledger.unit_output import UnitOutput
    from thresher.runtime.worker.settle import FusedResult, Outcome

EXAMPLE_CHARACTERS = 200
Line = tuple[int, bytes]
"""Position of the record in its file, and what to write about it."""


class Sized(NamedTuple):
    """A task between two steps, measured once."""

    task: Task
    """The task."""
    items: int
    """Its records."""
    nbytes: int
    """Their bytes."""


class Baggage(msgspec.Struct):
    """Lines and scores that are not yet written."""

    dropped: list[Line] = []
    """Records for `dropped_to`."""
    quarantined: list[Line] = []
    """Records for the quarantine file."""
    scores: list[ScoreRows] = []
    """Scores for the sidecar."""
    sent: list[tuple[str, bytes]] = []
    """Outlets and the blocks of documents that were sent there."""

    def __bool__(self) -> bool:
        return bool(self.dropped or self.quarantined or self.scores or self.sent)

    @property
    def nbytes(self) -> int:
        """Return the bytes of all that is held."""
        lines = sum(len(line) for _, line in (*self.dropped, *self.quarantined, *self.sent))
        return lines + sum(rows.nbytes for rows in self.scores)

    def write_to(self, output: UnitOutput) -> None:
        """Write everything to the files of a unit."""
        output.quarantine(sorted_lines(self.quarantined))
        output.dropped(sorted_lines(self.dropped))
        output.scores(self.scores)
        for outlet, block in self.sent:
            output.send(outlet, block)

    def add(self, other: Baggage) -> None:
        """Take over what `other` holds."""
        self.dropped.extend(other.dropped)
        self.quarantined.extend(other.quarantined)
        self.scores.extend(other.scores)
        self.sent.extend(other.sent)


def sorted_lines(lines: list[Line]) -> list[bytes]:
    """Return lines in input order, whichever stage they come from: files must not depend on how batches are cut."""
    return [line for _, line in sorted(lines, key=lambda pair: pair[0])]


def carrier(dataset_name: str, baggage: Baggage) -> NoRecords:
    """Return a task without records that carries `baggage`."""
    task = NoRecords(dataset_name)
    task.unit_lines = baggage
    return task


class Kept(NamedTuple):
    """The choice of records that are kept when they leave the pipeline."""

    dropped: bool
    """True if those are that rules dropped."""
    outlets: Collection[str]
    """Outlets whose records are."""


def count(tally: StageTally, outcome: Outcome, stage: Stage, baggage: Baggage, keep: Kept) -> list[Sized]:
    """Count an outcome and add what is kept of records that left to `baggage`; return the tasks that go on."""
    passed = [Sized(task, task.num_items, task.nbytes) for task in outcome.tasks]
    for _, items, nbytes in passed:
        tally.out_docs += items
        tally.out_bytes += nbytes
    tally.created += outcome.created
    tally.merged += outcome.merged
    if outcome.filtered:
        tally.count_dropped(FILTERED, outcome.filtered)
    dropped, judged = outcome.dropped, outcome.judged
    if judged is not None:
        tally.count_out(len(judged.left), judged.left_bytes)
        if keep.dropped or stage.drops_to:
            dropped = _dropped_rows(judged)
        else:
            for drops in judged.drops:
                tally.count_dropped(drops.rule, len(drops.rows))
    for rows in dropped:
        outlet = rows.outlet or stage.drops_to
        if outlet:
            if outlet not in keep.outlets:
                raise RunFailedError(unknown_outlet(stage.name, outlet, keep.outlets))
            _send(outlet, rows.batch, tally, baggage)
            tally.created += rows.batch.num_items if rows.copied else 0
            continue
        tally.count_dropped(rows.rule, rows.batch.num_items)
        if keep.dropped:
            lines = dropped_lines(rows, stage.name)
            baggage.dropped.extend(zip(_positions(rows.batch.ids, len(lines)), lines, strict=True))
    for failed in outcome.failed:
        _count_failed(tally, failed)
        _keep_failed(baggage, failed, stage.name)
    return passed


def _send(outlet: str, batch: RecordTask, tally: StageTally, baggage: Baggage) -> None:
    """Count documents as sent to an outlet, and add them to `baggage`."""
    from thresher.core.documents.blocks import encode_block

    if batch.num_items:
        tally.count_sent(outlet, batch.num_items)
        baggage.sent.append((outlet, encode_block(batch)))


def _dropped_rows(judged: FusedResult) -> list[DroppedRows]:
    return [
        DroppedRows(judged.batch.pick(drops.rows), drops.rule, score_list(drops.scores), drops.threshold)
        for drops in judged.drops
    ]


def _count_failed(tally: StageTally, failed: FailedRows) -> None:
    total = failed.total
    tally.quarantined += total
    tally.unknown_losses += failed.unknown
    tally.errors[failed.error] = tally.errors.get(failed.error, 0) + total
    if failed.error not in tally.examples:
        tally.examples[failed.error] = example_of(failed)


def _keep_failed(baggage: Baggage, failed: FailedRows, stage_name: str) -> None:
    try:
        lines = quarantine_lines(failed, stage_name)
    except MemoryError:
        failed = only_heads(failed)
        lines = quarantine_lines(failed, stage_name)
    baggage.quarantined.extend(zip(_positions(failed.record_ids, len(lines)), lines, strict=True))


def _positions(ids: RecordIds | None, count: int) -> list[int]:
    """Return the positions of `count` records in their file; 0 where they are unknown."""
    found = [] if ids is None else ids.positions.tolist()
    return found if len(found) == count else [0] * count


def example_of(failed: FailedRows) -> str:
    """Return the first of some records that failed, and why."""
    ids = failed.record_ids
    place = f"{ids.at(0)}: " if ids is not None and len(ids) else ""
    text = f"{place}{next(iter(failed.messages), '')}"
    return "".join(c if c.isprintable() else " " for c in text[:EXAMPLE_CHARACTERS])
