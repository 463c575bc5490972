# SPDX-License-Identifier: Apache-2.0
"""Decide which records the results of a stage hold: the given ones, some of them, or new ones.

Whatever a stage returns, the counts add up: what came in and what was created is passed on, dropped, set aside or
merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.records.record_task import FILTERED, DroppedRows, FailedRows, Gathered, RecordTask
from thresher.core.task import Task, give_id, items_before
from thresher.errors import with_article

if TYPE_CHECKING:
    from thresher.core.records.reconcile import Reconciled, Reconciler
    from thresher.core.records.record_ids import Rows
    from thresher.core.scores import RuleDrops


class FlatList(list[Any]):
    """The result of `process_batch` if it has not one entry per task."""


_PLAIN = (list, tuple, Task)
"""Types of results that are not converted to records."""


class FusedResult(msgspec.Struct):
    """Records that a fused stage kept and dropped."""

    batch: RecordTask
    """The batch that all stages of the fused call judge."""
    left: Rows
    """Rows of the batch that go on."""
    left_bytes: int
    """Bytes of these rows."""
    drops: Sequence[RuleDrops]
    """Rows that were dropped, by rule."""


class Outcome(msgspec.Struct):
    """The result of one task in one stage: tasks that go on, and records that do not."""

    tasks: list[Task] = []
    """Tasks that go on."""
    created: int = 0
    """New records among them."""
    merged: int = 0
    """Records that new ones replaced."""
    filtered: int = 0
    """Records that were left out and whose content is unknown (tasks that hold no records)."""
    dropped: list[DroppedRows] = []
    """Records that were dropped."""
    failed: list[FailedRows] = []
    """Records that were set aside."""
    judged: FusedResult | None = None
    """The decision of a fused stage, of which no task is made."""

    def add(self, other: Outcome) -> None:
        """Append the outcome of another piece."""
        self.tasks.extend(other.tasks)
        self.created += other.created
        self.merged += other.merged
        self.filtered += other.filtered
        self.dropped.extend(other.dropped)
        self.failed.extend(other.failed)


def settle_task(given: Task, made: Any, stage_name: str) -> Outcome:
    """Return the outcome of a stage that returned `made` (a task, a list, nothing) for `given`."""
    if isinstance(made, FlatList):
        return settle_flat([given], made, stage_name)[0]
    if isinstance(made, Gathered):
        return settle_gathered(given, made)
    if made is None:
        return _settle_nothing(given)
    if isinstance(given, RecordTask) and (isinstance(made, RecordTask) or not isinstance(made, _PLAIN)):
        return _settle_records(given, made, stage_name)
    if made is given:
        return _settle_same(given)
    results = [made] if isinstance(made, Task) else _without_nesting(made)
    return settle_many(given, (result for result in results if result is not None), stage_name)


def _without_nesting(results: Iterable[Any]) -> Iterator[Any]:
    """Yield the results of a list, and those of the lists of tasks in it; a list of dicts is one result."""
    for result in results:
        if isinstance(result, list | tuple) and all(isinstance(one, _PLAIN) or one is None for one in result):
            yield from _without_nesting(result)
        else:
            yield result


def _settle_records(given: RecordTask, made: Any, stage_name: str) -> Outcome:
    if made is given and given.absorb_writes():
        dropped, failed = given.take_left_out()
        return Outcome([given], dropped=dropped, failed=failed)
    found = given.reconcile(made, stage_name)
    _inherit(given, found.batch)
    tasks: list[Task] = [found.batch] if found.batch.num_items else []
    return Outcome(tasks, found.created, found.merged, 0, list(found.dropped), list(found.failed))


def settle_judged(given: RecordTask, made: RecordTask) -> Outcome:
    """Return the outcome of a stage that drops records and changes nothing else, so that nothing is compared."""
    dropped, failed = made.take_left_out()
    _inherit(given, made)
    return Outcome([made] if made.num_items else [], dropped=dropped, failed=failed)


def settle_gathered(given: Task, made: Gathered) -> Outcome:
    """Return the outcome of a stage that holds records back; metadata and dataset name come from `given`."""
    batch = made.batch
    dropped, failed = batch.take_left_out()
    _inherit(given, batch)
    tasks: list[Task] = [batch] if batch.num_items else []
    return Outcome(tasks, made.created, made.merged, 0, dropped, failed)


def _settle_same(given: Task) -> Outcome:
    """Return the outcome of a task of the author's own type that was returned, perhaps with more or fewer records."""
    before, now = items_before(given), given.num_items
    tasks = [given] if now or not before else []
    return Outcome(tasks, created=max(0, now - before), filtered=max(0, before - now))


