# SPDX-License-Identifier: Apache-2.0
"""Which records a batch holds that a user's code made: the ones that were given, some of them, or new ones.

Records are known again by their ids, by the index of a data frame, or by position where the number of rows is the same.
Every column is then compared with what was given, so that exactly the cells that differ are rewritten: a line is never
stale. Everything else is a new record, a child of the first one that was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from thresher.core.batch import FILTERED, DocumentBatch, DroppedRows, FailedRows
from thresher.core.frames import same_kind
from thresher.core.json_records import is_json, json_objects
from thresher.core.records import RecordIds, Rows


@dataclass(frozen=True)
class Reconciled:
    """What a user's code did to the records that it was given."""

    batch: DocumentBatch
    """The records that go on, with their ids, and with their lines where they have any."""
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
    """What became of the given records that no result carries on."""

    merged: int = 0
    """New records replace so many of them."""
    dropped: list[DroppedRows] = field(default_factory=list)
    """Or they were left out."""


def reconcile(given: DocumentBatch, made: Any, stage_name: str) -> Reconciled:
    """What `made`, the only result for `given`, is: see `Reconciler`, which takes several results."""
    if made is given and given._before is None:
        dropped, failed = given._dropped, given._failed
        given._dropped, given._failed = [], []
        return Reconciled(given, 0, 0, dropped, failed)
    reconciler = Reconciler(given, stage_name)
    found = reconciler.add(made)
    rest = reconciler.finish()
    return replace(found, merged=rest.merged, dropped=[*found.dropped, *rest.dropped])


class Reconciler:
    """Takes what a stage made of one batch, result by result; a given record lives on in one result at most."""

    def __init__(self, given: DocumentBatch, stage_name: str) -> None:
        self._given = pristine(given)
        self._stage_name = stage_name
        self._free = np.ones(self._given.num_items, dtype=bool)
        self._created = 0

    def add(self, made: Any) -> Reconciled:
        """One result: a batch, a table, a data frame or a list of dicts."""
        made = self._as_batch(made)
        if made._before is not None and made._before is not self._given and made._before.ids is not None:
            made = _settled(made, self._stage_name)
        before = self._created
        batch = self._identified(made)
        dropped = [replace(rows, batch=self._identified(rows.batch)) for rows in made._dropped]
        failed = [
            rows if rows.batch is None else replace(rows, batch=self._identified(rows.batch)) for rows in made._failed
        ]
        batch._dropped, batch._failed = [], []
        return Reconciled(batch, self._created - before, 0, dropped, failed)

    def finish(self) -> Remainder:
        """What became of the records that no result carries on: new ones replace them, else they were left out."""
        left = np.flatnonzero(self._free)
        if not len(left):
            return Remainder()
        if self._created:
            return Remainder(merged=len(left))
        return Remainder(dropped=[DroppedRows(self._given.take(left), FILTERED)])

    def _as_batch(self, made: Any) -> DocumentBatch:
        if isinstance(made, DocumentBatch):
            return made
        try:
            batch = DocumentBatch(made, self._given.dataset_name)
            batch.to_pyarrow()
        except TypeError as error:
            raise TypeError(f"{self._stage_name} returned a {type(made).__name__}: {error}") from error
        return batch

    def _identified(self, part: DocumentBatch) -> DocumentBatch:
        """`part` with the ids of the given records that it holds, else with new ones."""
        if part._has_own_ids:
            self._created += part.num_items
            return _alias(part, part.ids)
        rows = known_rows(self._given, part)
        if rows is not None and self._claim(rows):
            return _alias(part, part.ids) if part.ids is not None else with_changes(self._given, part, rows)
        ids = self._new_ids(part.num_items)
        self._created += part.num_items
        return _alias(part, ids)

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


def pristine(batch: DocumentBatch) -> DocumentBatch:
    """The batch as it was before a user set its `data`."""
    return batch if batch._before is None else batch._before


def _settled(made: DocumentBatch, stage_name: str) -> DocumentBatch:
    """A batch whose `data` was set, as a batch derived from what it was before."""
    former = pristine(made)
    before = _alias(former, former.ids)
    early = [rows for rows in made._dropped if rows.batch.ids is not None]
    late = [rows for rows in made._dropped if rows.batch.ids is None]
    plain = _alias(made, None)
    plain._before, plain._dropped = None, late
    found = reconcile(before, plain, stage_name)
    found.batch._dropped, found.batch._failed = [*early, *found.dropped], found.failed
    return found.batch


