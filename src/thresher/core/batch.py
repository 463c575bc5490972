# SPDX-License-Identifier: Apache-2.0
"""A batch of documents: an Arrow table, with the records' ids and the lines they were read from beside it, never in it.

A batch that comes from JSON lines decodes a field only when somebody asks for it. What no stage changed is written back
as it came, so a batch remembers, for each column, in which rows a new value differs from the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.late_column import LateColumn, LateColumns, taken, without
from thresher.core.left_out import DroppedRows as DroppedRows
from thresher.core.left_out import FailedRows as FailedRows
from thresher.core.task import Task

if TYPE_CHECKING:
    import numpy.typing as npt
    import pandas as pd
    import pyarrow as pa

    from thresher.core.records import FrameTrace, RawLines, RecordIds, Rows


VALUE = "value"
"""The kind under which a batch remembers the Python values of a column."""
MOST_REMEMBERED = 16 * 2**20
"""Of a batch with more bytes nothing is remembered: texts take up to four times the room of their bytes."""

FILTERED = "filtered"
"""The rule under which records count that a stage left out without saying why."""


class DocumentBatch(Task):
    """Documents, one per row."""

    _has_own_ids = False
    """Whether its records are new, and the stage that made them has given them ids: children of those it was given."""

    def __init__(
        self,
        data: pa.Table | pd.DataFrame | list[dict[str, Any]] | None = None,
        dataset_name: str = "",
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
    ) -> None:
        super().__init__(dataset_name, None, metadata, task_id)
        self._given: Any = data if data is not None else []
        """What a user handed over; Arrow is made of it on demand."""
        self._table: pa.Table | None = None
        self._whole = True
        """Whether `_table` has every column (a lazily read batch starts with none)."""
        self._raw: RawLines | None = None
        self._ids: RecordIds | None = None
        self._changed: dict[str, npt.NDArray[Any] | None] = {}
        """Columns whose value differs from the line: a mask of rows, or `None` for all rows."""
        self._removed: frozenset[str] = frozenset()
        self._late: LateColumns = {}
        """New texts that nobody has asked for as Arrow yet; only where the lines said what was there before."""
        self._dropped: list[DroppedRows] = []
        self._failed: list[FailedRows] = []
        self._trace: FrameTrace | None = None
        """For records without ids: which rows of `_given` they are."""
        self._before: DocumentBatch | None = None
        """What this batch was before a user set its `data`."""
        self._memo: dict[tuple[str, str], Any] = {}
        """What stages worked out per record, by kind and column, for the next one: lists, or things with `take`."""

    @classmethod
    def from_lines(cls, raw: RawLines, ids: RecordIds, dataset_name: str = "") -> DocumentBatch:
        """A batch that decodes the fields of `raw` when they are asked for."""
        batch = cls(dataset_name=dataset_name)
        batch._given = None  # nothing was handed over: the lines are the data
        batch._raw, batch._ids, batch._whole = raw, ids, False
        return batch

    @classmethod
    def from_table(cls, table: pa.Table, ids: RecordIds, dataset_name: str = "") -> DocumentBatch:
        """A batch of records that have ids but no lines (Parquet rows)."""
        batch = cls(table, dataset_name)
        batch._table, batch._ids = table, ids
        return batch

    # -- what is in it ------------------------------------------------------------------------------------------------

    @property
    def num_items(self) -> int:
        """The number of documents."""
        if self._raw is not None:
            return len(self._raw)
        if self._table is not None:
            return int(self._table.num_rows)
        num_rows = getattr(self._given, "num_rows", None)
        return int(num_rows) if num_rows is not None else len(self._given)

    def __len__(self) -> int:
        return self.num_items

    @property
    def nbytes(self) -> int:
        """Bytes of the lines, or of the table."""
        if self._raw is not None:
            return self._raw.nbytes
        return int(self.to_pyarrow().nbytes)

    @property
    def data(self) -> Any:
        """What the batch was made of: the table or data frame that was handed over, else an Arrow table."""
        if self._given is None:
            return self.to_pyarrow()
        if not hasattr(self._given, "schema"):
            # A frame or a list may be changed in place by whoever gets it: Arrow is made of it again.
            self._table, self._memo = None, {}
        return self._given

    @data.setter
    def data(self, value: Any) -> None:
        before = self._before if self._before is not None else _same(self)
        self._trace, self._memo, self._before = None, {}, before
        self._given, self._table, self._whole = value, None, True
        self._raw, self._ids, self._changed, self._removed, self._late = None, None, {}, frozenset(), {}

    @property
    def columns(self) -> list[str]:
        """Names of all columns."""
        return list(self.to_pyarrow().column_names)

    def to_pyarrow(self) -> pa.Table:
        """All columns as an Arrow table."""
        for name in self._late:
            self.column(name)
        if self._table is not None and self._whole:
            return self._table
        from thresher.core.frames import set_column, to_table
        from thresher.core.json_records import decode_table

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

    def to_pandas(self) -> pd.DataFrame:
        """All columns as a data frame with the index 0..n-1; nested values are Python objects."""
        from thresher.core.frames import to_frame

        return to_frame(self.to_pyarrow())

    def column(self, name: str) -> pa.ChunkedArray:
        """One column, decoding no other; nulls where a record lacks the field."""
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
        from thresher.core.frames import set_column
        from thresher.core.json_records import decode_table

        assert self._raw is not None
        decoded = decode_table(self._raw.lines(), [name]).column(name)
        self._table = set_column(self._table, name, decoded)
        return decoded

    def _settled(self, name: str) -> pa.ChunkedArray:
        """A late column as Arrow, which it is from now on."""
        from thresher.core.frames import set_column, to_column

        made = to_column(self._late[name].to_arrow())
        self._table, self._late = set_column(self._table, name, made), without(self._late, name)
        return made

    def values(self, name: str) -> list[Any]:
        """One column as Python values, `None` where a record lacks the field."""
        remembered = self._memo.get((VALUE, name))
        if remembered is not None:
            return list(remembered)
        if (raw := self.lines_with(name)) is not None:
            from thresher.core.json_records import field_values

            return field_values(raw.lines(), name)
        from thresher.core.json_records import is_json, json_objects

        column = self.column(name)
        return json_objects(column) if is_json(column.type) else list(column.to_pylist())

    def lines_with(self, name: str) -> RawLines | None:
        """The lines, where they alone say what is in a column."""
        known = name in self._late or (self._table is not None and name in self._table.column_names)
        return None if known or self._whole or name in self._removed else self._raw

    # -- changed copies -----------------------------------------------------------------------------------------------

    def take(self, rows: Sequence[int] | Rows) -> DocumentBatch:
        """The given rows, in the given order, with their ids and lines."""
        batch = self._picked(rows)
        batch._dropped, batch._failed = list(self._dropped), list(self._failed)
        return batch

    def _picked(self, rows: Sequence[int] | Rows) -> DocumentBatch:
        import numpy as np

        index = np.asarray(rows, dtype=np.int64)
        batch = self._like()
        table = self._table if self._raw is not None else self.to_pyarrow()
        batch._table = None if table is None else table.take(index)
        batch._raw = None if self._raw is None else self._raw.take(index)
        batch._ids = None if self._ids is None else self._ids.take(index)
        batch._changed = {name: None if mask is None else mask[index] for name, mask in self._changed.items()}
        batch._late = taken(self._late, index)
        batch._trace = self._frame_trace().take(index) if self._ids is None else None
        picked = index.tolist() if self._memo else []
        batch._memo = {
            key: [known[row] for row in picked] if isinstance(known, list) else known.take(index)
            for key, known in self._memo.items()
        }
        return batch

    def replace(self, name: str, column: Any, changed: Sequence[bool] | None = None) -> DocumentBatch:
        """A batch with one column replaced or added; `column` has one value per row.

        `changed` tells which values differ from what was there; where it is not given, they are compared.
        """
        from thresher.core.frames import set_column

        new = _as_column(column, self.num_items)
        batch = self._like()
        batch._table = set_column(self._table if self._raw is not None else self.to_pyarrow(), name, new)
        batch._raw, batch._ids, batch._late = self._raw, self._ids, without(self._late, name)
        batch._changed = dict(self._changed)
        batch._dropped, batch._failed = list(self._dropped), list(self._failed)
        batch._trace = self._frame_trace() if self._ids is None else None
        batch._memo = {key: known for key, known in self._memo.items() if key[1] != name}
        if isinstance(column, list) and str(new.type) == "large_string" and new.nbytes <= MOST_REMEMBERED:
            batch._memo[VALUE, name] = column
        if self._raw is not None:
            batch._removed = self._removed - {name}
            batch._changed[name] = self._changes_of(name, new, changed)
        return batch

    def replace_late(self, name: str, column: LateColumn, changed: npt.NDArray[Any]) -> DocumentBatch:
        """As `replace`, with texts that become Arrow when somebody asks for them, or never."""
        if name not in self._late and self.lines_with(name) is None:
            return self.replace(name, column.to_arrow(), changed.tolist())
        batch = self._like()
        batch._table, batch._raw, batch._ids = self._table, self._raw, self._ids
        batch._dropped, batch._failed = list(self._dropped), list(self._failed)
        batch._late = {**self._late, name: column}
        batch._changed = {**self._changed, name: self._changes_of(name, None, changed)}
        batch._memo = {key: known for key, known in self._memo.items() if key[1] != name}
        return batch

    def _changes_of(
        self, name: str, new: Any, changed: Sequence[bool] | npt.NDArray[Any] | None = None
    ) -> npt.NDArray[Any] | None:
        """In which rows `new` differs from the line; rows that were changed before stay changed."""
        import numpy as np

        from thresher.core.frames import differing_rows

        if (name in self._changed and self._changed[name] is None) or name in self._removed:
            return None
        mask = differing_rows(self.column(name), new) if changed is None else np.asarray(changed, dtype=bool)
        before = self._changed.get(name)
        return mask if before is None else mask | before

    def drop(
        self, rows: Sequence[int] | Rows, rule: str, scores: Sequence[Any] | None = None, threshold: Any = None
    ) -> DocumentBatch:
        """A batch without `rows`; the framework counts them under `rule` and writes them to `dropped_to` if set."""
        rest, gone = self._without(rows)
        rest._dropped.append(DroppedRows(gone, rule, scores, threshold))
        return rest

    def set_aside(self, rows: Sequence[int] | Rows, error: str, messages: Sequence[str]) -> DocumentBatch:
        """A batch without `rows`; the framework puts them into quarantine."""
        rest, gone = self._without(rows)
        rest._failed.append(FailedRows(gone, error, messages))
        return rest

    def _without(self, rows: Sequence[int] | Rows) -> tuple[DocumentBatch, DocumentBatch]:
        import numpy as np

        index = np.asarray(rows, dtype=np.int64)
        kept = np.ones(self.num_items, dtype=bool)
        kept[index] = False
        return self.take(np.flatnonzero(kept)), self._picked(index)

    def _like(self) -> DocumentBatch:
        batch = type(self).__new__(type(self))
        Task.__init__(batch, self.dataset_name, None, self.metadata)
        batch._given, batch._whole = None, self._whole
        batch._table, batch._raw, batch._ids = None, None, None
        batch._changed, batch._removed, batch._late = {}, self._removed, {}
        batch._dropped, batch._failed = [], []
        batch._task_id = self._task_id
        batch._trace, batch._before, batch._memo = None, self._before, {}
        return batch

    def _frame_trace(self) -> FrameTrace:
        from thresher.core.records import FrameTrace

        return self._trace or FrameTrace.start(self._given, self.num_items)

    # -- for writers --------------------------------------------------------------------------------------------------

    def name_records(self) -> None:
        """Give records that came without ids some that say from which task they are."""
        if self._ids is None:
            import numpy as np

            from thresher.core.records import RecordIds

            self._ids = RecordIds(((f"{self._task_id}:", ""),), np.arange(self.num_items, dtype=np.int64))

    @property
    def ids(self) -> RecordIds | None:
        """Ids of the records; `None` for records that a user's code has just made."""
        return self._ids

    @property
    def raw_lines(self) -> RawLines | None:
        """The lines as they were read."""
        return self._raw

    @property
    def untouched(self) -> bool:
        """Whether every record is still what its line says."""
        changed = any(mask is None or bool(mask.any()) for mask in self._changed.values())
        return self._raw is not None and not changed and not self._removed

    def json_lines(self) -> list[bytes | memoryview]:
        """Every record as a JSON line: as it came where nothing changed, else with the changed fields rewritten."""
        from thresher.core import json_records as js

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
        from thresher.core.frames import pack_table

        for name in self._late:
            self._settled(name)
        state = dict(self.__dict__)
        if self._raw is None:
            self.to_pyarrow()
        state["_given"], state["_before"], state["_trace"], state["_memo"] = None, None, None, {}
        table = self._table
        state["_table"] = None if table is None else pack_table(table)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        from thresher.core.frames import unpack_table

        self.__dict__.update(state)
        packed = state["_table"]
        self._table = None if packed is None else unpack_table(packed)


def _same(batch: DocumentBatch) -> DocumentBatch:
    """Another batch object with the same content."""
    other = type(batch).__new__(type(batch))
    other.__dict__.update(batch.__dict__)
    return other


def concat_batches(batches: Sequence[DocumentBatch]) -> DocumentBatch:
    """Several batches as one; used to put the records of a split batch together again."""
    if len(batches) == 1:
        return batches[0]
    from thresher.core.frames import join_batches

    return join_batches(batches)


def _as_column(column: Any, rows: int) -> pa.ChunkedArray:
    from thresher.core.frames import to_column

    if len(made := to_column(column)) != rows:
        raise ValueError(f"the new column has {len(made)} values for {rows} records; give one value per record")
    return made
