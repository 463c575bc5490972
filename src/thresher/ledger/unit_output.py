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
from thresher.ledger.store import Owner

if TYPE_CHECKING:
    from thresher.core.batch import DocumentBatch
    from thresher.core.scores import ScoreColumn
    from thresher.core.stage import SinkStage
    from thresher.ledger.scores import ScoreRows, ScoreSidecar

_SERIAL = itertools.count()


def _own_mark() -> str:
    """Names a temporary file as nobody else does, on whatever machine that shares the folder."""
    host = hashlib.blake2b(os.uname().nodename.encode(), digest_size=3).hexdigest()
    return f"{host}-{os.getpid()}-{next(_SERIAL)}"


class UnitOutput:
    """What a worker writes for one unit in one epoch."""

    def __init__(self, place: CommitPlace, sink: SinkStage[Any, Any] | None, unit: Unit, epoch: int) -> None:
        """Nothing is made before there is something to write."""
        self._place = place
        self._sink = sink
        self._unit = unit
        self._base = f"{unit.id}-{epoch}-{_own_mark()}"
        self._writer: RecordWriter | None = None
        self._quarantined = _Lines(place, self._local("quarantined.jsonl"))
        self._dropped = _Lines(place, self._local("dropped.jsonl"))
        self._sidecar: ScoreSidecar | None = None

    def keep_scores(self, columns: Sequence[ScoreColumn]) -> None:
        """Make a sidecar with these columns at the commit."""
        from thresher.ledger.scores import ScoreSidecar

        if self._place.run_dir is not None:
            self._sidecar = ScoreSidecar(columns, self._unit, self._local("scores.parquet"))

    def scores(self, rows: Sequence[ScoreRows]) -> None:
        """Add scores to the unit's sidecar."""
        if self._sidecar is not None:
            self._sidecar.add(rows)

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
                self._place.make_tmp()
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
            run=self._place.run_id,
        )
        self._publish_quarantined()
        self._publish_scores()
        return record_commit(self._place, record)

    def abort(self) -> None:
        """Remove everything that was written."""
        if self._writer is not None:
            self._writer.abort()
        self._quarantined.abort()
        self._dropped.abort()
        if self._sidecar is not None:
            self._sidecar.abort()

    def _publish_data(self, facts: FileFacts | None) -> tuple[OutputFile, ...]:
        place, unit = self._place, self._unit
        folder = place.parts or place.output
        if folder is None:
            return ()
        name = place.part_name(unit) if place.parts is not None else place.output_name(unit)
        with writing(folder):
            store = place.store(folder)
            if facts is None or not facts.records:
                # A crashed attempt may have left a file that this one has no records for.
                place.refuse_if_superseded()
                store.withdraw(name, Owner(place.run_id, place.attempt, ""))
                return ()
            store.put(self._data, name, Owner(place.run_id, place.attempt, facts.sha256))
        return (OutputFile(name, facts.nbytes, facts.records, facts.sha256),)

    def _publish_dropped(self) -> tuple[OutputFile, ...]:
        place, folder = self._place, self._place.dropped_to
        if folder is None or not self._dropped.count:
            return ()
        name = place.dropped_name(self._unit)
        with writing(folder):
            facts = self._dropped.close()
            place.store(folder).put(self._dropped.path, name, Owner(place.run_id, place.attempt, facts.sha256))
        return (OutputFile(name, facts.nbytes, facts.records, facts.sha256),)

    def _publish_quarantined(self) -> None:
        place = self._place
        if place.run_dir is None or not self._quarantined.count:
            return
        with writing(place.run_dir):
            facts = self._quarantined.close()
            owner = Owner(place.run_id, place.attempt, facts.sha256)
            place.store(place.run_dir).put(self._quarantined.path, f"quarantine/{self._unit.id}.jsonl", owner)

    def _publish_scores(self) -> None:
        place = self._place
        if place.run_dir is None or self._sidecar is None:
            return
        with writing(place.run_dir):
            place.make_tmp()
            facts = self._sidecar.write()
            if facts is not None:
                owner = Owner(place.run_id, place.attempt, facts.sha256)
                place.store(place.run_dir).put(self._sidecar.path, f"scores/{self._unit.id}.parquet", owner)


class _Lines:
    """Lines in a temporary file that is made with the first of them."""

    def __init__(self, place: CommitPlace, path: str) -> None:
        self.path = path
        self._place = place
        self.count = 0
        self._file: Any = None
        self._hash = hashlib.sha256()
        self._nbytes = 0

    def add(self, lines: Sequence[bytes]) -> None:
        if self._file is None:
            self._place.make_tmp()
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
    """The record of a unit in the inbox, if it is there, whole, and of this attempt.

    Those of earlier attempts were gathered when this one began. What comes later from one of their workers, believed
    dead, does not count: it may know other stages than this attempt.
    """
    if place.run_dir is None:
        return None
    content = place.store(place.run_dir).read(f"{INBOX}/{unit_id}.json")
    found = None if content is None else decode_commit(content)
    if found is None or (found.run, found.attempt) == (place.run_id, place.attempt):
        return found
    if found.run == place.run_id and found.attempt > place.attempt:
        raise place.superseded()
    return None


def record_commit(place: CommitPlace, record: CommitRecord) -> CommitRecord:
    """Put a record into the inbox unless there is one already; give back the one that counts."""
    if place.run_dir is None:
        return record
    name = f"{INBOX}/{record.unit}.json"
    with writing(place.run_dir):
        place.refuse_if_superseded()
        store = place.store(place.run_dir)
        if store.create(name, encode(record)):
            return record
        found = committed_record(place, record.unit)
        if found is None:  # a record that a crash cut short, or of a worker whose attempt is over
            store.write(name, encode(record))
        return found or record


def join(place: CommitPlace, sink: SinkStage[Any, Any], unit: Unit) -> CommitRecord:
    """Make one output file of the parts that are the pieces of `unit`, publish it and record it."""
    found = committed_record(place, unit.id)
    if found is not None:
        return found
    assert place.output is not None, "parts are joined for a writer"
    base = os.path.join(place.tmp, f"{unit.id}-{_own_mark()}")
    local = f"{base}{place.extension}"
    parts: list[str] = []
    with writing(place.output):
        place.make_tmp()
        try:
            for number, piece in enumerate(unit.pieces):
                parts.append(_local_part(place, piece.path, f"{base}-{number}"))
            facts: FileFacts = sink.join_parts(parts, local)
            owner = Owner(place.run_id, place.attempt, facts.sha256)
            place.store(place.output).put(local, place.output_name(unit), owner)
        finally:
            for path in (local, *(path for path in parts if path.startswith(base))):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
    output = OutputFile(place.output_name(unit), facts.nbytes, facts.records, facts.sha256)
    units = tuple(piece.relative for piece in unit.pieces)
    record = CommitRecord(unit.id, place.attempt, outputs=(output,), order=unit.order, joined=units, run=place.run_id)
    return record_commit(place, record)


def _local_part(place: CommitPlace, path: str, local: str) -> str:
    if not is_url(path):
        return path
    folder, name = path.rsplit("/", 1)
    place.store(folder).get(name, local)
    return local
