# SPDX-License-Identifier: Apache-2.0
"""The reader of a retry: it stands in place of the pipeline's own reader and gives nothing but what was set aside.

A record of the input is read again by the pipeline's reader, so that it is what an undisturbed run would have read, and
goes through all stages. A child that a stage made of a record is taken as it was kept, and enters at the stage that
failed: its siblings are in the output already.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from thresher.core.batch import DocumentBatch, FailedRows
from thresher.core.stage import SourceStage
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.errors import InputError, RunFailedError
from thresher.ledger.quarantine import RETRY_KEY
from thresher.ledger.quarantine_entries import RECORD_ID, QuarantineEntry, read_lines
from thresher.ledger.retries import quarantine_file
from thresher.ledger.store import open_store
from thresher.runtime.baggage import Baggage, carrier

if TYPE_CHECKING:
    from thresher.core.source import ReadContext, SourceItem


def may_be_retried(entry: QuarantineEntry, stages: Container[str]) -> bool:
    """Whether a record in quarantine can be tried again in a pipeline with these stages."""
    return entry.can_be_retried and entry.stage in stages


GONE = "record-gone"
"""The error of a record that is not found in the input again."""


@dataclass(frozen=True)
class Retried:
    """What one unit of a retry reads."""

    quarantine: str
    """The id under which the records are kept in quarantine."""
    unit: Unit
    """What the pipeline's reader reads to find them: the unit, or the stream that it was cut from."""
    block: str = ""
    """The unit itself, where it was cut from a stream."""


class _AllBut(frozenset[str]):
    """A set that holds every id but one: what a stream passes over."""

    def __new__(cls, left_out: str) -> _AllBut:
        made = super().__new__(cls)
        made._left_out = left_out
        return made

    _left_out: str

    def __contains__(self, item: object) -> bool:
        return item != self._left_out


class RetrySource(SourceStage[DocumentBatch]):
    """Reads records again that were set aside."""

    def __init__(
        self,
        reader: SourceStage[Any],
        run_dir: str,
        storage_options: dict[str, Any],
        retried: dict[str, Retried],
        stage_numbers: dict[str, int],
    ) -> None:
        """`retried` by the ids of the retry's units; `stage_numbers` by the names of the plan's stages."""
        self.name = reader.name
        self._reader = reader
        self._run_dir = run_dir
        self._storage_options = storage_options
        self._retried = retried
        self._stage_numbers = stage_numbers

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """First the records of the input, in order, then the children."""
        from thresher.core.source import SourceItem

        retried = self._retried[unit.id]
        store = open_store(self._run_dir, self._storage_options)
        wanted: dict[str, QuarantineEntry] = {}
        children: list[QuarantineEntry] = []
        staying = Baggage()
        for line, entry in read_lines(store, quarantine_file(retried.quarantine)):
            if entry.id is None or not may_be_retried(entry, self._stage_numbers):
                staying.quarantined.append((entry.position or 0, line))
            elif entry.is_child:
                children.append(entry)
            else:
                wanted[entry.id] = entry
        if staying:  # the new quarantine file takes the place of the old one, so it must hold them too
            yield SourceItem(unit, carrier(DocumentBatch([]), staying))
        for batch in self._from_input(wanted, retried, context):
            yield SourceItem(unit, batch)
        if wanted:
            yield SourceItem(unit, _failed_again(list(wanted.values()), GONE, "the input no longer holds the record"))
        for batch in self._from_quarantine(children):
            yield SourceItem(unit, batch)

    def parse(self, task: Task) -> DocumentBatch:
        """What is read is parsed already."""
        assert isinstance(task, DocumentBatch)
        return task

    def _from_input(
        self, wanted: dict[str, QuarantineEntry], retried: Retried, context: ReadContext
    ) -> Iterator[DocumentBatch]:
        """The records of `wanted` as the reader gives them now; each one that was found is taken out of `wanted`."""
        if not wanted:
            return
        if retried.block:
            context = replace(context, done=_AllBut(retried.block))
        try:
            for item in self._reader.read(retried.unit, context):
                if item.task is None:
                    continue
                yield from _picked(self._reader.parse(item.task), wanted)
                if not wanted:
                    return
        except InputError as error:
            raise RunFailedError(
                f"{error}. A retry reads the records again from the same input: put the file back as it was, "
                "or start over with `thresher run --fresh`"
            ) from None

    def _from_quarantine(self, entries: Sequence[QuarantineEntry]) -> Iterator[DocumentBatch]:
        for (stage, attempts), group in groupby(entries, key=lambda entry: (entry.stage, entry.attempts)):
            batch = batch_of(list(group))
            batch.metadata[RETRY_KEY] = {"enters_at": self._stage_numbers[stage], "attempts": attempts}
            yield batch


