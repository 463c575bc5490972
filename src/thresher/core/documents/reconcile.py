# SPDX-License-Identifier: Apache-2.0
"""Decide which documents a batch holds that a user's code made: the given ones, some of them, or new ones.

Besides ids and position, the index of a data frame tells which records a batch holds. Every column is then compared
with what was given, so that exactly the cells that differ are rewritten: a line is never stale.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.frames import changed_rows, differing_rows, same_kind
from thresher.core.documents.json_records import is_json, json_objects
from thresher.core.records.reconcile import Reconciled, Reconciler, reconcile
from thresher.core.records.record_ids import Rows
from thresher.core.records.record_task import RecordTask
from thresher.errors import with_article


class DocumentReconciler(Reconciler):
    """Take what a stage made of one batch: batches, tables, data frames or lists of dicts."""

    _given: DocumentBatch

    def add(self, made: Any) -> Reconciled:
        """Take one result."""
        batch = self._as_records(made)
        batch.absorb_writes()
        if isinstance(batch, DocumentBatch):
            before = batch._before
            if before is not None and before is not self._given and before.ids is not None:
                batch = _settled(batch, self._stage_name)
        return self._added(batch, self._identified)

    def _as_records(self, made: Any) -> RecordTask:
        if isinstance(made, RecordTask):
            return made
        try:
            batch = DocumentBatch(made, self._given.dataset_name)
            batch.to_pyarrow()
        except TypeError as error:
            raise TypeError(f"{self._stage_name} returned {with_article(type(made))}: {error}") from error
        return batch

    def _known_rows(self, part: RecordTask) -> Rows | None:
        if not isinstance(part, DocumentBatch):
            return super()._known_rows(part)
        rows = known_rows(self._given, part)
        return None if rows is not None and self._several and not is_related(self._given, part, rows) else rows

    def _carried_on(self, part: RecordTask, rows: Rows) -> RecordTask:
        if not isinstance(part, DocumentBatch):
            return super()._carried_on(part, rows)
        return with_changes(self._given, part, rows)

    def _renamed(self, part: RecordTask) -> RecordTask:
        """Return `part` with new ids. What no column can hold fails here, where the stage that made it is known."""
        if isinstance(part, DocumentBatch) and part._raw is None:
            part.to_pyarrow()
        return super()._renamed(part)


def _settled(made: DocumentBatch, stage_name: str) -> DocumentBatch:
    """Return a batch whose `data` was set, as a batch derived from what it was before."""
    former = made.as_given()
    before = former.with_ids(former.ids)
    early = [rows for rows in made._dropped if rows.batch.ids is not None]
    late = [rows for rows in made._dropped if rows.batch.ids is None]
    plain = made.with_ids(None)
    plain._before, plain._dropped = None, late
    found = reconcile(before, plain, stage_name)
    assert isinstance(found.batch, DocumentBatch), "made of a DocumentBatch"
    found.batch._dropped, found.batch._failed = [*early, *found.dropped], found.failed
    return found.batch


# -- which records they are -----------------------------------------------------------------------------------------


def known_rows(given: DocumentBatch, part: DocumentBatch) -> Rows | None:
    """Return the rows of `given` that `part` holds; `None` for new records."""
    if part.ids is not None:
        return given.ids.rows_of(part.ids) if given.ids is not None else None
    trace, count = part._frame_trace(), given.num_items
    labels = _own_labels(given, trace.labels)
    if labels is not None and _is_subset(labels, count):
        rows = labels[trace.rows]
        renumbered = len(labels) < count and bool((labels == np.arange(len(labels))).all())
        return _rows_by_content(given, part, rows) if renumbered else rows
    return trace.rows if trace.size == count else None


def _own_labels(given: DocumentBatch, labels: Rows | None) -> Rows | None:
    """Return row numbers of `given` for the labels of a frame, by the labels of its own frame if it handed one out."""
    own = None if given._trace is None else given._trace.labels
    if own is None or labels is None:
        return labels
    places = {label: row for row, label in enumerate(own.tolist())}
    found = [places.get(label, -1) for label in labels.tolist()]
    return labels if -1 in found or len(places) < len(own) else np.array(found, dtype=np.int64)


def is_related(given: DocumentBatch, part: DocumentBatch, rows: Rows) -> bool:
    """Return True if one of several results holds the given records at `rows`, and not as many others.

    It does if it was made of them: it has their ids, is the given batch with other data, or kept a part of its index.
    Else a column must tell: one whose values differ from record to record, and that is unchanged in every row.
    """
    if part.ids is not None or part._before is given:
        return True
    labels = part._frame_trace().labels
    if labels is not None and len(labels) and not bool((labels == np.arange(len(labels))).all()):
        return True
    known, count = set(given.columns), given.num_items
    telling = [name for name in part.columns if name in known and _tells_apart(given.column(name), count)]
    unchanged = (not differing_rows(given.column(name).take(rows), part.column(name)).any() for name in telling)
    return not len(rows) or any(unchanged)


def _tells_apart(column: pa.ChunkedArray, count: int) -> bool:
    try:
        return column.null_count == 0 and int(pc.count_distinct(column).as_py()) == count
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):  # nested values
        return False


def _is_subset(labels: Rows, count: int) -> bool:
    if len(labels) > count or (len(labels) and (labels.min() < 0 or labels.max() >= count)):
        return False
    return len(np.unique(labels)) == len(labels)


def _rows_by_content(given: DocumentBatch, part: DocumentBatch, rows: Rows) -> Rows:
    """Return the rows behind an index 0..k-1, which may be the first k rows or others that were numbered anew.

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
    """Return the given records at `rows`, with the values that they have in `part`."""
    base = given if _is_all(rows, given.num_items) else given.pick(rows)
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
        mask = changed_rows(base, name, table.column(name))
        if mask is None or name in batch._changed or bool(mask.any()):
            batch._changed[name] = mask
    batch._removed = (base._removed | gone).difference(names)
    batch._table, batch._whole = table, True
    return batch


def _is_all(rows: Rows, count: int) -> bool:
    return len(rows) == count and bool((rows == np.arange(count)).all())


def _with_former_types(table: pa.Table, former: pa.Table) -> pa.Table:
    """Return columns that passed through pandas in their former type, if nothing is lost by it.

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
