# SPDX-License-Identifier: Apache-2.0
"""Decide which records a stage's results hold: the given ones, some of them, or new ones.

Records are recognised by their ids, or by position where a result holds as many as were given. All others are new
records, children of the first given one. A task type whose records can be recognised in other ways has a reconciler of
its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from thresher.core.records.record_ids import RecordIds, Rows
from thresher.core.records.record_task import FILTERED, DroppedRows, FailedRows, RecordTask
from thresher.errors import with_article


@dataclass(frozen=True)
class Reconciled:
    """Result of a stage in terms of the records that it was given."""

    batch: RecordTask
    """The records that go on, with their ids."""
    created: int = 0
    """Records that are new (dropped and set-aside ones among them)."""
    merged: int = 0
    """Given records that the new ones replace."""
    dropped: list[DroppedRows] = field(default_factory=list)
    """Records that were dropped, with their ids."""
    failed: list[FailedRows] = field(default_factory=list)
    """Records that were set aside, with their ids."""


@dataclass(frozen=True)
class Remainder:
    """The given records that no result holds."""

    merged: int = 0
    """New records replace so many of them."""
    dropped: list[DroppedRows] = field(default_factory=list)
    """Or they were left out."""


def reconcile(given: RecordTask, made: Any, stage_name: str) -> Reconciled:
    """Return what `made`, the only result for `given`, holds; a `Reconciler` takes several results."""
    if made is given and given.absorb_writes():
        return Reconciled(given, 0, 0, *given.take_left_out())
    reconciler = given.reconciler(stage_name)
    found = reconciler.add(made)
    rest = reconciler.finish()
    return replace(found, merged=rest.merged, dropped=[*found.dropped, *rest.dropped])


class Reconciler:
    """Take what a stage made of one task, result by result; a given record lives on in one result at most."""

    def __init__(self, given: RecordTask, stage_name: str, *, several: bool = False) -> None:
        """`several`: results come one by one, so their number of records does not tell which ones they are."""
        self._given = given.as_given()
        self._several = several
        self._stage_name = stage_name
        self._free = np.ones(self._given.num_items, dtype=bool)
        self._created = 0

    def add(self, made: Any) -> Reconciled:
        """Take one result."""
        records = self._as_records(made)
        records.absorb_writes()
        return self._added(records, self._identified)

    def _added(self, made: RecordTask, identified: Callable[[RecordTask], RecordTask]) -> Reconciled:
        before = self._created
        batch = identified(made)
        dropped = [replace(rows, batch=identified(rows.batch)) for rows in made._dropped]
        failed = [rows if rows.batch is None else replace(rows, batch=identified(rows.batch)) for rows in made._failed]
        batch._dropped, batch._failed = [], []
        return Reconciled(batch, self._created - before, 0, dropped, failed)

    def knows(self, made: RecordTask) -> bool:
        """Return True if a task was made of the given one: its records have ids that are among the given ones."""
        return made.ids is not None and self._rows_of_ids(made.ids) is not None

    def add_new(self, made: RecordTask) -> Reconciled:
        """Take one result whose records are new, whatever they look like."""
        return self._added(made, self._renamed)

    def add_task(self, items: int) -> int:
        """Count a result that holds no records; return how many new ones it counts for.

        The first one stands for the given records if it counts for as many.
        """
        if not self._created and bool(self._free.all()) and items == len(self._free):
            self._free[:] = False
            return 0
        self._created += items
        return items

    def finish(self, *, replaced: bool = False) -> Remainder:
        """Return what became of the records that no result carries on: new ones replace them, else they were left out.

        `replaced`: there are new ones, made together with those of other tasks.
        """
        left = np.flatnonzero(self._free)
        if not len(left):
            return Remainder()
        if self._created or replaced:
            return Remainder(merged=len(left))
        return Remainder(dropped=[DroppedRows(self._given.take(left), FILTERED)])

    def _as_records(self, made: Any) -> RecordTask:
        if isinstance(made, RecordTask):
            return made
        kind = type(self._given).__name__
        raise TypeError(f"{self._stage_name} returned {with_article(type(made))}; return tasks, such as {kind}")

    def _identified(self, part: RecordTask) -> RecordTask:
        """Return `part` with the ids of the given records that it holds, else with new ones."""
        if part._has_own_ids:
            self._created += part.num_items
            return part.with_ids(part.ids)
        rows = self._known_rows(part)
        if rows is not None and self._claim(rows):
            return part.with_ids(part.ids) if part.ids is not None else self._carried_on(part, rows)
        return self._renamed(part)

    def _known_rows(self, part: RecordTask) -> Rows | None:
        """Return the given rows that `part` holds; `None` where its records are new."""
        if part.ids is not None:
            return self._rows_of_ids(part.ids)
        if self._several or part.num_items != self._given.num_items:
            return None
        return np.arange(part.num_items, dtype=np.int64)

    def _rows_of_ids(self, ids: RecordIds) -> Rows | None:
        return None if self._given.ids is None else self._given.ids.rows_of(ids)

    def _carried_on(self, part: RecordTask, rows: Rows) -> RecordTask:
        """Return `part`, which has no ids, as the given records at `rows`."""
        return part.with_ids(None if self._given.ids is None else self._given.ids.take(rows))

    def _renamed(self, part: RecordTask) -> RecordTask:
        """Return `part` with new ids."""
        ids = self._new_ids(part.num_items)
        self._created += part.num_items
        return part.with_ids(ids)

    def _claim(self, rows: Rows) -> bool:
        asked = np.zeros(len(self._free), dtype=bool)
        asked[rows] = True
        if int(asked.sum()) != len(rows) or bool((asked & ~self._free).any()):
            return False
        self._free &= ~asked
        return True

    def _new_ids(self, count: int) -> RecordIds:
        ids = self._given.ids
        if ids is not None and len(ids):
            return ids.children(0, count, self._created)
        positions = np.arange(self._created, self._created + count, dtype=np.int64)
        return RecordIds(((f"{self._given.task_id}:", ""),), positions)
