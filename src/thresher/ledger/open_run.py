# SPDX-License-Identifier: Apache-2.0
"""The run folder of a run that goes on: commits are folded in, and it is closed with a manifest."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import msgspec

from thresher.core.filesystem import is_url, join
from thresher.core.unit import Unit
from thresher.errors import ThresherError
from thresher.ledger.archive import clear_output, remove_replaced, remove_unfinished
from thresher.ledger.failures import writing
from thresher.ledger.joins import plan_joins
from thresher.ledger.journal import Journal
from thresher.ledger.lock import RunLock
from thresher.ledger.manifest import in_input_order, manifest_lines
from thresher.ledger.place import CommitPlace, is_unit_file
from thresher.ledger.quarantine import encode_text
from thresher.ledger.records import CommitRecord, encode
from thresher.ledger.request import RUN_FILE, UNITS_FILE, RunRequest, RunState, timestamp
from thresher.ledger.secrets import without_passwords
from thresher.ledger.store import Owner, Store


@dataclass(frozen=True)
class RunFolder:
    """What an open run folder consists of."""

    store: Store
    """The folder."""
    journal: Journal
    """Committed units."""
    lock: RunLock
    """Held until the end."""
    state: RunState
    """`run.json`."""


class OpenRun:
    """One attempt of a run, from its opening to its end."""

    def __init__(self, request: RunRequest, run_id: str, place: CommitPlace, folder: RunFolder | None) -> None:
        """`folder` is `None` for a run without a ledger."""
        self.run_id = run_id
        self.place = place
        self._request = request
        self._folder = folder
        self._records: dict[str, CommitRecord] = {} if folder is None else folder.journal.committed
        self.resumed = folder is not None and len(folder.state.attempts) > 1
        """Whether an earlier attempt began this run."""
        self._files: dict[str, int] = {}
        self._units: BinaryIO | None = None
        self._joined: list[CommitRecord] = []
        self._clock: Callable[[], float] = time.time
        self._closed = False
        self.warnings: list[str] = []
        """What people should know of the place that this run writes to."""

    # -- what is known ------------------------------------------------------------------------------------------------

    @property
    def run_dir(self) -> str | None:
        """The run folder or URL; `None` without a ledger."""
        return self.place.run_dir

    @property
    def attempt(self) -> int:
        """Number of this attempt."""
        return self.place.attempt

    @property
    def committed(self) -> dict[str, CommitRecord]:
        """Records by unit, those of earlier attempts included."""
        return self._records

    def previous_units(self) -> list[Unit] | None:
        """The units that an earlier attempt listed; `None` if none got to the end of the list."""
        content = None if self._folder is None else self._folder.store.read(UNITS_FILE)
        if content is None:
            return None
        try:
            return [msgspec.json.decode(line, type=Unit) for line in content.splitlines()]
        except msgspec.DecodeError:
            return None

    def ordered(self) -> list[CommitRecord]:
        """All records in input order."""
        return in_input_order(self._records.values(), self._files)

    def output_paths(self) -> list[str]:
        """Finished output files in input order."""
        folder = self.place.output
        return [] if folder is None else [join(folder, line.path) for line in manifest_lines(self.ordered())]

    # -- while it runs ------------------------------------------------------------------------------------------------

    def record_units(self, units: Sequence[Unit], last: bool) -> None:
        """Keep the list of units; it replaces the one of an earlier attempt when it is complete."""
        for unit in units:
            self._files[unit.id.rsplit("-", 1)[0]] = unit.order[0]
        if self._folder is None:
            return
        path = os.path.join(self.place.tmp, UNITS_FILE)
        with writing(path):
            if self._units is None:
                os.makedirs(self.place.tmp, exist_ok=True)
                self._units = open(path, "wb")  # noqa: SIM115  # closed with the last unit, or by _close
            self._units.write(without_passwords(b"".join(encode(unit) + b"\n" for unit in units)))
            if last:
                self._units.flush()
                os.fsync(self._units.fileno())
                self._units.close()
                self._units = None
                self._folder.store.put(path, UNITS_FILE)

    def before_first_commit(self) -> None:
        """Remove what this run replaces. Called before the first commit of an attempt and never earlier."""
        place, folder = self.place, self._folder
        output = None if place.output is None else place.store(place.output)
        dropped = None if place.dropped_to is None else place.store(place.dropped_to)
        with writing(place.output or ""):
            if folder is None:
                if output is not None and self._request.mode == "overwrite":
                    clear_output(output)
                return
            if folder.state.replaces is not None:
                remove_replaced(folder.store, output, dropped, folder.state.replaces)
            if folder.state.clears and output is not None:
                clear_output(output)
            if folder.state.replaces is not None or folder.state.clears:
                folder.state.replaces, folder.state.clears = None, False
                self._write_state()

    def fold(self, unit_id: str, record: CommitRecord | None = None) -> CommitRecord:
        """Take a committed unit into the ledger; `record` is what the commit gave back, else the inbox is asked."""
        if self._folder is None:
            assert record is not None, "without a ledger there is no inbox to ask"
            return self._records.setdefault(unit_id, record)
        journal = self._folder.journal
        known = journal.add_from_inbox(unit_id) if record is None else journal.add(record)
        if known.joined:
            self._joined.append(known)
        return known

    def sync(self) -> None:
        """Bring what was folded to disk. Called about twice a second."""
        if self._folder is None:
            return
        with writing(self._folder.store.root):
            self._folder.lock.renew(self._clock())  # first: who has lost the lock must not write
            self._folder.journal.sync()
            self._remove_joined_parts()
            self._upload_events(all_of_them=False)

    def _remove_joined_parts(self) -> None:
        joined, self._joined = self._joined, []
        if joined and self.place.parts is not None:
            parts = self.place.store(self.place.parts)
            for record in joined:
                for unit in record.joined:
                    for file in self._records[unit].outputs:
                        parts.remove(file.path)

    def join_units(self) -> list[Unit]:
        """When all units are committed: those that join their parts and are not committed themselves."""
        size = self._request.target_file_size
        if size is None:
            return []
        parts = [record for record in self.ordered() if record.part]
        return [unit for unit in plan_joins(parts, size, self.place) if unit.id not in self._records]

    def write_json(self, name: str, value: Any) -> None:
        """Put a JSON file into the run folder; nothing happens without a ledger."""
        if self._folder is not None:
            with writing(join(self._folder.store.root, name)):
                self._folder.lock.renew(self._clock())
                self._folder.store.write(name, msgspec.json.format(encode_text(value), indent=2) + b"\n")

    def event_folder(self) -> str | None:
        """A local folder for the event log of this attempt; `None` without a ledger."""
        if self._folder is None:
            return None
        root = self._folder.store.root
        folder = os.path.join(self.place.tmp if is_url(root) else root, "events", f"{self.attempt:03d}")
        with writing(folder):
            os.makedirs(folder, exist_ok=True)
        return folder

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self, status: str, exit_code: int) -> None:
        """All units are committed: write the manifest, remove what is temporary, release the lock."""
        if self._closed:
            return
        self.sync()
        if self._folder is not None:
            lines = manifest_lines(self.ordered())
            with writing(self._folder.store.root):
                self._folder.journal.clear_temporary()
                for folder in (self.place.output, self.place.dropped_to):
                    if folder is not None and not is_url(folder):
                        remove_unfinished(self.place.store(folder))
                self._folder.store.write("manifest.jsonl", b"".join(encode(line) + b"\n" for line in lines))
                self._folder.store.remove_tree("parts")
        elif self.place.output is not None:
            self.place.store(self.place.output).sync()
        self._close(status, exit_code)

    def abandon(self, exit_code: int, status: str = "stopped") -> None:
        """The attempt ends before its time: what is committed stays, and the same command goes on."""
        if self._closed:
            return
        with contextlib.suppress(ThresherError, OSError):  # the inbox still holds what could not be brought to disk
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
                self._upload_events(all_of_them=True)
                abort_uploads(self.place)
        shutil.rmtree(self.place.tmp, ignore_errors=True)
        if self._folder is not None:
            self._folder.journal.close()
            with writing(self._folder.store.root):
                self._folder.store.remove_tree("tmp")
                last = self._folder.state.attempts[-1]
                last.end, last.status, last.exit_code, last.tmp = timestamp(), status, exit_code, None
                self._write_state()
        self._release()

    def _release(self) -> None:
        if self._folder is not None and not self._closed:
            self._folder.lock.release()
        self._closed = True

    def _upload_events(self, all_of_them: bool) -> None:
        """Put the segments of the event log that are complete; each is an object that is created once."""
        assert self._folder is not None
        if is_url(self._folder.store.root):
            name = f"events/{self.attempt:03d}"
            local = os.path.join(self.place.tmp, name)
            segments = sorted(os.listdir(local)) if os.path.isdir(local) else []
            for file in segments if all_of_them else segments[:-1]:
                path = os.path.join(local, file)
                owner = Owner(self.run_id, self.attempt, _sha256(path))
                self._folder.store.put(path, f"{name}/{file}", owner)

    def _write_state(self) -> None:
        assert self._folder is not None
        self._folder.store.write(RUN_FILE, msgspec.json.format(encode(self._folder.state), indent=2) + b"\n")


def abort_uploads(place: CommitPlace) -> None:
    """Abort what workers of this run began to upload and did not finish, because they were killed."""
    for folder in (place.output, place.dropped_to):
        if folder is not None and is_url(folder):
            with writing(folder):
                place.store(folder).abort_uploads(lambda name: is_unit_file(name, place.prefix))
    if place.run_dir is not None and is_url(place.run_dir):
        with writing(place.run_dir):
            place.store(place.run_dir).abort_uploads(lambda name: True)


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
