# SPDX-License-Identifier: Apache-2.0
"""The open run folder of a run: it lists units, takes in their commits, and closes with a manifest."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from thresher.core.files.filesystem import is_url, join
from thresher.core.phases import PhaseFile, PhaseFolder, PhaseReader
from thresher.core.unit import Unit
from thresher.errors import ThresherError
from thresher.ledger.folder import output_files
from thresher.ledger.folder.lock import RunLock
from thresher.ledger.folder.request import (
    UNITS_FILE,
    RunRequest,
    RunState,
    first_few,
    timestamp,
    without_passwords,
    write_state,
)
from thresher.ledger.parts import phase_tree, plan_joins
from thresher.ledger.records import (
    CommitRecord,
    Journal,
    encode,
    encode_text,
    end_of_phase,
    in_input_order,
    manifest_lines,
)
from thresher.ledger.stores.errors import writing
from thresher.ledger.stores.store import Store, remove_files, remove_listed
from thresher.ledger.unit_output import CommitTarget


@dataclass(frozen=True)
class RunFolder:
    """The parts of an open run folder."""

    store: Store
    """The folder."""
    journal: Journal
    """Ledger of committed units."""
    lock: RunLock
    """Lock, held until the end."""
    state: RunState
    """Content of `run.json`."""


class OpenRun:
    """One attempt of a run, from opening to closing."""

    def __init__(self, request: RunRequest, run_id: str, target: CommitTarget, folder: RunFolder | None) -> None:
        """Start an attempt; `folder` is `None` for a run without a ledger."""
        self.run_id = run_id
        self.target = target
        self._request = request
        self._folder = folder
        self._records: dict[str, CommitRecord] = {} if folder is None else folder.journal.committed
        self.resumed = folder is not None and len(folder.state.attempts) > 1
        """True if an earlier attempt began this run."""
        self._files: dict[str, int] = {}
        self._units: BinaryIO | None = None
        self._joined: list[CommitRecord] = []
        self._schema_is_fixed = False
        self._phase_bytes = 0
        """Bytes that the listed units are expected to take between phases."""
        self._clock: Callable[[], float] = time.time
        self._closed = False
        self.warnings: list[str] = []
        """Warnings about the output of this run, for the user."""

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def run_dir(self) -> str | None:
        """Return the run folder or URL; `None` without a ledger."""
        return self.target.run_dir

    @property
    def store(self) -> Store | None:
        """Return the run folder as a store; `None` without a ledger."""
        return None if self._folder is None else self._folder.store

    @property
    def attempt(self) -> int:
        """Return the number of this attempt."""
        return self.target.attempt

    @property
    def committed(self) -> dict[str, CommitRecord]:
        """Return the commit records by unit, including those of earlier attempts."""
        return self._records

    def previous_units(self) -> list[Unit] | None:
        """Return the units that an earlier attempt listed; `None` if none listed them completely."""
        content = None if self._folder is None else self._folder.store.read(UNITS_FILE)
        if content is None:
            return None
        try:
            return [msgspec.json.decode(line, type=Unit) for line in content.splitlines()]
        except msgspec.DecodeError:
            return None

    def ordered(self) -> list[CommitRecord]:
        """Return all commit records in input order."""
        return in_input_order(self._records.values(), self._files)

    def output_paths(self) -> list[str]:
        """Return the finished output files in input order."""
        folder = self.target.output
        return [] if folder is None else [join(folder, line.path) for line in manifest_lines(self.ordered())]

    @property
    def has_output(self) -> bool:
        """Return True if a unit has an output file, or a file with dropped records."""
        return any(record.outputs or record.dropped_outputs for record in self._records.values())

    @property
    def dropped_to(self) -> str | None:
        """Return the folder or URL with the dropped records of this run, if they are kept."""
        return self.target.dropped_to if self._folder is None else self._folder.state.dropped_to

    def redo_missing(self) -> None:
        """Remove the commits of units whose files are missing, so that they are processed again."""
        if self._records:
            redo, missing = output_files.units_to_redo(self._records, self.target)
            for unit in redo:
                del self._records[unit]
            if missing:
                self.warnings.append(f"output files are missing: {first_few(missing)}; their units are processed again")

    # -- while it runs ------------------------------------------------------------------------------------------------

    def record_units(self, units: Sequence[Unit], last: bool) -> None:
        """Save the list of units; it replaces that of an earlier attempt once it is complete.

        Raise once it is known that there is no room for the files between phases.
        """
        for unit in units:
            self._files[unit.id.rsplit("-", 1)[0]] = unit.order[0]
        if self.target.phases is not None and self.target.phase_extensions:
            from thresher.ledger.folder import disk_room  # only plans with phases need it

            self._phase_bytes += disk_room.expected_bytes(units)
            if last and not self.resumed:
                disk_room.refuse_input(self.target, self._phase_bytes)
        if self._folder is None:
            return
        path = os.path.join(self.target.tmp, UNITS_FILE)
        with writing(path):
            if self._units is None:
                os.makedirs(self.target.tmp, exist_ok=True)
                self._units = open(path, "wb")  # noqa: SIM115  # closed with the last unit, or by _close
            self._units.write(without_passwords(b"".join(encode(unit) + b"\n" for unit in units)))
            if last:
                self._units.flush()
                os.fsync(self._units.fileno())
                self._units.close()
                self._units = None
                self._folder.store.put(path, UNITS_FILE)

    def before_first_commit(self) -> None:
        """Remove the files that this run replaces. Called before the first commit of an attempt and never earlier."""
        target, folder = self.target, self._folder
        output = None if target.output is None else target.store(target.output)
        dropped = None if target.dropped_to is None else target.store(target.dropped_to)
        with writing(target.output or ""):
            if folder is None:
                if output is not None and self._request.mode == "overwrite":
                    output_files.clear_output(output)
                return
            if folder.state.replaces is not None:
                output_files.remove_replaced(folder.store, output, dropped, folder.state.replaces)
            if folder.state.clears and output is not None:
                output_files.clear_output(output)
            if folder.state.replaces is not None or folder.state.clears:
                folder.state.replaces, folder.state.clears = None, False
                write_state(folder.store, folder.state)

    def fold(self, unit_id: str, record: CommitRecord | None = None) -> CommitRecord:
        """Add a committed unit to the ledger; without `record`, read it from the inbox."""
        if self._folder is None:
            assert record is not None, "without a ledger there is no inbox to ask"
            return self._records.setdefault(unit_id, record)
        journal = self._folder.journal
        known = journal.add_from_inbox(unit_id) if record is None else journal.add(record)
        if known.joined:
            self._joined.append(known)
        return known

    def sync(self) -> None:
        """Write new commits to disk. Called about twice a second."""
        if self._folder is None:
            return
        with writing(self._folder.store.root):
            self._folder.lock.renew(self._clock())  # first, because a run that lost the lock must not write
            self._folder.journal.sync()
            self._remove_joined_parts()
            output_files.upload_events(self._folder.store, self.target, all_of_them=False)

    def _remove_joined_parts(self) -> None:
        joined, self._joined = self._joined, []
        for record in joined:
            folder = self.target.phase_folder(record.phase) if record.handed_on else self.target.parts
            if folder is not None:
                names = [file.path for unit in record.joined for file in self._records[unit].outputs]
                remove_files(self.target.store(folder), names)

    def join_units(self) -> list[Unit]:
        """Return the units that join parts and are not committed yet. Called when all input units are committed."""
        if self.target.parts is None:
            return []
        parts = [record for record in self.ordered() if record.part]
        units = plan_joins(parts, self._request.target_file_size or 0, self.target)
        return [unit for unit in units if unit.id not in self._records]

    def phase_units(self, phase: int, reader: PhaseReader[Any], most_files: int = 0) -> list[Unit]:
        """Return the units of a phase that are not committed yet, or those that join what it will read to at most
        `most_files` files. Called when all units before are committed."""
        if end_of_phase(phase) in self._records:
            return []
        units, records = phase_tree(self._records, phase - 1, most_files, self.target)
        if units:
            self.sync()  # what was joined before is removed first
            from thresher.ledger.folder import disk_room  # only plans with phases need it

            disk_room.refuse_joins(self.target, units)
            return units
        folder = self.target.phase_folder(phase - 1)
        store = self.target.store(folder)

        def keep(name: str, content: bytes) -> str:
            store.write(name, content)
            return join(folder, name)

        def publish(path: str, name: str) -> None:
            if self._folder is not None:
                os.makedirs(self.target.tmp, exist_ok=True)
                copy = os.path.join(self.target.tmp, f"{name}-{phase}")
                store.get(path.rsplit("/", 1)[-1], copy)
                self._folder.store.put(copy, name)

        with writing(folder):
            listed = store.read(UNITS_FILE)
            if listed is None:
                # Stored, because another memory limit would make other units of the same files.
                first = phase - reader.reaches_back
                written = phase_tree(self._records, first, 0, self.target)[1] if reader.reaches_back > 1 else []
                earlier = self._files_of(first, written)
                files, options = self._files_of(phase - 1, records), self.target.storage_options
                units = reader.list_phase(PhaseFolder(files, keep, options, phase, earlier, publish))
                store.write(UNITS_FILE, b"".join(encode(unit) + b"\n" for unit in units))
            else:
                units = [msgspec.json.decode(line, type=Unit) for line in listed.splitlines()]
        left = [unit for unit in units if unit.id not in self._records]
        if phase in self._request.copying_phases:
            read_bytes = sum(file.bytes for record in records for file in record.outputs)
            from thresher.ledger.folder import disk_room  # only plans with phases need it

            disk_room.refuse_phase(self.target, units, left, read_bytes)
        return left

    def _files_of(self, phase: int, records: Iterable[CommitRecord]) -> list[PhaseFile]:
        folder = self.target.phase_folder(phase)
        return [PhaseFile(join(folder, f.path), f.bytes) for record in records for f in record.outputs]

    def end_phase(self, phase: int) -> None:
        """Record that all units of a phase are committed, then remove the files that no later phase reads."""
        mark = CommitRecord(end_of_phase(phase), self.attempt, phase=phase, run=self.run_id)
        if mark.unit not in self._records:
            self.fold(mark.unit, mark)
            self.sync()
        for read in [read for read, last in enumerate(self.target.phase_readers) if last == phase]:
            folder = self.target.phase_folder(read)
            with writing(folder):
                store = self.target.store(folder)
                for name in store.names():
                    remove_listed(store, name)

    def first_schema(self, first_open: tuple[int, int] | None) -> str:
        """Return the schema that the first unit with output proposes for the run; empty while that unit is unknown.

        `first_open` is the position in the input of the first unit that is not committed; `None` if all are.
        """
        if self._schema_is_fixed or self.target.schema_mode not in ("first", "listed"):
            return ""
        if self.target.schema():  # fixed by a worker or an earlier attempt
            self._schema_is_fixed = True
            return ""
        proposals = [record for record in self._records.values() if record.schema]
        found = min(proposals, key=lambda record: record.order, default=None)
        return "" if found is None or (first_open is not None and first_open < found.order) else found.schema

    def keep_schema(self, schema: str) -> None:
        """Record the schema of the run."""
        with writing(self.target.schema_folder):
            self.target.keep_schema(schema)
        self._schema_is_fixed = True

    def write_json(self, name: str, value: Any) -> None:
        """Put a JSON file into the run folder; do nothing without a ledger."""
        if self._folder is not None:
            with writing(join(self._folder.store.root, name)):
                self._folder.lock.renew(self._clock())
                self._folder.store.write(name, msgspec.json.format(encode_text(value), indent=2) + b"\n")

    def event_folder(self) -> str | None:
        """Return a local folder for the event log of this attempt; `None` without a ledger."""
        if self._folder is None:
            return None
        root = self._folder.store.root
        folder = os.path.join(self.target.tmp if is_url(root) else root, "events", f"{self.attempt:03d}")
        with writing(folder):
            os.makedirs(folder, exist_ok=True)
        return folder

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self, status: str, exit_code: int) -> None:
        """Write the manifest, remove temporary files and release the lock, after all units are committed."""
        if self._closed:
            return
        self.sync()
        if self._folder is not None:
            lines = manifest_lines(self.ordered())
            with writing(self._folder.store.root):
                self._folder.journal.clear_temporary()
                for folder in (self.target.output, self.target.dropped_to):
                    if folder is not None and not is_url(folder):
                        output_files.remove_unfinished(self.target.store(folder))
                self._folder.store.write("manifest.jsonl", b"".join(encode(line) + b"\n" for line in lines))
                self._folder.store.remove_tree("parts")
                self._folder.store.remove_tree("phases")
        elif self.target.output is not None:
            self.target.store(self.target.output).sync()
        self._close(status, exit_code)

    def abandon(self, exit_code: int, status: str = "stopped") -> None:
        """End the attempt early: committed units stay, and the same command resumes."""
        if self._closed:
            return
        with contextlib.suppress(ThresherError, OSError):  # the inbox still holds what could not be written
            self.sync()
        with contextlib.suppress(ThresherError, OSError):  # a full disk must not hide why the run ended
            self._close(status, exit_code)
        self._release()

    def _close(self, status: str, exit_code: int) -> None:
        if self._units is not None:
            self._units.close()
            self._units = None
        if self._folder is not None:
            with writing(self._folder.store.root):
                self._folder.lock.renew(self._clock())
                output_files.upload_events(self._folder.store, self.target, all_of_them=True)
                output_files.abort_uploads(self.target)
        shutil.rmtree(self.target.tmp, ignore_errors=True)
        if self._folder is not None:
            self._folder.journal.close()
            with writing(self._folder.store.root):
                self._folder.store.remove_tree("tmp")
                last = self._folder.state.attempts[-1]
                last.end, last.status, last.exit_code, last.tmp = timestamp(), status, exit_code, None
                write_state(self._folder.store, self._folder.state)
        self._release()

    def _release(self) -> None:
        if self._folder is not None and not self._closed:
            self._folder.lock.release()
        self._closed = True
