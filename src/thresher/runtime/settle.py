# SPDX-License-Identifier: Apache-2.0
"""Which records a stage's results are: the ones it was given, fewer of them, or new ones.

Whatever a stage returns, the counts add up: what came in and what was created is passed on, dropped, set aside or
merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.batch import FILTERED, DocumentBatch, DroppedRows, FailedRows
from thresher.core.gathered import Gathered
from thresher.core.task import Task

if TYPE_CHECKING:
    from thresher.core.reconcile import Reconciler


_PLAIN = (list, tuple, Task)
"""What a stage mostly gives."""


class Outcome(msgspec.Struct):
    """What became of one task in one stage."""

    tasks: list[Task] = []
    """What goes on."""
    created: int = 0
    """New records among them."""
    merged: int = 0
    """Records that new ones replaced."""
    filtered: int = 0
    """Records that were left out without their content being known (tasks that are no batches)."""
    dropped: list[DroppedRows] = []
    """Records that were dropped."""
    failed: list[FailedRows] = []
    """Records that were set aside."""

    def add(self, other: Outcome) -> None:
        """Put the outcome of another piece behind this one."""
        self.tasks.extend(other.tasks)
        self.created += other.created
        self.merged += other.merged
        self.filtered += other.filtered
        self.dropped.extend(other.dropped)
        self.failed.extend(other.failed)


def settle(given: Task, made: Any, stage_name: str) -> Outcome:
    """The outcome of a stage that returned `made` (a task, a list, nothing) for `given`."""
    if isinstance(made, Gathered):
        return settle_gathered(given, made)
    if isinstance(given, DocumentBatch) and not isinstance(made, _PLAIN) and made is not None:
        return _settle_batch(given, made, stage_name)
    if isinstance(given, DocumentBatch) and isinstance(made, DocumentBatch):
        return _settle_batch(given, made, stage_name)
    if made is None:
        return _settle_nothing(given)
    if made is given and given.num_items:
        return Outcome([given])
    results = [made] if isinstance(made, Task) else list(made)
    return settle_many(given, (result for result in results if result is not None), stage_name)


def _settle_batch(given: DocumentBatch, made: Any, stage_name: str) -> Outcome:
    from thresher.core.reconcile import reconcile

    found = reconcile(given, made, stage_name)
    _inherit(given, found.batch)
    tasks: list[Task] = [found.batch] if len(found.batch) else []
    return Outcome(tasks, found.created, found.merged, 0, list(found.dropped), list(found.failed))


def settle_judged(given: DocumentBatch, made: DocumentBatch) -> Outcome:
    """The outcome of a stage that is known to drop records and to leave all else: nothing is to be compared."""
    dropped, failed = made._dropped, made._failed
    made._dropped, made._failed = [], []
    left = len(made)
    gone = sum(len(rows.batch) for rows in dropped) + sum(len(rows.messages) for rows in failed)
    assert left + gone == len(given), f"{len(given)} records were judged, {left} are left and {gone} gone"
    _inherit(given, made)
    return Outcome([made] if left else [], dropped=dropped, failed=failed)


def settle_gathered(given: Task, made: Gathered) -> Outcome:
    """The outcome of a stage that holds records back; `given` hands on its metadata and its name."""
    batch = made.batch
    dropped, failed = list(batch._dropped), list(batch._failed)
    batch._dropped, batch._failed = [], []
    _inherit(given, batch)
    tasks: list[Task] = [batch] if len(batch) else []
    return Outcome(tasks, 0, made.merged, 0, dropped, failed)


def _settle_nothing(given: Task) -> Outcome:
    if isinstance(given, DocumentBatch):
        return Outcome(dropped=[DroppedRows(given, FILTERED)])
    return Outcome(filtered=given.num_items)


def settle_many(given: Task, results: Iterable[Any], stage_name: str) -> Outcome:
    """The outcome of a stage that made several tasks of one."""
    settlement = Settlement(given, stage_name)
    outcome = Outcome()
    for result in results:
        outcome.add(settlement.adopt(result))
    outcome.add(settlement.close())
    return outcome


class Settlement:
    """Takes the results of one task one by one, and says at the end what became of what was given."""

    def __init__(self, given: Task, stage_name: str) -> None:
        self._given = given
        self._stage_name = stage_name
        self._results = 0
        self._left = given.num_items
        self._created = 0
        self._reconciler: Reconciler | None = None

    def adopt(self, result: Any) -> Outcome:
        """One result: give it its ids."""
        ordinal = self._results
        self._results += 1
        if isinstance(self._given, DocumentBatch) and not (isinstance(result, Task) and not _is_batch(result)):
            outcome = self._adopt_batch(self._given, result)
        elif isinstance(result, Task):
            outcome = self._adopt_task(result)
        else:
            raise TypeError(
                f"{self._stage_name} returned a {type(result).__name__} inside a list; "
                "give tasks, such as DocumentBatch"
            )
        for task in outcome.tasks:
            _inherit(self._given, task)
            if task is not self._given:
                task._task_id = f"{self._given.task_id}/{ordinal}"
        return outcome

    def _adopt_batch(self, given: DocumentBatch, result: Any) -> Outcome:
        from thresher.core.reconcile import Reconciler

        if self._reconciler is None:
            self._reconciler = Reconciler(given, self._stage_name)
        found = self._reconciler.add(result)
        self._created += found.created
        tasks: list[Task] = [found.batch] if len(found.batch) else []
        return Outcome(tasks, found.created, 0, 0, list(found.dropped), list(found.failed))

    def _adopt_task(self, result: Task) -> Outcome:
        """A task that is no batch: the one that was given, or a new one."""
        if isinstance(result, DocumentBatch):
            result.name_records()
        same = result is self._given or (self._results == 1 and result.num_items == self._given.num_items)
        if same and self._left:
            self._left = 0
            return Outcome([result])
        self._created += result.num_items
        return Outcome([result], result.num_items)

    def close(self) -> Outcome:
        """What became of the records that no result carries on."""
        if self._reconciler is not None:
            rest = self._reconciler.finish()
            return Outcome(merged=rest.merged, dropped=list(rest.dropped))
        if not self._left:
            return Outcome()
        return Outcome(merged=self._left) if self._created else _settle_nothing(self._given)


def _is_batch(task: Task) -> bool:
    return isinstance(task, DocumentBatch)


def _inherit(parent: Task, child: Task) -> None:
    """Metadata and dataset name go from parent to child."""
    if child is parent:
        return
    child.metadata = {**parent.metadata, **child.metadata}
    child.dataset_name = child.dataset_name or parent.dataset_name
    child._task_id = child._task_id or parent.task_id