def _settle_nothing(given: Task) -> Outcome:
    if isinstance(given, RecordTask):
        return Outcome(dropped=[DroppedRows(given.as_given(), FILTERED)])
    return Outcome(filtered=items_before(given))


def settle_many(given: Task, results: Iterable[Any], stage_name: str) -> Outcome:
    """Return the outcome of a stage that made several tasks of one."""
    settlement = Settlement(given, stage_name)
    outcome = Outcome()
    for result in results:
        outcome.add(settlement.adopt(result))
    outcome.add(settlement.close())
    return outcome


class Settlement:
    """Settle the results of one task one by one, and at the end the given records that none of them holds."""

    def __init__(self, given: Task, stage_name: str) -> None:
        self._given = given
        self._stage_name = stage_name
        self._results = 0
        self._left = items_before(given)
        self._created = 0
        self._reconciler: Reconciler | None = None

    def adopt(self, result: Any) -> Outcome:
        """Return the outcome of one result, which gets its ids."""
        ordinal = self._results
        self._results += 1
        if isinstance(self._given, RecordTask) and (isinstance(result, RecordTask) or not isinstance(result, Task)):
            outcome = _outcome_of(self._reconciler_of(self._given).add(result))
        elif isinstance(result, Task):
            _name(result, [self._given], ordinal)
            outcome = self._adopt_task(result)
        else:
            raise TypeError(_not_a_task(self._stage_name, result, self._given))
        for task in outcome.tasks:
            _inherit(self._given, task)
            if task is not self._given:
                give_id(task, _child_id(self._given, ordinal))
        return outcome

    def _reconciler_of(self, given: RecordTask) -> Reconciler:
        if self._reconciler is None:
            self._reconciler = given.reconciler(self._stage_name, several=True)
        return self._reconciler

    def _adopt_task(self, result: Task) -> Outcome:
        """Return the outcome of a task if it or the given one holds no records: it is the given one, or a new one."""
        if isinstance(self._given, RecordTask):
            return Outcome([result], self._reconciler_of(self._given).add_task(result.num_items))
        if result is self._given and self._left:
            self._left = 0
            return _settle_same(result)
        if self._results == 1 and result.num_items == self._left:
            self._left = 0
            return Outcome([result])
        self._created += result.num_items
        return Outcome([result], result.num_items)

    def close(self) -> Outcome:
        """Return what became of the records that no result holds."""
        if self._reconciler is not None:
            rest = self._reconciler.finish()
            return Outcome(merged=rest.merged, dropped=list(rest.dropped))
        if not self._left:
            return Outcome()
        return Outcome(merged=self._left) if self._created else _settle_nothing(self._given)


def settle_flat(given: list[Task], results: list[Any], stage_name: str) -> list[Outcome]:
    """Return the outcomes of tasks of which a stage made a list of another length, one for each.

    The results are new records, children of the whole group, except those that were made of one given task. All that
    goes on is in the first outcome, in the order of the list.
    """
    group = _Group(given, stage_name)
    for result in _flattened(results):
        group.adopt(result)
    return group.close()


def _flattened(results: Iterable[Any]) -> Iterator[Any]:
    for result in results:
        if isinstance(result, list | tuple | Iterator) and not isinstance(result, Task):
            yield from _flattened(result)
        elif result is not None:
            yield result