def _picked(batch: DocumentBatch, wanted: dict[str, QuarantineEntry]) -> Iterator[DocumentBatch]:
    """The records of a batch that are wanted, those that failed to be read included."""
    failed = [rows for found in batch._failed for rows in _picked_failures(found, wanted)]
    ids = batch.ids.strings() if batch.ids is not None else []
    rows = [row for row, record_id in enumerate(ids) if record_id in wanted]
    batch._failed = []
    for attempts, group in groupby(rows, key=lambda row: wanted[ids[row]].attempts):
        same = list(group)
        part = batch.take(same)
        part.metadata[RETRY_KEY] = {"enters_at": 0, "attempts": attempts}
        yield part
    for row in rows:
        del wanted[ids[row]]
    if failed:
        empty = batch.take([])
        empty._failed = failed
        yield empty


def _picked_failures(found: FailedRows, wanted: dict[str, QuarantineEntry]) -> Iterator[FailedRows]:
    """What a reader could not read, one by one, since each may have been tried another number of times."""
    import numpy as np

    for row, message in enumerate(found.messages):
        record_id = found.ids.at(row) if found.ids is not None else ""
        entry = wanted.pop(record_id, None)
        if entry is not None and found.ids is not None:
            ids = found.ids.take(np.array([row], dtype=np.int64))
            attempts = found.attempts + entry.attempts
            yield replace(found, messages=[message], lines=[found.lines[row]], ids=ids, attempts=attempts)


def _failed_again(entries: Sequence[QuarantineEntry], error: str, message: str) -> DocumentBatch:
    """A batch that holds nothing but failures."""
    import numpy as np

    from thresher.core.records import RawLines

    none = np.zeros(0, dtype=np.int64)
    ids = [_ids_of([entry]) for entry in entries]
    batch = DocumentBatch.from_lines(RawLines(b"", none, none), ids[0].take(none))
    batch._failed = [
        FailedRows(None, error, [message], attempts=entry.attempts + 1, lines=[entry.line or b""], ids=one)
        for entry, one in zip(entries, ids, strict=True)
    ]
    return batch


def batch_of(entries: Sequence[QuarantineEntry]) -> DocumentBatch:
    """Records as they were kept, with their ids."""
    from thresher.core.records import RawLines

    return DocumentBatch.from_lines(RawLines.join([entry.line or b"{}" for entry in entries]), _ids_of(entries))


def _ids_of(entries: Sequence[QuarantineEntry]) -> Any:
    """The ids of entries, as the reader would give them."""
    import numpy as np

    from thresher.core.records import RecordIds

    sources: dict[tuple[str, str], int] = {}
    which, positions, suffixes = [], [], []
    for entry in entries:
        found = RECORD_ID.fullmatch(entry.id or "")
        assert found is not None, "only entries with the id of a record are tried again"
        source = (f"{found[1]}:{found[2]}", entry.source or "")
        which.append(sources.setdefault(source, len(sources)))
        positions.append(int(found[3]))
        suffixes.append(found[4])
    return RecordIds(
        tuple(sources),
        np.array(positions, dtype=np.int64),
        np.array(which, dtype=np.int64) if len(sources) > 1 else None,
        tuple(suffixes) if any(suffixes) else None,
    )
