# SPDX-License-Identifier: Apache-2.0
"""Tasks that hold records, and the notes about records that leave them.

The engine counts, cuts, joins, drops and quarantines records through `RecordTask` alone. What a record is, and how it
is stored, belongs to the type: `DocumentBatch` holds rows of a table, another type may hold files with metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from thresher.core.task import Task, exact_size

if TYPE_CHECKING:
    from thresher.core.records.reconcile import Reconciled, Reconciler
    from thresher.core.records.record_ids import RecordIds, Rows

FILTERED = "filtered"
"""The rule under which records are counted that a stage left out without giving a reason."""
_NOT_RECORDS = frozenset(
    {
        "dataset_name",
        "metadata",
        "_stage_perf",
        "_task_id",
        "_counted",
        "_ids",
        "_has_own_ids",
        "_dropped",
        "_failed",
        "_memo",
        "_baggage",
    }
)
"""Attributes that belong to the framework; those that a type adds hold its records."""


@dataclass(frozen=True)
class DroppedRows:
    """Records that a rule dropped from a task."""

    batch: RecordTask
    """The records themselves, as they were when they were dropped."""
    rule: str
    """The rule that dropped them."""
    scores: Sequence[Any] | None = None
    """The score that the rule computed, one per record."""
    threshold: Any = None
    """The bound that the rule compares the score with."""
    outlet: str = ""
    """The outlet that gets the records, so that they count as sent and not as dropped; empty if there is none."""
    copied: bool = False
    """True if they also go on, so that those in the outlet count as created."""


def score_list(remembered: Any) -> list[Any]:
    """Return the cached scores of a batch as Python values. An array of numbers stands for a list without gaps."""
    return remembered if isinstance(remembered, list) else list(remembered.tolist())


@dataclass(frozen=True)
class FailedRows:
    """Records that are quarantined because a stage cannot process them."""

    batch: RecordTask | None
    """The records, where they could be read at all."""
    error: str
    """The kind of failure, a short word such as `not-a-string`; failures are grouped by it."""
    messages: Sequence[str]
    """The failure of each record as text."""
    traceback: str = ""
    """The frames of the stage's own code that raised."""
    attempts: int = 1
    """Number of attempts."""
    lines: Sequence[bytes] = ()
    """The raw bytes, for records that could not be read (then `batch` is `None`)."""
    ids: RecordIds | None = None
    """The ids of `lines`."""
    extra: dict[str, Any] = field(default_factory=dict)
    """More facts for the quarantine file."""
    counts: Sequence[int | None] = ()
    """Number of records that each text stands for, where that is not 1; `None` where it cannot be known."""

    @property
    def total(self) -> int:
        """Return the number of records; a loss of unknown size counts as one."""
        return sum(1 if n is None else n for n in self.counts) if self.counts else len(self.messages)

    @property
    def unknown(self) -> int:
        """Return the number of losses of unknown size."""
        return sum(1 for n in self.counts if n is None)

    @property
    def record_ids(self) -> RecordIds | None:
        """Return the ids of the records, whether they could be read or not."""
        return self.ids if self.batch is None else self.batch.ids


