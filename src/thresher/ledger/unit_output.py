# SPDX-License-Identifier: Apache-2.0
"""The files of one unit, from the first record to the commit.

Nothing of a unit is visible before its commit: everything is written to the attempt's `tmp` folder. The commit moves
the finished files to their final names and then records the unit, unless it is recorded already. A crash between the
two is harmless: the unit is processed again and its files get the same names.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from thresher.core.files.filesystem import is_url
from thresher.core.source import FileFacts, RecordWriter, SettledWriter
from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.ledger.journal import INBOX
from thresher.ledger.records import CommitRecord, OutputFile, decode_commit, encode
from thresher.ledger.stores.commit_target import CommitTarget
from thresher.ledger.stores.store import Owner, writing

if TYPE_CHECKING:
    from thresher.core.records.record_task import RecordTask
    from thresher.core.scores import ScoreColumn
    from thresher.core.stage import SinkStage, SourceStage
    from thresher.ledger.scores import ScoreRows, ScoreSidecar

_SERIAL = itertools.count()


def _unique_name() -> str:
    """Return a part of a file name that is unique on all machines that share the folder."""
    host = hashlib.blake2b(os.uname().nodename.encode(), digest_size=3).hexdigest()
    return f"{host}-{os.getpid()}-{next(_SERIAL)}"


class UnitOutput:
    """Output of a worker for one unit in one epoch."""

    def __init__(
        self,
        target: CommitTarget,
        sink: SinkStage[Any, Any] | None,
        unit: Unit,
        epoch: int,
        source: SourceStage[Any] | None = None,
    ) -> None:
        """Prepare the output; files are created when there is something to write. `source` helps to fix the schema of
        the run."""
        self._target = target
        self._sink = sink
        self._source = source
        self._unit = unit
        self._base = f"{unit.id}-{epoch}-{_unique_name()}"
        self._writer: RecordWriter[Any] | None = None
        self._quarantined = _Lines(target, self._local("quarantined.jsonl"))
        self._dropped = _Lines(target, self._local("dropped.jsonl"))
        self._sidecar: ScoreSidecar | None = None

    def keep_scores(self, columns: Sequence[ScoreColumn]) -> None:
        """Write a score sidecar with these columns at the commit."""
        from thresher.ledger.scores import ScoreSidecar

        if self._target.run_dir is not None:
            self._sidecar = ScoreSidecar(columns, self._unit, self._local("scores.parquet"))

    def scores(self, rows: Sequence[ScoreRows]) -> None:
        """Add scores to the unit's sidecar."""
        if self._sidecar is not None:
            self._sidecar.add(rows)

    def _local(self, end: str) -> str:
        return os.path.join(self._target.tmp, f"{self._base}-{end}")

    @property
    def _data(self) -> str:
        return self._local(f"data{self._target.extension}")

    def write(self, batch: RecordTask) -> None:
        """Add records to the unit's output file."""
        if not batch.num_items:
            return
        with writing(self._destination()):
            if self._writer is None:
                assert self._sink is not None, "only a pipeline with a writer writes records"
                self._target.make_tmp()
                self._writer = self._sink.open_writer(self._data)
            assert self._writer is not None
            self._writer.write(batch)

    def _destination(self) -> str:
        return self._target.parts or self._target.output or self._target.tmp

    def _fix_schema(self) -> bool:
        """Give the writer the schema of the run, if files share one; return True if the unit becomes a part.

        The sizes of parts decide which are joined, so they must not depend on when the schema was fixed.
        """
        target, writer = self._target, self._writer
        if writer is None or not target.schema_mode:
            return target.joins
        settled = cast(SettledWriter[Any], writer)
        schema = "" if target.joins else target.schema()
        if target.schema_mode == "kept" and not schema:
            return False
        if not schema and not target.joins and target.schema_mode == "first" and self._unit.order == (0, 0):
            assert self._sink is not None, "there is a writer"
            known = None if self._source is None else self._source.listed_schema()
            target.keep_schema(self._sink.settled_schema(settled.proposed_schema(), known))
            schema = target.schema()
        settled.settle(schema)
        return not schema

    def quarantine(self, lines: Sequence[bytes]) -> None:
        """Add lines to the unit's quarantine file; without a run folder there is no such file."""
        if lines and self._target.run_dir is not None:
            with writing(self._target.run_dir):
                self._quarantined.add(lines)

    def dropped(self, lines: Sequence[bytes]) -> None:
        """Add records to the unit's file in `dropped_to`."""
        if lines and self._target.dropped_to is not None:
            with writing(self._target.dropped_to):
                self._dropped.add(lines)

    def commit(self, tally: Tally) -> CommitRecord:
        """Publish the unit's files and record it. A unit that is already recorded is left unchanged."""
        with writing(self._destination()):
            is_part = self._fix_schema()
            facts = self._writer.close() if self._writer is not None else None
        found = committed_record(self._target, self._unit.id)
        if found is not None:
            self.abort()
            return found
        tally.extras = dict(facts.extras) if facts is not None else {}
        totals = tally.totals()
        record = CommitRecord(
            unit=self._unit.id,
            attempt=self._target.attempt,
            read=totals["read"],
            written=totals["written"],
            dropped=totals["dropped"],
            quarantined=totals["quarantined"],
            outputs=self._publish_data(facts, is_part),
            order=self._unit.order,
            part=is_part,
            dropped_outputs=self._publish_dropped(),
            tally=tally,
            run=self._target.run_id,
            schema=facts.schema if facts is not None else "",
        )
        self._publish_quarantined()
        self._publish_scores()
        return record_commit(self._target, record)

    def abort(self) -> None:
        """Remove everything that was written."""
        if self._writer is not None:
            self._writer.abort()
        self._quarantined.abort()
        self._dropped.abort()
        if self._sidecar is not None:
            self._sidecar.abort()

    def _publish_data(self, facts: FileFacts | None, is_part: bool) -> tuple[OutputFile, ...]:
        target, unit = self._target, self._unit
        folder = target.parts if is_part else target.output
        if folder is None:
            return ()
        name = target.part_name(unit) if is_part else target.output_name(unit)
        with writing(folder):
            store = target.store(folder)
            if facts is None or not facts.records:
                # A crashed attempt may have left a file that this one has no records for.
                target.refuse_if_superseded()
                store.withdraw(name, Owner(target.run_id, target.attempt, ""))
                return ()
            store.put(self._data, name, Owner(target.run_id, target.attempt, facts.sha256))
        return (OutputFile(name, facts.nbytes, facts.records, facts.sha256),)

    def _publish_dropped(self) -> tuple[OutputFile, ...]:
        target, folder = self._target, self._target.dropped_to
        if folder is None or not self._dropped.count:
            return ()
        name = target.dropped_name(self._unit)
        with writing(folder):
            facts = self._dropped.close()
            target.store(folder).put(self._dropped.path, name, Owner(target.run_id, target.attempt, facts.sha256))
        return (OutputFile(name, facts.nbytes, facts.records, facts.sha256),)

    def _publish_quarantined(self) -> None:
        target = self._target
        if target.run_dir is None or not self._quarantined.count:
            return
        with writing(target.run_dir):
            facts = self._quarantined.close()
            owner = Owner(target.run_id, target.attempt, facts.sha256)
            target.store(target.run_dir).put(self._quarantined.path, f"quarantine/{self._unit.id}.jsonl", owner)

    def _publish_scores(self) -> None:
        target = self._target
        if target.run_dir is None or self._sidecar is None:
            return
        with writing(target.run_dir):
            target.make_tmp()
            facts = self._sidecar.write()
            if facts is not None:
                owner = Owner(target.run_id, target.attempt, facts.sha256)
                target.store(target.run_dir).put(self._sidecar.path, f"scores/{self._unit.id}.parquet", owner)