def _alias(batch: DocumentBatch, ids: RecordIds | None) -> DocumentBatch:
    """Another batch object with the same content and the given ids: a user may still hold the first one."""
    other = type(batch).__new__(type(batch))
    other.__dict__.update(batch.__dict__)
    other._ids = ids
    other._has_own_ids = False
    other._dropped, other._failed = [], []
    if ids is not None:
        other._trace = other._before = None
    return other


# -- which records they are -----------------------------------------------------------------------------------------


def known_rows(given: DocumentBatch, part: DocumentBatch) -> Rows | None:
    """The rows of `given` that `part` holds; `None` where they are new records."""
    if part.ids is not None:
        return given.ids.rows_of(part.ids) if given.ids is not None else None
    trace, count = part._frame_trace(), given.num_items
    labels = trace.labels
    if labels is not None and _is_subset(labels, count):
        rows = labels[trace.rows]
        renumbered = len(labels) < count and bool((labels == np.arange(len(labels))).all())
        return _rows_by_content(given, part, rows) if renumbered else rows
    return trace.rows if trace.size == count else None


def _is_subset(labels: Rows, count: int) -> bool:
    if len(labels) > count or (len(labels) and (labels.min() < 0 or labels.max() >= count)):
        return False
    return len(np.unique(labels)) == len(labels)


def _rows_by_content(given: DocumentBatch, part: DocumentBatch, rows: Rows) -> Rows:
    """The rows behind an index 0..k-1, which may be the first k rows or others that were numbered anew.

    A column whose values are all different in `given`, and all of whose values in `part` come from there, tells; where
    there is none, or two contradict each other, the index counts.
    """
    found: dict[tuple[int, ...], None] = {}
    known = set(given.columns)
    for name in part.columns:
        places = _distinct_values(given, name) if name in known else None
        if places is None:
            continue
        try:
            picked = [places.get(value, -1) for value in part.values(name)]
        except TypeError:
            continue
        if -1 not in picked:
            found[tuple(picked)] = None
    return np.array(next(iter(found)), dtype=np.int64) if len(found) == 1 else rows


def _distinct_values(batch: DocumentBatch, name: str) -> dict[Any, int] | None:
    values = batch.values(name)
    if not all(isinstance(value, str | int | float) for value in values):
        return None
    places = {value: row for row, value in enumerate(values)}
    return places if len(places) == len(values) else None


# -- what changed in them -------------------------------------------------------------------------------------------


def with_changes(given: DocumentBatch, part: DocumentBatch, rows: Rows) -> DocumentBatch:
    """The given records at `rows`, with the values that `part` says they have now."""
    base = given if _is_all(rows, given.num_items) else given._picked(rows)
    batch = base._like()
    batch.dataset_name, batch.metadata = part.dataset_name or given.dataset_name, part.metadata
    batch._raw, batch._ids, batch._before = base._raw, base._ids, None
    table = part.to_pyarrow()
    if base._raw is None:
        batch._table, batch._removed = _with_former_types(table, base.to_pyarrow()), frozenset()
        return batch
    names = table.column_names
    gone = frozenset(base.columns).difference(names)
    batch._changed = {name: mask for name, mask in base._changed.items() if name not in gone}
    for name in names:
        mask = base._changes_of(name, table.column(name))
        if mask is None or name in batch._changed or bool(mask.any()):
            batch._changed[name] = mask
    batch._removed = (base._removed | gone).difference(names)
    batch._table, batch._whole = table, True
    return batch


def _is_all(rows: Rows, count: int) -> bool:
    return len(rows) == count and bool((rows == np.arange(count)).all())


def _with_former_types(table: pa.Table, former: pa.Table) -> pa.Table:
    """Columns that passed through pandas in the type that they had, where nothing is lost by it.

    Batches of one file must agree on their schema, whether or not a column of theirs happens to have gaps.
    """
    columns = {}
    for name in table.column_names:
        place = former.schema.get_field_index(name)
        column = table.column(name)
        columns[name] = column if place < 0 else _cast(column, former.schema.field(place).type)
    return pa.table(columns) if columns else table


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if column.type.equals(kind):
        return column
    try:
        if is_json(column.type) and pa.types.is_nested(kind):
            objects = json_objects(column)
            array = pa.chunked_array([pa.array(objects, type=kind)])
            return array if _equal_lists(array.to_pylist(), objects) else column
        if pa.types.is_null(column.type) or column.type.id == kind.id or same_kind(column.type, kind):
            return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
        return column
    return column


def _equal_lists(one: Sequence[Any], other: Sequence[Any]) -> bool:
    return all(a == b for a, b in zip(one, other, strict=True))