class _Group:
    """Settle what a stage made of several tasks together."""

    def __init__(self, given: list[Task], stage_name: str) -> None:
        self._given = given
        self._stage_name = stage_name
        self._outcomes = [Outcome() for _ in given]
        self._reconcilers = [
            task.reconciler(stage_name, several=True) if isinstance(task, RecordTask) else None for task in given
        ]
        self._left = [items_before(task) for task in given]
        """By task without records of its own: items that no result holds yet."""
        self._results = 0

    def adopt(self, result: Any) -> None:
        """Settle one result, which gets its ids."""
        if not isinstance(result, Task):
            raise TypeError(_not_a_task(self._stage_name, result, self._given[0]))
        ordinal, self._results = self._results, self._results + 1
        place = next((n for n in range(len(self._given)) if self._is_made_of(result, n)), None)
        if place is None:
            _name(result, self._given, ordinal)
        outcome = self._new(result) if place is None else self._same(result, place)
        for task in outcome.tasks:
            _inherit(self._given[place or 0], task)
            if not any(task is given for given in self._given):
                give_id(task, _child_id(self._given[0], ordinal))
        tasks, outcome.tasks = outcome.tasks, []
        self._outcomes[0].tasks.extend(tasks)
        self._outcomes[place or 0].add(outcome)

    def _is_made_of(self, result: Task, place: int) -> bool:
        reconciler = self._reconcilers[place]
        if result is self._given[place]:
            return True
        return reconciler is not None and isinstance(result, RecordTask) and reconciler.knows(result)

    def _same(self, result: Task, place: int) -> Outcome:
        reconciler = self._reconcilers[place]
        if reconciler is not None:
            return _outcome_of(reconciler.add(result))
        if self._left[place]:
            self._left[place] = 0
            return _settle_same(result)
        return Outcome([result], result.num_items)

    def _new(self, result: Task) -> Outcome:
        if not isinstance(result, RecordTask):
            return Outcome([result], result.num_items)
        reconciler = next((found for found in self._reconcilers if found is not None), None)
        if reconciler is not None:
            return _outcome_of(reconciler.add_new(result))
        return Outcome([result], result.num_items)

    def close(self) -> list[Outcome]:
        """Return what became of the records that no result holds."""
        created = any(outcome.created for outcome in self._outcomes)
        for task, outcome, reconciler, left in zip(
            self._given, self._outcomes, self._reconcilers, self._left, strict=True
        ):
            if reconciler is not None:
                rest = reconciler.finish(replaced=created)
                outcome.add(Outcome(merged=rest.merged, dropped=list(rest.dropped)))
            elif left:
                outcome.add(Outcome(merged=left) if created else _settle_nothing(task))
        return self._outcomes


def _outcome_of(found: Reconciled) -> Outcome:
    tasks: list[Task] = [found.batch] if found.batch.num_items else []
    return Outcome(tasks, found.created, 0, 0, list(found.dropped), list(found.failed))


def _child_id(given: Task, ordinal: int) -> str:
    return f"{given.task_id}/{ordinal}"


def _name(result: Task, given: Sequence[Task], ordinal: int) -> None:
    """Name the records of a new task that was made of tasks without records; their ids hold that of their task."""
    if isinstance(result, RecordTask) and not any(isinstance(task, RecordTask) for task in given):
        if not any(result is task for task in given):
            give_id(result, _child_id(given[0], ordinal))
        result.name_records()


def _not_a_task(stage_name: str, result: Any, given: Task) -> str:
    kind = type(given).__name__
    return f"{stage_name} returned {with_article(type(result))} inside a list; give tasks, such as {kind}"


def _inherit(parent: Task, child: Task) -> None:
    """Give a child the metadata, the dataset name and, if it has none, the id of its parent."""
    if child is parent:
        return
    child.metadata = {**parent.metadata, **child.metadata}
    child.dataset_name = child.dataset_name or parent.dataset_name
    if not child.task_id:
        give_id(child, parent.task_id)
