# SPDX-License-Identifier: Apache-2.0
"""The reader of a retry: it replaces the pipeline's reader and emits only quarantined records.

A record of the input is read again by the pipeline's reader, so that it equals what the run would have read, and goes
through all stages. A child, which a stage made from a record, is restored from the quarantine and enters at the stage
that failed, because its siblings are already in the output.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.planning.task_types import task_types
from thresher.core.records.record_task import FailedRows, NoRecords, RecordTask
from thresher.core.stage import ProcessingStage, SourceStage
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.errors import InputError, RunFailedError
from thresher.ledger.quarantine import RECORD_ID, RETRY_KEY, QuarantineEntry, quarantine_file, read_lines, with_record
from thresher.ledger.stores.store import open_store
from thresher.runtime.worker.call import parse_within_memory
from thresher.runtime.worker.count import Baggage, carrier

if TYPE_CHECKING:
    from thresher.core.source import ReadContext, SourceItem


def may_be_retried(entry: QuarantineEntry, stages: Container[str]) -> bool:
    """Return True if a quarantined record can be retried in a pipeline with these stages."""
    return entry.can_be_retried and entry.stage in stages


GONE = "record-gone"
"""Error kind of a record that is no longer in the input."""


@dataclass(frozen=True)
class Retried:
    """Input of one unit of a retry."""

    quarantine: str
    """Id of the quarantine file with the records."""
    unit: Unit
    """Unit to read them from: the unit itself, or the stream that it was cut from."""
    block: str = ""
    """Id of the unit, if it was cut from a stream."""


class AllUnitsBut(frozenset[str]):
    """A set of all unit ids but one, for skipping the other units of a stream."""

    def __new__(cls, left_out: str) -> AllUnitsBut:
        made = super().__new__(cls)
        made._left_out = left_out
        return made

    _left_out: str

    def __contains__(self, item: object) -> bool:
        return item != self._left_out


class RetrySource(SourceStage[RecordTask]):
    """Reader of quarantined records."""

    def __init__(
        self,
        reader: SourceStage[Any],
        run_dir: str,
        storage_options: dict[str, Any],
        retried: dict[str, Retried],
        stages: Sequence[ProcessingStage[Any, Any]],
    ) -> None:
        """Read `retried` by the id of the retry unit; `stages` are all stages of the plan."""
        self.name = reader.name
        self._reader = reader
        self._run_dir = run_dir
        self._storage_options = storage_options
        self._retried = retried
        self._stage_numbers = {stage.name: number for number, stage in enumerate(stages)}
        self._taken = {stage.name: task_types(stage)[0] for stage in stages}

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the records of the input in order, then the children."""
        from thresher.core.source import SourceItem

        retried = self._retried[unit.id]
        store = open_store(self._run_dir, self._storage_options)
        wanted = WantedRecords()
        children: list[QuarantineEntry] = []
        staying = Baggage()
        for line, entry in read_lines(store, quarantine_file(retried.quarantine)):
            if entry.id is None or not may_be_retried(entry, self._stage_numbers):
                record = None if entry.record_file is None else entry.line
                staying.quarantined.append((entry.position or 0, line if record is None else with_record(line, record)))
            elif entry.is_child:
                children.append(entry)
            else:
                wanted.add(entry)
        if staying:  # the new quarantine file replaces the old one, so it must hold them too
            yield SourceItem(unit, carrier("", staying))
        for batch in self._from_input(wanted, retried, context):
            yield SourceItem(unit, batch)
        if wanted:
            yield SourceItem(unit, _failed_again(wanted.left(), GONE, "the input no longer holds the record"))
        for batch in self._from_quarantine(children):
            yield SourceItem(unit, batch)

    def parse(self, task: Task) -> RecordTask:
        """Return the task: it is already parsed."""
        assert isinstance(task, RecordTask)
        return task

    def _from_input(self, wanted: WantedRecords, retried: Retried, context: ReadContext) -> Iterator[RecordTask]:
        """Yield the records of `wanted` as the reader emits them now, and remove each from `wanted`."""
        if not wanted:
            return
        if retried.block:
            context = replace(context, done=AllUnitsBut(retried.block))
        try:
            for item in self._reader.read(retried.unit, context):
                if item.task is None:
                    continue
                for batch in parse_within_memory(self._reader, item.task):
                    yield from _picked(batch, wanted)
                if not wanted:
                    return
        except InputError as error:
            raise RunFailedError(
                f"{error}. A retry reads the records again from the same input: put the file back as it was, "
                "or start over with `thresher run --fresh`"
            ) from None

    def _from_quarantine(self, entries: Sequence[QuarantineEntry]) -> Iterator[RecordTask]:
        for (stage, attempts), group in groupby(entries, key=lambda entry: (entry.stage, entry.attempts)):
            batch = batch_of(self._reader, list(group), self._taken[stage])
            batch.metadata[RETRY_KEY] = {"enters_at": self._stage_numbers[stage], "attempts": attempts}
            yield batch


