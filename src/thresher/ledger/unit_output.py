# SPDX-License-Identifier: Apache-2.0
"""The files of one unit, from the first record to the commit.

Nothing of a unit can be seen before its commit: everything is written to the attempt's `tmp` folder. The commit moves
the finished files to their names and then records the unit, only if nobody has. A crash between the two costs nothing:
the unit is done again and its files are put under the same names.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.filesystem import is_url
from thresher.core.source import FileFacts, RecordWriter
from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.ledger.failures import writing
from thresher.ledger.journal import INBOX
from thresher.ledger.place import CommitPlace
from thresher.ledger.records import CommitRecord, OutputFile, decode_commit, encode
from thresher.ledger.store import open_store

if TYPE_CHECKING:
    from thresher.core.batch import DocumentBatch
    from thresher.core.stage import SinkStage

_SERIAL = itertools.count()


class UnitOutput:
    """What a worker writes for one unit in one epoch."""

    def __init__(self, place: CommitPlace, sink: SinkStage[Any, Any] | None, unit: Unit, epoch: int) -> None:
        """Nothing is made before there is something to write."""
        self._place = place
        self._sink = sink
        self._unit = unit
        self._base = f"{unit.id}-{epoch}-{os.getpid()}-{next(_SERIAL)}"
        self._writer: RecordWriter | None = None
        self._quarantined = _Lines(self._local("quarantined.jsonl"))
        self._dropped = _Lines(self._local("dropped.jsonl"))

    def _local(self, end: str) -> str:
        return os.path.join(self._place.tmp, f"{self._base}-{end}")

    @property
    def _data(self) -> str:
        return self._local(f"data{self._place.extension}")

    def write(self, batch: DocumentBatch) -> None:
        """Add records to the unit's output file."""
        if not len(batch):
            return
        with writing(self._target()):
            if self._writer is None:
                assert self._sink is not None, "only a pipeline with a writer writes records"
                os.makedirs(self._place.tmp, exist_ok=True)
                is_part = self._place.parts is not None
                self._writer = (self._sink.open_part_writer if is_part else self._sink.open_writer)(self._data)
            assert self._writer is not None
            self._writer.write(batch)

    def _target(self) -> str:
        return self._place.parts or self._place.output or self._place.tmp

    def quarantine(self, lines: Sequence[bytes]) -> None:
        """Add lines to the unit's quarantine file; without a run folder there is no such file."""
        if lines and self._place.run_dir is not None:
            with writing(self._place.run_dir):
                self._quarantined.add(lines)

    def dropped(self, lines: Sequence[bytes]) -> None:
        """Add records to the unit's file in `dropped_to`."""
        if lines and self._place.dropped_to is not None:
            with writing(self._place.dropped_to):
                self._dropped.add(lines)

    def commit(self, tally: Tally) -> CommitRecord:
        """Publish the unit's files and record it. A unit that is recorded already stays as it is."""
        with writing(self._target()):
            facts = self._writer.close() if self._writer is not None else None
        found = committed_record(self._place, self._unit.id)
        if found is not None:
            self.abort()
            return found
        totals = tally.totals()
        record = CommitRecord(
            unit=self._unit.id,
            attempt=self._place.attempt,
            read=totals["read"],
            written=totals["written"],
            dropped=totals["dropped"],
            quarantined=totals["quarantined"],
            outputs=self._publish_data(facts),
            order=self._unit.order,
            part=self._place.parts is not None,
            dropped_outputs=self._publish_dropped(),
            tally=tally,
        )
        self._publish_quarantined()
        return record_commit(self._place, record)

    def abort(self) -> None:
        """Remove everything that was written."""
        if self._writer is not None:
            self._writer.abort()
        self._quarantined.abort()
        self._dropped.abort()

    def _publish_data(self, facts: FileFacts | None) -> tuple[OutputFile, ...]:
        place, unit = self._place, self._unit
        folder = place.parts or place.output
        if folder is None:
            return ()
        name = place.part_name(unit) if place.parts is not None else place.output_name(unit)
        with writing(folder):
            store = open_store(folder, place.storage_options)
            if facts is None or not facts.records:
                # A crashed attempt may have left a file that this one has no records for.
                store.remove(name)
                return ()
            store.put(self._data, name)
        return (OutputFile(name, facts.nbytes, facts.records, facts.sha256),)

    def _publish_dropped(self) -> tuple[OutputFile, ...]:
        folder = self._place.dropped_to
        if folder is None or not self._dropped.count:
            return ()
        name = self._place.dropped_name(self._unit)
        with writing(folder):
            facts = self._dropped.close()
            open_store(folder, self._place.storage_options).put(self._dropped.path, name)
        return (OutputFile(name, facts.nbytes, facts.records, facts.sha256),)

    def _publish_quarantined(self) -> None:
        if self._place.run_dir is None or not self._quarantined.count:
            return
        with writing(self._place.run_dir):
            self._quarantined.close()
            store = open_store(self._place.run_dir, self._place.storage_options)
            store.put(self._quarantined.path, f"quarantine/{self._unit.id}.jsonl")