class _Lines:
    """Lines in a temporary file that is created with the first of them."""

    def __init__(self, target: CommitTarget, path: str) -> None:
        self.path = path
        self._target = target
        self.count = 0
        self._file: Any = None
        self._hash = hashlib.sha256()
        self._nbytes = 0

    def add(self, lines: Sequence[bytes]) -> None:
        if self._file is None:
            self._target.make_tmp()
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


def committed_record(target: CommitTarget, unit_id: str) -> CommitRecord | None:
    """Return the record of a unit in the inbox if it is complete and of this attempt.

    Records of earlier attempts were collected when this one began. Later ones, by a worker of an earlier attempt that
    still runs, are ignored: that worker may have other stages.
    """
    if target.run_dir is None:
        return None
    content = target.store(target.run_dir).read(f"{INBOX}/{unit_id}.json")
    found = None if content is None else decode_commit(content)
    if found is None or (found.run, found.attempt) == (target.run_id, target.attempt):
        return found
    if found.run == target.run_id and found.attempt > target.attempt:
        raise target.superseded()
    return None


def record_commit(target: CommitTarget, record: CommitRecord) -> CommitRecord:
    """Put a record into the inbox unless there is one already; return the one that counts."""
    if target.run_dir is None:
        return record
    name = f"{INBOX}/{record.unit}.json"
    with writing(target.run_dir):
        target.refuse_if_superseded()
        store = target.store(target.run_dir)
        if store.create(name, encode(record)):
            return record
        found = committed_record(target, record.unit)
        if found is None:  # truncated by a crash, or of a worker of an earlier attempt
            store.write(name, encode(record))
        return found or record


def join(target: CommitTarget, sink: SinkStage[Any, Any], unit: Unit) -> CommitRecord:
    """Join the parts in the pieces of `unit` into one output file, publish it and record it."""
    found = committed_record(target, unit.id)
    if found is not None:
        return found
    assert target.output is not None, "parts are joined for a writer"
    base = os.path.join(target.tmp, f"{unit.id}-{_unique_name()}")
    local = f"{base}{target.extension}"
    parts: list[str] = []
    with writing(target.output):
        target.make_tmp()
        try:
            for number, piece in enumerate(unit.pieces):
                parts.append(_local_part(target, piece.path, f"{base}-{number}"))
            facts: FileFacts = sink.join_parts(parts, local, target.schema())
            owner = Owner(target.run_id, target.attempt, facts.sha256)
            target.store(target.output).put(local, target.output_name(unit), owner)
        finally:
            for path in (local, *(path for path in parts if path.startswith(base))):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
    output = OutputFile(target.output_name(unit), facts.nbytes, facts.records, facts.sha256)
    units = tuple(piece.relative for piece in unit.pieces)
    record = CommitRecord(unit.id, target.attempt, outputs=(output,), order=unit.order, joined=units, run=target.run_id)
    record.tally.extras = dict(facts.extras)
    return record_commit(target, record)


def _local_part(target: CommitTarget, path: str, local: str) -> str:
    if not is_url(path):
        return path
    folder, name = path.rsplit("/", 1)
    target.store(folder).get(name, local)
    return local