class WantedRecords:
    """Records of the input to read again. A record is removed when it is found."""

    def __init__(self) -> None:
        self._single: dict[str, QuarantineEntry] = {}
        self._ranges: list[QuarantineEntry] = []
        """Entries for consecutive rows, without those that were found."""

    def __bool__(self) -> bool:
        return bool(self._single or self._ranges)

    def add(self, entry: QuarantineEntry) -> None:
        """Add the records of an entry."""
        if entry.count == 1:
            self._single[entry.id or ""] = entry
        else:
            self._ranges.append(entry)

    def take(self, record_id: str, count: int = 1) -> list[QuarantineEntry]:
        """Remove the wanted ones among `count` records from this id on, and return entries for exactly these."""
        taken = []
        if record_id in self._single:
            taken.append(self._single.pop(record_id))
        if not self._ranges:
            return taken
        prefix, first = _split_id(record_id)
        for entry in [entry for entry in self._ranges if _split_id(entry.id)[0] == prefix]:
            start = _split_id(entry.id)[1]
            begin, end = max(start, first), min(start + entry.count, first + count)
            if begin < end:
                taken.append(_part(entry, begin, end))
                self._ranges.remove(entry)
                rest = ((start, begin), (end, start + entry.count))
                self._ranges += [_part(entry, *stretch) for stretch in rest if stretch[0] < stretch[1]]
        return taken

    def left(self) -> list[QuarantineEntry]:
        """Return entries for everything that was not found."""
        return sorted((*self._single.values(), *self._ranges), key=lambda entry: entry.position or 0)


def _split_id(record_id: str | None) -> tuple[str, int]:
    found = RECORD_ID.fullmatch(record_id or "")
    return ("", 0) if found is None else (f"{found[1]}:{found[2]}", int(found[3]))


def _part(entry: QuarantineEntry, begin: int, end: int) -> QuarantineEntry:
    """Return an entry for some of the rows of another one."""
    prefix, _ = _split_id(entry.id)
    return msgspec.structs.replace(entry, id=f"{prefix}{begin}", position=begin, records=end - begin)


def _picked(batch: RecordTask, wanted: WantedRecords) -> Iterator[RecordTask]:
    """Yield the wanted records of a batch, including those that failed to parse."""
    failed = [rows for found in batch.take_failed() for rows in _picked_failures(found, wanted)]
    ids = batch.ids.strings() if batch.ids is not None else []
    rows = [(row, entry) for row, record_id in enumerate(ids) for entry in wanted.take(record_id)]
    for attempts, group in groupby(rows, key=lambda pair: pair[1].attempts):
        part = batch.take([row for row, _ in group])
        part.metadata[RETRY_KEY] = {"enters_at": 0, "attempts": attempts}
        yield part
    if failed:
        yield _only_failed(failed)


def _picked_failures(found: FailedRows, wanted: WantedRecords) -> Iterator[FailedRows]:
    """Yield the wanted failures of a reader one by one, because each may have a different number of attempts."""
    for row, message in enumerate(found.messages):
        record_id = found.ids.at(row) if found.ids is not None else ""
        count = found.counts[row] if found.counts else 1
        for entry in wanted.take(record_id, count or 1):
            yield replace(
                found,
                messages=[message],
                lines=[found.lines[row]],
                ids=_ids_of([entry]),
                attempts=found.attempts + entry.attempts,
                counts=[None if count is None else entry.count],
            )


def _failed_again(entries: Sequence[QuarantineEntry], error: str, message: str) -> RecordTask:
    """Return a task that holds only failures."""
    return _only_failed(
        FailedRows(
            None,
            error,
            [message],
            attempts=entry.attempts + 1,
            lines=[entry.line or b""],
            ids=_ids_of([entry]),
            counts=[entry.count],
        )
        for entry in entries
    )


def _only_failed(failed: Iterable[FailedRows]) -> NoRecords:
    task = NoRecords()
    task.note_failed(list(failed))
    return task


def batch_of(reader: SourceStage[Any], entries: Sequence[QuarantineEntry], taken: type[Task] = Task) -> RecordTask:
    """Return the stored records with their ids, in the type that the reader gives, or `taken` where that is another."""
    lines, ids = [entry.line or b"{}" for entry in entries], _ids_of(entries)
    if not issubclass(taken, RecordTask) or taken is RecordTask or issubclass(task_types(reader)[1], taken):
        return reader.restore(lines, ids)
    return taken.from_json_lines(lines, ids)


def _ids_of(entries: Sequence[QuarantineEntry]) -> Any:
    """Return the ids of entries as the reader would assign them."""
    import numpy as np

    from thresher.core.records.record_ids import RecordIds

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
