# SPDX-License-Identifier: Apache-2.0
"""The files of one unit, from the first record to the commit.

Nothing of a unit is visible before its commit: everything is written to the attempt's `tmp` folder. The commit moves
the finished files to their final names and then records the unit, unless it is recorded already. A crash at any point
between is harmless: the unit is processed again, its files get the same names, and others that are left are removed.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from thresher.core.source import FileFacts, RecordWriter, SettledWriter
from thresher.core.tally import Tally
from thresher.core.unit import Unit
from thresher.errors import RunFailedError
from thresher.ledger.records import INBOX, JOIN_PREFIX, CommitRecord, OutputFile, decode_commit, encode
from thresher.ledger.stores.errors import storage_error
from thresher.ledger.stores.store import Owner, StagedFile, Store, escapes_folder, open_store, publish, remove_emptied

if TYPE_CHECKING:
    from thresher.core.records.record_task import RecordTask
    from thresher.core.scores import ScoreColumn
    from thresher.core.stage import SinkStage, SourceStage
    from thresher.ledger.quarantine import QuarantineFile
    from thresher.ledger.scores import ScoreRows, ScoreSidecar

SCHEMA_FILE = "schema.json"
_SERIAL = itertools.count()


@dataclass(frozen=True)
class CommitTarget:
    """The folders that units are committed to, as sent to every worker on any machine."""

    output: str | None
    """Output folder or URL; `None` if the pipeline has no writer."""
    run_dir: str | None
    """Run folder or URL; `None` without a ledger."""
    attempt: int
    """Number of the attempt."""
    tmp: str
    """Local folder for unfinished files; on the file system of the output if that is local."""
    extension: str = ""
    """End of output names."""
    suffixes: tuple[str, ...] = ("",)
    """Suffixes of the names of a unit's files; see `SinkStage.suffixes`."""
    prefix: str = ""
    """Prefix of output names in `mode="append"`."""
    dropped_to: str | None = None
    """Folder or URL for dropped records."""
    parts: str | None = None
    """Folder or URL for parts, if files are joined to a target size or share a schema that is fixed during the run;
    else `None`."""
    joins: bool = False
    """True if every unit becomes a part, because files are joined to a target size."""
    schema_mode: str = ""
    """Rule by which the schema is fixed: `first`, the first unit of the input may fix it alone; `listed`, after the
    whole input is listed; `kept`, an existing one is used. Empty if files share no schema."""
    storage_options: dict[str, Any] = field(default_factory=dict)
    """Options for opening URLs."""
    run_id: str = ""
    """Run id. It is part of the records and objects of the run, to distinguish them from those of other runs."""
    conditional: bool = True
    """True if the object store honours conditions; without them only a single writer is safe."""
    phases: str | None = None
    """Folder or URL for the files of phases before the last; `None` if there is one phase."""
    phase_extensions: tuple[str, ...] = ()
    """End of the names of these files, by phase."""
    phase_readers: tuple[int, ...] = ()
    """The last phase that reads these files, by phase."""
    outlets: str | None = None
    """Folder or URL for the files of outlets, in a folder each; `None` if there is no outlet."""

    def store(self, folder: str) -> Store:
        """Return the store of one of the folders."""
        return open_store(folder, self.storage_options, self.conditional)

    def hands_on(self, phase: int) -> bool:
        """Return True if the files of a phase are for the next phase to read."""
        return phase < len(self.phase_extensions)

    def of_phase(self, phase: int) -> CommitTarget:
        """Return the target for the units of a phase."""
        if not self.hands_on(phase):
            return self
        return replace(
            self,
            output=self.phase_folder(phase),
            extension=self.phase_extensions[phase],
            suffixes=("",),
            prefix="",
            parts=None,
            joins=False,
            schema_mode="",
        )

    def phase_folder(self, phase: int) -> str:
        """Return the folder of the files that a phase hands on."""
        assert self.phases is not None, "a run of several phases has a folder for them"
        return f"{self.phases}/{phase}"

    def schema(self) -> str:
        """Return the schema of the files of this run; empty if it is not fixed yet."""
        content = self.store(self.schema_folder).read(SCHEMA_FILE) if self.schema_mode else None
        return "" if content is None else content.decode("utf-8")

    def keep_schema(self, schema: str) -> None:
        """Record the schema of the run unless one is recorded."""
        self.refuse_if_superseded()
        self.store(self.schema_folder).create(SCHEMA_FILE, schema.encode("utf-8"))

    @property
    def schema_folder(self) -> str:
        """Return the folder of the schema: the run folder, or that of the parts if there is none."""
        folder = self.run_dir or self.parts
        assert folder is not None, "a run that settles a schema has one of these"
        return folder

    def make_tmp(self) -> None:
        """Create the folder for unfinished files unless it is in the run folder, where the driver has created it."""
        self.refuse_if_superseded()
        if not self._tmp_is_watched:
            os.makedirs(self.tmp, exist_ok=True)

    def refuse_if_superseded(self) -> None:
        """Raise if the folder for unfinished files is gone from a local run folder.

        A newer attempt has removed it, and a process of an older attempt must not publish anything.
        """
        if self._tmp_is_watched and not os.path.isdir(self.tmp):
            raise self.superseded()

    @property
    def _tmp_is_watched(self) -> bool:
        """Return True if `tmp` lies in the run folder, where a newer attempt removes it."""
        return self.run_dir is not None and self.tmp.startswith(self.run_dir)

    def superseded(self) -> RunFailedError:
        """Return the error for a worker whose attempt is over."""
        return RunFailedError(
            f"{self.run_dir}: attempt {self.attempt} is over, a newer one goes on in its place; nothing was published"
        )

    @property
    def owner(self) -> Owner:
        """Return the owner of the files of this attempt, without the hash of a file."""
        return Owner(self.run_id, self.attempt, "")

    def output_name(self, unit: Unit) -> str:
        """Return the output name of a unit; a joined file is named after its first unit."""
        return f"{self.prefix}{unit.stem}-{unit.id.removeprefix(JOIN_PREFIX)}{self.extension}"

    def part_name(self, unit: Unit) -> str:
        """Return the name of a unit's part."""
        return f"{unit.stem}-{unit.id}{self.extension}"