class RecordTask(Task):
    """A task that holds records. A type of its own defines `to_dicts` and `from_dicts`; the rest follows from them.

    `num_items`, `select`, `concat` and `nbytes` are worth defining where a type can answer faster.

    Invariants:

    - Records are numbered 0 to `num_items` - 1, and `ids` has one id for each of them or is `None`.
    - `pick`, `take`, `drop`, `to`, `set_aside`, `joined` and `with_ids` return new tasks; the records of this one stay.
    - A record that was dropped, sent or set aside is no longer among the records. It is noted with its content until
      `take_dropped()` or `take_failed()` takes it away, so none is lost or counted twice.
    """

    _has_own_ids = False
    """True if the records are new and the stage that made them gave them ids: children of the given records."""

    def __init__(
        self,
        dataset_name: str = "",
        data: Any = None,
        metadata: dict[str, Any] | None = None,
        task_id: str | None = None,
        **fields: Any,
    ) -> None:
        """`fields` are those of `Task`."""
        super().__init__(dataset_name, data, metadata, task_id, **fields)
        self._ids: RecordIds | None = None
        self._dropped: list[DroppedRows] = []
        self._failed: list[FailedRows] = []
        self._memo: dict[tuple[str, str], Any] = {}

    # -- what a type defines ------------------------------------------------------------------------------------------

    def to_dicts(self) -> Sequence[dict[str, Any]]:
        """Return each record as a dict of its fields; values may be bytes, buffers and arrays, also nested ones."""
        raise TypeError(f"{type(self).__name__} must define to_dicts()")

    @classmethod
    def from_dicts(cls, records: Sequence[dict[str, Any]]) -> Self:
        """Return a task with the records that `to_dicts` described, none at all included."""
        raise TypeError(f"{cls.__name__} must define from_dicts(records)")

    # -- what a type may define ---------------------------------------------------------------------------------------

    @property
    def num_items(self) -> int:
        """Return the number of records."""
        return len(self.to_dicts())

    @property
    def nbytes(self) -> int:
        """Return the bytes of the records: all that the attributes of the type hold, nested values included."""
        own = (value for name, value in self.__dict__.items() if name not in _NOT_RECORDS and value is not None)
        return sum(map(exact_size, own))

    def select(self, rows: Sequence[int]) -> Self:
        """Return a task with the given records in the given order; ids and the like are added to it."""
        records = self.to_dicts()
        return self.from_dicts([records[row] for row in rows])

    @classmethod
    def concat(cls, parts: Sequence[Self]) -> Self:
        """Return a task with the records of all parts; ids and the like are added to it."""
        return cls.from_dicts([record for part in parts for record in part.to_dicts()])

    def json_lines(self) -> Sequence[bytes | memoryview]:
        """Return each record as a JSON object: what the quarantine file and `dropped_to` hold."""
        from thresher.core.records.record_json import encode_record

        return [encode_record(record) for record in self.to_dicts()]

    @classmethod
    def from_json_lines(cls, lines: Sequence[bytes], ids: RecordIds) -> Self:
        """Return the records that `json_lines` described, so that `thresher retry` can process them again."""
        from thresher.core.records.record_json import decode_record

        return cls.from_dicts([decode_record(line) for line in lines]).with_ids(ids)

    def column_names(self) -> Collection[str] | None:
        """Return the names of the columns that every record has; `None` where records differ or that is not known."""
        return None

    def record_sizes(self) -> Rows | None:
        """Return the bytes of each record, which add up to `nbytes`; `None` where that is not known at once."""
        return None

    @property
    def raw_buffer(self) -> Any:
        """Return the buffer of text that holds the records as they were read; `None` if there is none."""
        return None

    def record_heads(self, nbytes: int) -> Sequence[bytes]:
        """Return the first bytes of each record, for the quarantine file when memory is short; empty if unknown."""
        return []

    def as_given(self) -> Self:
        """Return the records as the stage was given them, whatever its code has assigned to this task since."""
        return self

    def restored(self) -> Self:
        """Return `as_given()`, without what a call that failed has written to views that the task handed out."""
        return self.as_given()

    def lend_frames(self) -> None:
        """Hand out its records as one data frame until the call of a stage that `takes_frames` ends, if there is such a
        form of them."""

    def absorb_writes(self) -> bool:
        """Take over what user code has written in place to views that the task handed out; return True if the task is
        still the one that the stage was given."""
        return True

    def reconciler(self, stage_name: str, *, several: bool = False) -> Reconciler:
        """Return what decides which of these records the results of a stage are."""
        from thresher.core.records.reconcile import Reconciler

        return Reconciler(self, stage_name, several=several)

    # -- what every type has ------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.num_items

    @property
    def ids(self) -> RecordIds | None:
        """Return the ids of the records; `None` for records that user code has just made."""
        return self._ids

    @property
    def memo(self) -> dict[tuple[str, str], Any]:
        """Return what stages computed per record for later stages, by kind and column: lists, or values with `take`."""
        return self._memo

    def name_records(self, source: tuple[str, str] | None = None, first: int = 0) -> None:
        """Give records that came without ids some: their numbers in `source`, from `first` on, else in their task."""
        if self._ids is None:
            import numpy as np

            from thresher.core.records.record_ids import RecordIds

            numbers = np.arange(first, first + self.num_items, dtype=np.int64)
            self._ids = RecordIds((source or (f"{self._task_id}:", ""),), numbers)

    def with_ids(self, ids: RecordIds | None) -> Self:
        """Return another task object with the same records under `ids`, and nothing noted as left out."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._ids = ids
        other._has_own_ids = False
        other._dropped, other._failed = [], []
        return other

    def pick(self, rows: Sequence[int] | Rows) -> Self:
        """Return the given records in the given order, with their ids and memo, and nothing noted as left out."""
        import numpy as np

        index = np.asarray(rows, dtype=np.int64)
        return self._with_rows_of(index, self.select(index.tolist()))

    def joined(self, others: Sequence[Self]) -> Self:
        """Return these records followed by those of `others`, with all that is noted as left out."""
        parts = [self, *others]
        return self._with_notes_of(parts, self.concat(parts))

    def take(self, rows: Sequence[int] | Rows) -> Self:
        """Return the given records in the given order, with all that is noted as left out."""
        task = self.pick(rows)
        task._dropped, task._failed = list(self._dropped), list(self._failed)
        return task

    def halves(self) -> tuple[Self, Self]:
        """Return the first and the second half of the records."""
        middle = self.num_items // 2
        return self.take(range(middle)), self.take(range(middle, self.num_items))

    def drop(
        self, rows: Sequence[int] | Rows, rule: str, scores: Sequence[Any] | None = None, threshold: Any = None
    ) -> Self:
        """Return the task without `rows`; they are counted under `rule` and written to `dropped_to` if set."""
        rest, gone = self._without(rows)
        rest._dropped.append(DroppedRows(gone, rule, scores, threshold))
        return rest

    def to(self, outlet: str, rows: Sequence[int] | Rows) -> Self:
        """Return the task without `rows`, which go to an outlet of the pipeline; only documents can, so far."""
        raise TypeError(
            f"{type(self).__name__}.to: only documents can be sent to an outlet; make a DocumentBatch of it"
        )

    def set_aside(self, rows: Sequence[int] | Rows, error: str, messages: Sequence[str]) -> Self:
        """Return the task without `rows`, which are quarantined."""
        rest, gone = self._without(rows)
        rest._failed.append(FailedRows(gone, error, messages))
        return rest

    def take_dropped(self) -> list[DroppedRows]:
        """Return what was dropped since the last call, and note it no longer."""
        taken, self._dropped = self._dropped, []
        return taken

    def take_failed(self) -> list[FailedRows]:
        """Return what was set aside since the last call, and note it no longer."""
        taken, self._failed = self._failed, []
        return taken

    def take_left_out(self) -> tuple[list[DroppedRows], list[FailedRows]]:
        """Return what was dropped and what was set aside since the last call, and note it no longer."""
        dropped, failed = self._dropped, self._failed
        self._dropped, self._failed = [], []
        return dropped, failed

    def note_failed(self, failed: Sequence[FailedRows]) -> None:
        """Note records as set aside that are not among the records of this task."""
        self._failed = [*self._failed, *failed]

    def reconcile(self, made: Any, stage_name: str) -> Reconciled:
        """Return which of these records `made`, the only result of a stage for them, holds."""
        from thresher.core.records.reconcile import reconcile

        return reconcile(self, made, stage_name)

    def _without(self, rows: Sequence[int] | Rows) -> tuple[Self, Self]:
        import numpy as np

        index = np.asarray(rows, dtype=np.int64)
        kept = np.ones(self.num_items, dtype=bool)
        kept[index] = False
        return self.take(np.flatnonzero(kept)), self.pick(index)

    def _with_rows_of(self, index: Rows, made: Self) -> Self:
        """Give `made`, which holds the records at `index`, their ids and memo, and this task's name and metadata."""
        made.dataset_name, made.metadata, made._task_id = self.dataset_name, dict(self.metadata), self._task_id
        made._ids = None if self._ids is None else self._ids.take(index)
        made._memo = self._memo_of(index)
        return made

    def _with_notes_of(self, parts: Sequence[Self], made: Self) -> Self:
        """Give `made`, which holds the records of all `parts`, their ids and what is noted as left out."""
        from thresher.core.records.record_ids import RecordIds

        made.dataset_name, made.metadata, made._task_id = self.dataset_name, dict(self.metadata), self._task_id
        made._dropped = [dropped for part in parts for dropped in part._dropped]
        made._failed = [failed for part in parts for failed in part._failed]
        if all(part.ids is not None for part in parts):
            made._ids = RecordIds.concat([part.ids for part in parts if part.ids is not None])
        return made

    def _memo_of(self, index: Rows) -> dict[tuple[str, str], Any]:
        """Return what is remembered of the records at `index`."""
        if not self._memo:
            return {}
        rows = index.tolist()
        return {
            key: [known[row] for row in rows] if isinstance(known, list) else known.take(index)
            for key, known in self._memo.items()
        }


class NoRecords(RecordTask):
    """A task without records: it brings records that were set aside, or lines for the unit's files."""

    has_constant_buffers = True

    @property
    def num_items(self) -> int:
        """Return 0."""
        return 0

    @property
    def nbytes(self) -> int:
        """Return 0."""
        return 0

    @property
    def ids(self) -> RecordIds:
        """Return no ids."""
        import numpy as np

        from thresher.core.records.record_ids import RecordIds

        return RecordIds((), np.zeros(0, dtype=np.int64))

    def pick(self, rows: Sequence[int] | Rows) -> Self:
        """Return another task without records."""
        return self.with_ids(None)

    def json_lines(self) -> Sequence[bytes | memoryview]:
        """Return no lines."""
        return []


@dataclass(frozen=True)
class Gathered:
    """Records that an `OrderedStage` lets go on, each under the id of one that came in, or of a child of one;
    others are still held back."""

    batch: RecordTask
    """The records; what was dropped or set aside is noted in it as usual."""
    merged: int = 0
    """Records that came in and have become part of these."""
    created: int = 0
    """Records among these that are new: children of one that came in."""