class _Lines:
    """Lines in a temporary file that is made with the first of them."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self._file: Any = None
        self._hash = hashlib.sha256()
        self._nbytes = 0

    def add(self, lines: Sequence[bytes]) -> None:
        if self._file is None:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            self._file = open(self.path, "wb")  # noqa: SIM115  # closed by close() and abort()
        text = b"\n".join(lines) + b"\n"
        self._file.write(text)
        self._hash.update(text)
        self._nbytes += len(text)
        self.count += len(lines)

    def close(self) -> FileFacts:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return FileFacts(self._nbytes, self.count, self._hash.hexdigest())

    def abort(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # what cannot be flushed any more is removed anyway
                self._file.close()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path)


def committed_record(place: CommitPlace, unit_id: str) -> CommitRecord | None:
    """The record of a unit in the inbox, if it is there and whole."""
    if place.run_dir is None:
        return None
    content = open_store(place.run_dir, place.storage_options).read(f"{INBOX}/{unit_id}.json")
    return None if content is None else decode_commit(content)


def record_commit(place: CommitPlace, record: CommitRecord) -> CommitRecord:
    """Put a record into the inbox unless there is one already; give back the one that counts."""
    if place.run_dir is None:
        return record
    name = f"{INBOX}/{record.unit}.json"
    with writing(place.run_dir):
        store = open_store(place.run_dir, place.storage_options)
        if store.create(name, encode(record)):
            return record
        found = committed_record(place, record.unit)
        if found is None:  # a record that a crash cut short
            store.write(name, encode(record))
        return found or record


def join(place: CommitPlace, sink: SinkStage[Any, Any], unit: Unit) -> CommitRecord:
    """Make one output file of the parts that are the pieces of `unit`, publish it and record it."""
    found = committed_record(place, unit.id)
    if found is not None:
        return found
    assert place.output is not None, "parts are joined for a writer"
    base = os.path.join(place.tmp, f"{unit.id}-{os.getpid()}-{next(_SERIAL)}")
    local = f"{base}{place.extension}"
    parts: list[str] = []
    with writing(place.output):
        os.makedirs(place.tmp, exist_ok=True)
        try:
            for number, piece in enumerate(unit.pieces):
                parts.append(_local_part(place, piece.path, f"{base}-{number}"))
            facts: FileFacts = sink.join_parts(parts, local)
            open_store(place.output, place.storage_options).put(local, place.output_name(unit))
        finally:
            for path in (local, *(path for path in parts if path.startswith(base))):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
    output = OutputFile(place.output_name(unit), facts.nbytes, facts.records, facts.sha256)
    units = tuple(piece.relative for piece in unit.pieces)
    record = CommitRecord(unit.id, place.attempt, outputs=(output,), order=unit.order, joined=units)
    return record_commit(place, record)


def _local_part(place: CommitPlace, path: str, local: str) -> str:
    if not is_url(path):
        return path
    folder, name = path.rsplit("/", 1)
    open_store(folder, place.storage_options).get(name, local)
    return local