def unique_name() -> str:
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
        outlets: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare the output; files are created when there is something to write. `source` helps to fix the schema of
        the run, `outlets` opens the files of outlets."""
        self._target = target = target.of_phase(unit.phase)
        self._sink = sink
        self._source = source
        self._unit = unit
        self._is_repeated = target.attempt > 1 or epoch > 0
        """True if an earlier attempt or epoch may have published files of this unit."""
        self._base = os.path.join(target.tmp, f"{unit.id}-{epoch}-{unique_name()}")
        self._data = f"{self._base}-data{target.extension}"
        self._writer: RecordWriter[Any] | None = None
        self._given = 0
        self._quarantined: QuarantineFile | None = None
        self._dropped: QuarantineFile | None = None
        self._sidecar: ScoreSidecar | None = None
        self._outlets = outlets or {}
        self._sent: dict[str, RecordWriter[Any]] = {}
        self._folder = ""
        """Folder that is written at the moment, for error messages."""

    # -- writing ------------------------------------------------------------------------------------------------------

    def write(self, batch: RecordTask) -> None:
        """Add records to the unit's output."""
        if not batch.num_items:
            return
        try:
            if self._writer is None:
                assert self._sink is not None, "only a pipeline with a writer writes records"
                self._target.make_tmp()
                self._writer = self._sink.open_writer(self._data)
            assert self._writer is not None
            self._writer.write(batch)
        except OSError as error:
            raise storage_error(error, self._destination()) from error
        self._given += batch.num_items

    def _destination(self) -> str:
        return self._target.parts or self._target.output or self._target.tmp

    def quarantine(self, lines: Sequence[bytes]) -> None:
        """Add lines to the unit's quarantine file; without a run folder there is no such file."""
        if lines and self._target.run_dir is not None:
            self._quarantined = self._add_lines(self._quarantined, "quarantined", lines, self._target.run_dir)

    def dropped(self, lines: Sequence[bytes]) -> None:
        """Add records to the unit's file in `dropped_to`."""
        if lines and self._target.dropped_to is not None:
            self._dropped = self._add_lines(self._dropped, "dropped", lines, self._target.dropped_to)

    def _add_lines(self, file: QuarantineFile | None, end: str, lines: Sequence[bytes], folder: str) -> QuarantineFile:
        from thresher.ledger.quarantine import QuarantineFile

        try:
            if file is None:
                self._target.make_tmp()
                file = QuarantineFile(f"{self._base}-{end}", self._unit.id if end == "quarantined" else "")
            file.add(lines)
        except OSError as error:
            raise storage_error(error, folder) from error
        return file

    def keep_scores(self, columns: Sequence[ScoreColumn]) -> None:
        """Write a score sidecar with these columns at the commit."""
        from thresher.ledger.scores import ScoreSidecar

        if self._target.run_dir is not None:
            self._sidecar = ScoreSidecar(columns, self._unit, f"{self._base}-scores.parquet")

    def scores(self, rows: Sequence[ScoreRows]) -> None:
        """Add scores to the unit's sidecar."""
        if self._sidecar is not None:
            self._sidecar.add(rows)

    def send(self, outlet: str, block: bytes) -> None:
        """Add a block of documents to the unit's file for an outlet."""
        from thresher.core.documents.blocks import decode_block

        try:
            if outlet not in self._sent:
                self._target.make_tmp()
                self._sent[outlet] = self._outlets[outlet].open_writer(f"{self._base}-to-{outlet}")
            self._sent[outlet].write(decode_block(memoryview(block)))
        except OSError as error:
            raise storage_error(error, self._target.outlets or self._target.tmp) from error

    def abort(self) -> None:
        """Remove everything that was written."""
        for file in (self._writer, self._quarantined, self._dropped, self._sidecar, *self._sent.values()):
            if file is not None:
                file.abort()

    # -- commit -------------------------------------------------------------------------------------------------------

    def commit(self, tally: Tally) -> CommitRecord:
        """Publish the unit's files and record it. A unit that is already recorded is left unchanged."""
        self._folder = self._destination()
        try:
            is_part = self._fix_schema()
            facts = self._closed()
            run = None if self._target.run_dir is None else self._target.store(self._target.run_dir)
            found = None if run is None else committed_record(self._target, self._unit.id, run)
            if found is not None:
                self.abort()
                return found
            tally.extras = {name: n for file in facts for name, n in file.extras.items()}
            record = self._record(tally, facts, is_part)
            if run is None:
                return record
            self._folder = run.root
            return record_commit(self._target, record, run)
        except OSError as error:
            raise storage_error(error, self._folder) from error

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

    def _closed(self) -> Sequence[FileFacts]:
        """Finish the files of the writer; raise if it contradicts what it declared or was given."""
        if self._writer is None:
            return ()
        closed = self._writer.close()
        facts = (closed,) if isinstance(closed, FileFacts) else tuple(closed)
        assert self._sink is not None, "there is a writer"
        suffixes = [file.suffix for file in facts]
        for suffix in suffixes:
            if not self._is_declared(suffix):
                raise RunFailedError(
                    f"{self._sink.name}: a file with the suffix {suffix!r} is not one of the suffixes of this writer, "
                    f"{', '.join(map(repr, self._target.suffixes))}; add it to suffixes()"
                )
            if suffixes.count(suffix) > 1:
                raise RunFailedError(f"{self._sink.name}: the writer reports a file with the suffix {suffix!r} twice")
        held = sum(file.records for file in facts)
        if held != self._given:
            raise RunFailedError(
                f"{self._sink.name}: the writer was given {self._given:,} records, and its files hold {held:,}. Every "
                "record must be counted in one file, and in one only"
            )
        return facts

    def _is_declared(self, suffix: str) -> bool:
        """Return True if the suffix is declared, or leads to a file in a declared folder."""
        if suffix in self._target.suffixes:
            return not suffix.endswith("/")
        folders = [folder for folder in self._target.suffixes if folder.endswith("/") and suffix.startswith(folder)]
        return any(not escapes_folder(suffix.removeprefix(folder)) for folder in folders) and "//" not in suffix

    def _record(self, tally: Tally, facts: Sequence[FileFacts], is_part: bool) -> CommitRecord:
        """Publish all files, and return the record of the unit."""
        target, unit = self._target, self._unit
        folder = target.parts if is_part else target.output
        name = target.part_name(unit) if is_part else target.output_name(unit)
        outputs = () if folder is None else self._publish(folder, self._data, name, facts, target.suffixes)
        dropped_outputs = self._publish_lines(
            target.dropped_to, self._dropped, f"{target.prefix}{unit.stem}-{unit.id}", (".jsonl",)
        )
        sent = {outlet: self._publish_sent(outlet, writer) for outlet, writer in sorted(self._sent.items())}
        if target.run_dir is not None:
            self._publish_lines(f"{target.run_dir}/quarantine", self._quarantined, unit.id, (".jsonl", "/"))
            self._publish_scores(f"{target.run_dir}/scores")
        totals = tally.totals()
        return CommitRecord(
            unit=unit.id,
            attempt=target.attempt,
            read=totals["read"],
            written=totals["written"],
            dropped=totals["dropped"],
            quarantined=totals["quarantined"],
            outputs=outputs,
            order=unit.order,
            part=is_part,
            dropped_outputs=dropped_outputs,
            tally=tally,
            run=target.run_id,
            schema=facts[0].schema if facts else "",
            phase=unit.phase,
            handed_on=target.hands_on(unit.phase),
            sent=sent,
        )

    def _publish(
        self, folder: str, local: str, name: str, facts: Sequence[FileFacts], suffixes: Sequence[str]
    ) -> tuple[OutputFile, ...]:
        """Move local files to a folder, each under the given name and its suffix."""
        self._folder = folder
        self._target.refuse_if_superseded()
        staged = [StagedFile(f"{local}{file.suffix}", f"{name}{file.suffix}", file.sha256) for file in facts]
        names = [f"{name}{suffix}" for suffix in suffixes]
        publish(self._target.store(folder), staged, names, self._target.owner)
        remove_emptied([file.path for file in staged], below=self._target.tmp)
        return tuple(OutputFile(f"{name}{file.suffix}", file.nbytes, file.records, file.sha256) for file in facts)

    def _publish_lines(
        self, folder: str | None, file: QuarantineFile | None, name: str, suffixes: Sequence[str]
    ) -> tuple[OutputFile, ...]:
        if folder is None or (file is None and not self._is_repeated):
            return ()
        self._folder = folder
        return self._publish(
            folder, "" if file is None else file.path, name, () if file is None else file.close(), suffixes
        )

    def _publish_sent(self, outlet: str, writer: RecordWriter[Any]) -> OutputFile:
        facts = writer.close()
        assert isinstance(facts, FileFacts), "there is one file for each outlet"
        folder = f"{self._target.outlets}/{outlet}"
        return self._publish(folder, f"{self._base}-to-{outlet}", self._unit.id, (facts,), ("",))[0]

    def _publish_scores(self, folder: str) -> None:
        if self._sidecar is not None:
            self._folder = folder
            self._target.make_tmp()
            facts = self._sidecar.write()
            if facts is not None:
                self._publish(folder, self._sidecar.path, f"{self._unit.id}.parquet", (facts,), ("",))


def committed_record(target: CommitTarget, unit_id: str, run: Store) -> CommitRecord | None:
    """Return the record of a unit in the inbox of a run folder if it is complete and of this attempt.

    Records of earlier attempts were collected when this one began. Later ones, by a worker of an earlier attempt that
    still runs, are ignored: that worker may have other stages.
    """
    content = run.read(f"{INBOX}/{unit_id}.json")
    found = None if content is None else decode_commit(content)
    if found is None or (found.run, found.attempt) == (target.run_id, target.attempt):
        return found
    if found.run == target.run_id and found.attempt > target.attempt:
        raise target.superseded()
    return None


def record_commit(target: CommitTarget, record: CommitRecord, run: Store) -> CommitRecord:
    """Put a record into the inbox unless there is one already; return the one that counts."""
    name = f"{INBOX}/{record.unit}.json"
    target.refuse_if_superseded()
    if run.create(name, encode(record)):
        return record
    found = committed_record(target, record.unit, run)
    if found is None:  # truncated by a crash, or of a worker of an earlier attempt
        run.write(name, encode(record))
    return found or record
