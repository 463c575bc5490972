# SPDX-License-Identifier: Apache-2.0
"""A batch of documents: an Arrow table, with the records' ids and the lines they were read from beside it, never in it.

A batch that comes from JSON lines decodes a field only when somebody asks for it. What no stage changed is written back
as it came, so a batch remembers, for each column, in which rows a new value differs from the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from thresher.core.documents.lent_frames import LentFrames
from thresher.core.records.record_task import FILTERED as FILTERED
from thresher.core.records.record_task import DroppedRows as DroppedRows
from thresher.core.records.record_task import FailedRows as FailedRows
from thresher.core.records.record_task import RecordTask

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    from thresher.core.documents.records import FrameTrace, LateColumn, RawLines, RecordIds, Rows
    from thresher.core.records.reconcile import Reconciler

VALUE = "value"
"""The kind under which a batch remembers the Python values of a column."""
_OF_ONE_CALL = frozenset({"counted_items", "unit_lines", "lends_frame", "_lent"})
"""Attributes that a batch does not hand on to one that is made of it."""
MOST_REMEMBERED = 16 * 2**20
"""Of a batch with more bytes nothing is remembered: texts take up to four times the room of their bytes."""


class DocumentBatch(LentFrames):
    """Documents, one per row.

    Invariants, besides those of `RecordTask`:

    - The content is what `_table` says, else what the lines in `_raw` say, else what the user handed over in `_given`.
    - A batch that has `_raw` has `ids`; `_changed`, `_late` and `_removed` name all columns that differ from the lines.
    - Setting `data` makes records without ids. `_before` keeps the batch as it was, until the result of the stage is
      reconciled with it.
    """

    has_constant_buffers = True

    def __init__(
        self,
        data: pa.Table | pd.DataFrame | list[dict[str, Any]] | None = None,
        dataset_name: str = "",
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        **fields: Any,
    ) -> None:
        """The name and the data may come in either order. `fields` are those of `Task`."""
        pair: tuple[Any, Any] = (data, dataset_name)
        if isinstance(data, str) and not isinstance(pair[1], str):
            dataset_name, data = pair
        super().__init__(dataset_name, None, metadata, task_id, **fields)
        self._given: Any = data if data is not None else []
        """Data that a user handed over; Arrow is made of it on demand."""
        self._table: pa.Table | None = None
        self._whole = True
        """True if `_table` has every column (a lazily read batch starts with none)."""
        self._raw: RawLines | None = None
        self._changed: dict[str, npt.NDArray[Any] | None] = {}
        """Columns whose value differs from the line: a mask of rows, or `None` for all rows."""
        self._removed: frozenset[str] = frozenset()
        self._late: dict[str, LateColumn] = {}
        """New texts that nobody has asked for as Arrow yet; only where the lines said what was there before. Batches
        share the dict, so it is never changed in place."""
        self._trace: FrameTrace | None = None
        """For records without ids: which rows of `_given` they are."""
        self._before: Any = None
        """The batch as it was before a user set its `data`."""

    @classmethod
    def from_lines(cls, raw: RawLines, ids: RecordIds, dataset_name: str = "") -> Self:
        """Return a batch that decodes the fields of `raw` when they are asked for."""
        batch = cls(dataset_name=dataset_name)
        batch._given = None  # nothing was handed over: the lines are the data
        batch._raw, batch._ids, batch._whole = raw, ids, False
        return batch

    @classmethod
    def from_table(cls, table: pa.Table, ids: RecordIds, dataset_name: str = "") -> Self:
        """Return a batch of records that have ids but no lines (Parquet rows)."""
        batch = cls(table, dataset_name)
        batch._table, batch._ids = table, ids
        return batch

    # -- what is in it ------------------------------------------------------------------------------------------------

    @property
    def num_items(self) -> int:
        """Return the number of documents."""
        if self._raw is not None:
            return len(self._raw.starts)
        if self._table is not None:
            return int(self._table.num_rows)
        return int(getattr(self._given, "num_rows", None) or len(self._given))

    @property
    def nbytes(self) -> int:
        """Return the bytes of the lines, or of the table."""
        if self._raw is not None:
            return self._raw.nbytes
        return int(self.to_pyarrow().nbytes)

    @property
    def data(self) -> Any:
        """Return what the batch was made of: the table or data frame that was handed over, else an Arrow table. A stage
        that `takes_frames` gets a data frame in place of a table."""
        if self.lends_frame and (self._given is None or hasattr(self._given, "schema")):
            return self.to_pandas()
        if self._given is None:
            return self.to_pyarrow()
        if not hasattr(self._given, "schema"):
            # A frame or a list may be changed in place by whoever gets it: Arrow is made of it again.
            if self._ids is None:
                self._table, self._memo = None, {}
            else:
                self.data = self._given
        return self._given

    @data.setter
    def data(self, value: Any) -> None:
        if "_given" not in self.__dict__:  # assigned by the constructor of a dataclass that is made of this class
            DocumentBatch.__init__(self, value, self.dataset_name)
            return
        from thresher.core.documents.frames import frozen

        before = self._before if self._before is not None else frozen(self)
        self._trace, self._memo, self._before, self._lent = None, {}, before, ()
        self._given, self._table, self._whole = value, None, True
        self._raw, self._ids, self._changed, self._removed, self._late = None, None, {}, frozenset(), {}

    @property
    def columns(self) -> list[str]:
        """Return the names of all columns."""
        return list(self.to_pyarrow().column_names)

    def get_columns(self) -> list[str]:
        """Return the names of all columns."""
        return self.columns

    def to_pyarrow(self) -> pa.Table:
        """Return all columns as an Arrow table."""
        for name in self._late:
            self.column(name)
        if self._table is not None and self._whole:
            return self._table
        from thresher.core.documents.frames import set_column, to_table
        from thresher.core.documents.json_records import decode_table

        if self._raw is None:
            self._table = to_table(self._given)
            return self._table
        table = decode_table(self._raw.lines())
        if self._removed:
            table = table.drop_columns([name for name in table.column_names if name in self._removed])
        for name in self._changed:
            table = set_column(table, name, self.column(name))
        self._table, self._whole = table, True
        return table

    def column(self, name: str) -> pa.ChunkedArray:
        """Return one column and decode no other; nulls where a record lacks the field."""
        import pyarrow as pa

        if name in self._late:
            return self._settled(name)
        if self._table is not None and name in self._table.column_names:
            return self._table.column(name)
        if self._whole or name in self._removed:
            table = self.to_pyarrow()
            if name not in table.column_names:
                return pa.chunked_array([pa.nulls(self.num_items)])
            return table.column(name)
        from thresher.core.documents.frames import set_column
        from thresher.core.documents.json_records import decode_table

        assert self._raw is not None
        decoded = decode_table(self._raw.lines(), [name]).column(name)
        self._table = set_column(self._table, name, decoded)
        return decoded

    def _settled(self, name: str) -> pa.ChunkedArray:
        """Convert a late column to Arrow for good, and return it."""
        from thresher.core.documents.frames import set_column, to_column

        made = to_column(self._late[name].to_arrow())
        self._table = set_column(self._table, name, made)
        self._late = {other: late for other, late in self._late.items() if other != name}
        return made

    def values(self, name: str) -> list[Any]:
        """Return one column as Python values, `None` where a record lacks the field."""
        remembered = self._memo.get((VALUE, name))
        if remembered is not None:
            return list(remembered)
        if (raw := self.lines_with(name)) is not None:
            from thresher.core.documents.json_records import field_values

            return field_values(raw.lines(), name)
        from thresher.core.documents.json_records import is_json, json_objects

        column = self.column(name)
        return json_objects(column) if is_json(column.type) else list(column.to_pylist())

    def lines_with(self, name: str) -> RawLines | None:
        """Return the lines if they alone define the content of a column."""
        known = name in self._late or (self._table is not None and name in self._table.column_names)
        return None if known or self._whole or name in self._removed else self._raw

    # -- changed copies -----------------------------------------------------------------------------------------------

    def pick(self, rows: Sequence[int] | Rows) -> Self:
        """Return the given rows in the given order, with their ids and lines, and nothing noted as left out."""
        import numpy as np

        index = np.asarray(rows, dtype=np.int64)
        batch = self._like()
        table = self._table if self._raw is not None else self.to_pyarrow()
        batch._table = None if table is None else table.take(index)
        batch._raw = None if self._raw is None else self._raw.take(index)
        batch._ids = None if self._ids is None else self._ids.take(index)
        batch._changed = {name: mask if mask is None else mask[index] for name, mask in self._changed.items()}
        batch._late = {name: column.take(index) for name, column in self._late.items()}
        batch._trace = self._frame_trace().take(index) if self._ids is None else None
        batch._memo = self._memo_of(index)
        return batch

    def joined(self, others: Sequence[Self]) -> Self:
        """Return these documents followed by those of `others`."""
        from thresher.core.documents.frames import join_batches

        return join_batches([self, *others])

    def replace(self, name: str, column: Any, changed: Sequence[bool] | None = None) -> Self:
        """Return a batch with one column replaced or added; `column` has one value per row.

        `changed` tells which values differ from what was there; where it is not given, they are compared.
        """
        from thresher.core.documents.frames import changed_rows, new_column, set_column

        new = new_column(column, self.num_items)
        batch = self._like()
        batch._table = set_column(self._table if self._raw is not None else self.to_pyarrow(), name, new)
        batch._raw, batch._ids, batch._changed = self._raw, self._ids, dict(self._changed)
        batch._late = {other: late for other, late in self._late.items() if other != name}
        batch._dropped, batch._failed = list(self._dropped), list(self._failed)
        batch._trace = self._frame_trace() if self._ids is None else None
        batch._memo = {key: known for key, known in self._memo.items() if key[1] != name}
        if isinstance(column, list) and str(new.type) == "large_string" and new.nbytes <= MOST_REMEMBERED:
            batch._memo[VALUE, name] = column
        if self._raw is not None:
            batch._removed = self._removed - {name}
            batch._changed[name] = changed_rows(self, name, new, changed)
        return batch

    def replace_late(self, name: str, column: LateColumn, changed: npt.NDArray[Any]) -> Self:
        """Do as `replace`, with texts that become Arrow only when they are asked for."""
        if name not in self._late and self.lines_with(name) is None:
            return self.replace(name, column.to_arrow(), changed.tolist())
        from thresher.core.documents.frames import changed_rows

        batch = self._like()
        batch._table, batch._raw, batch._ids = self._table, self._raw, self._ids
        batch._dropped, batch._failed = list(self._dropped), list(self._failed)
        batch._late = {**self._late, name: column}
        batch._changed = {**self._changed, name: changed_rows(self, name, None, changed)}
        batch._memo = {key: known for key, known in self._memo.items() if key[1] != name}
        return batch

    def _like(self) -> Self:
        batch = type(self).__new__(type(self))
        RecordTask.__init__(batch, self.dataset_name, None, self.metadata)
        batch._task_id, batch._whole = self._task_id, self._whole
        batch._given = batch._table = batch._raw = batch._trace = None
        batch._changed, batch._removed, batch._late, batch._before = {}, self._removed, {}, self._before
        if type(self) is not DocumentBatch:  # a type of a user has attributes of its own
            own = {name: value for name, value in vars(self).items() if name not in _OF_ONE_CALL}
            batch.__dict__ = {**own, **batch.__dict__}
        return batch

    def _frame_trace(self) -> FrameTrace:
        from thresher.core.documents.records import FrameTrace

        return self._trace or FrameTrace.start(self._given, self.num_items)

    # -- for the engine and for writers -------------------------------------------------------------------------------

    def as_given(self) -> Self:
        """Return the batch as it was before a user set its `data`."""
        return self if self._before is None else self._before

    def with_ids(self, ids: RecordIds | None) -> Self:
        """Return another batch object with the same documents under `ids`."""
        other = super().with_ids(ids)
        other._lent = ()
        if ids is not None:
            other._trace = other._before = None
        return other

    def reconciler(self, stage_name: str, *, several: bool = False) -> Reconciler:
        """Return what also recognises documents by the index of a data frame, and compares columns."""
        from thresher.core.documents.reconcile import DocumentReconciler

        return DocumentReconciler(self, stage_name, several=several)

    def to(self, outlet: str, rows: Sequence[int] | Rows) -> Self:
        """Return the batch without `rows`, which go to an outlet of the pipeline; see `Pipeline.outlet`."""
        rest, gone = self._without(rows)
        rest._dropped.append(DroppedRows(gone, "", outlet=outlet))
        return rest

    @classmethod
    def from_json_lines(cls, lines: Sequence[bytes], ids: RecordIds) -> Self:
        """Return the documents of some JSON lines."""
        from thresher.core.documents.records import RawLines

        return cls.from_lines(RawLines.join(lines), ids)

    def record_sizes(self) -> Rows | None:
        """Return the length of each line, where there are lines."""
        return None if self._raw is None else self._raw.ends - self._raw.starts

    def record_heads(self, nbytes: int) -> Sequence[bytes]:
        """Return the first bytes of each line, where there are lines."""
        return [] if self._raw is None else [bytes(line[:nbytes]) for line in self._raw.lines()]

    @property
    def raw_buffer(self) -> Any:
        """Return the buffer that holds the lines, or `None`."""
        return None if self._raw is None else self._raw.buffer

    def name_records(self, source: tuple[str, str] | None = None, first: int = 0) -> None:
        """Give records that came without ids some that name their task; fail if no column can hold them."""
        if self._ids is None:
            self.to_pyarrow()
        super().name_records(source, first)

    @property
    def raw_lines(self) -> RawLines | None:
        """Return the lines as they were read."""
        return self._raw

    @property
    def untouched(self) -> bool:
        """Return True if every record still equals its line."""
        changed = any(mask is None or bool(mask.any()) for mask in self._changed.values())
        return self._raw is not None and not changed and not self._removed

    def json_lines(self) -> list[bytes | memoryview]:
        """Return every record as a JSON line: as it came if nothing changed, else with the changed fields rewritten."""
        from thresher.core.documents import json_records as js

        if self._raw is None:
            return list(js.encode_rows(self.to_pyarrow()))
        lines: list[bytes | memoryview] = list(self._raw.lines())
        if self.untouched:
            return lines
        if len(self._changed) == 1 == len(self._late) and not self._removed:
            ((name, late),) = self._late.items()
            return late.patch_lines(self._raw, name, self._changed[name])
        changed = {name: (self.column(name), mask) for name, mask in self._changed.items() if name not in self._removed}
        return js.patch_lines(lines, changed, self._removed)

    def __getstate__(self) -> dict[str, Any]:
        from thresher.core.documents.frames import pack_table

        for name in self._late:
            self._settled(name)
        state = dict(self.__dict__)
        state.pop("lends_frame", None)
        if self._raw is None:
            self.to_pyarrow()
        state["_given"], state["_before"], state["_trace"], state["_memo"], state["_lent"] = None, None, None, {}, ()
        state["_table"] = None if self._table is None else pack_table(self._table)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        from thresher.core.documents.frames import unpack_table

        self.__dict__.update(state)
        packed = state["_table"]
        self._table = None if packed is None else unpack_table(packed)


def concat_batches(batches: Sequence[DocumentBatch]) -> DocumentBatch:
    """Return several batches as one."""
    return batches[0] if len(batches) == 1 else batches[0].joined(batches[1:])
