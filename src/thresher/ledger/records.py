# SPDX-License-Identifier: Apache-2.0
"""Commit records of units, the ledger that holds them (`ledger/NNNNNN.jsonl` and its inbox), and the manifest."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from thresher.core.files.filesystem import is_url, local_path
from thresher.core.tally import Tally
from thresher.ledger.stores.store import Store, is_temporary

FOLDER = "ledger"
INBOX = f"{FOLDER}/inbox"
JOIN_PREFIX = "join-"
"""Prefix of the id of a unit that joins parts, before the id of its first unit."""
_RETRY = re.compile(r"(.+)-retry-([1-9]\d{0,8})")


class OutputFile(msgspec.Struct, frozen=True):
    """A finished file."""

    path: str
    """Name below its folder: the output folder, `parts/` of the run folder, or `dropped_to`."""
    bytes: int
    """Size of the file."""
    records: int
    """Number of records in the file."""
    sha256: str
    """SHA-256 of the file."""


class CommitRecord(msgspec.Struct, frozen=True):
    """One committed unit: one line of the ledger."""

    unit: str
    """Id of the unit."""
    attempt: int
    """Attempt that committed it."""
    read: int = 0
    """Number of records read."""
    written: int = 0
    """Number of records written."""
    dropped: int = 0
    """Number of records dropped by rules."""
    quarantined: int = 0
    """Number of quarantined records."""
    outputs: tuple[OutputFile, ...] = ()
    """Files with its records: those of its writer, or none if no record is left."""
    order: tuple[int, int] = (0, 0)
    """Position in the input."""
    part: bool = False
    """True if `outputs` are parts that are joined later."""
    dropped_outputs: tuple[OutputFile, ...] = ()
    """Files with its dropped records."""
    joined: tuple[str, ...] = ()
    """For a joined file, the units of its parts in order."""
    tally: Tally = msgspec.field(default_factory=Tally)
    """Counts of each stage."""
    run: str = ""
    """Run that committed it; records of other runs are ignored."""
    schema: str = ""
    """For a part with open types, the schema that it proposes for the run."""
    phase: int = 0
    """Index of the phase that the unit belongs to."""
    handed_on: bool = False
    """True if `outputs` are in the folder of the phase, for the next phase to read."""
    sent: dict[str, OutputFile] = {}
    """Files with the documents that it sent to outlets, by outlet."""


class ManifestLine(msgspec.Struct, frozen=True):
    """One finished output file of a finished run."""

    path: str
    """Name below the output folder."""
    bytes: int
    """Size of the file."""
    records: int
    """Number of records in the file."""
    sha256: str
    """SHA-256 of the file."""
    units: tuple[str, ...]
    """Units in the file, in order."""


_COMMIT = msgspec.json.Decoder(CommitRecord)
encode = msgspec.json.encode


def decode_commit(line: bytes) -> CommitRecord | None:
    """Return a commit record of the ledger or the inbox; `None` if a crash truncated it."""
    try:
        return _COMMIT.decode(line)
    except msgspec.DecodeError:
        return None


def encode_text(value: Any) -> bytes:
    """Return a Python value as JSON bytes; lone surrogates, which file names may contain, are escaped."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (UnicodeEncodeError, ValueError, OverflowError):
        import json

        return json.dumps(value, default=_plain).encode("ascii")


def _plain(value: Any) -> Any:
    """Convert a value that JSON cannot represent: numbers of other libraries by value, all others as text."""
    return value.item() if hasattr(value, "item") else str(value)


# -- ids of units ------------------------------------------------------------------------------------------------------


def retry_id(unit_id: str, number: int) -> str:
    """Return the id of the `number`-th retry of a unit; for 0, that of the unit itself."""
    return f"{unit_id}-retry-{number}" if number else unit_id


def split_retry(unit_id: str) -> tuple[str, int]:
    """Return the unit of an id and the number of the retry; 0 for the unit itself."""
    found = _RETRY.fullmatch(unit_id)
    return (found[1], int(found[2])) if found else (unit_id, 0)


def end_of_phase(phase: int) -> str:
    """Return the id of the record that all units of a phase are committed, so that what it read is not needed."""
    return f"phase-{phase}-end"


def latest_retries(committed: Iterable[str]) -> dict[str, int]:
    """Return the number of the last committed retry of each committed unit; 0 if there was none."""
    latest: dict[str, int] = {}
    for unit_id in committed:
        unit, number = split_retry(unit_id)
        latest[unit] = max(number, latest.get(unit, 0))
    return latest


# -- ledger and inbox --------------------------------------------------------------------------------------------------


def read_commits(store: Store, folder: str = FOLDER) -> dict[str, CommitRecord]:
    """Return all commit records of the ledger by unit, without the inbox. Lines truncated by a crash are skipped."""
    records: dict[str, CommitRecord] = {}
    for name in store.names(folder):
        if name.endswith(".jsonl"):
            for line in (store.read(f"{folder}/{name}") or b"").splitlines():
                record = decode_commit(line)
                known = records.get(record.unit) if record is not None else None
                # If a unit has two records, a driver of an earlier attempt wrote the older one late.
                if record is not None and (known is None or known.attempt < record.attempt):
                    records[record.unit] = record
    return records


def damaged_lines(store: Store) -> list[str]:
    """Describe complete lines of the ledger that are not commit records; a crash can only truncate the end of a
    file."""
    found = []
    for name in store.names(FOLDER):
        if name.endswith(".jsonl"):
            *lines, _ = (store.read(f"{FOLDER}/{name}") or b"").split(b"\n")
            found += [
                f"{FOLDER}/{name}, line {number}, is no record of the ledger"
                for number, line in enumerate(lines, 1)
                if decode_commit(line) is None
            ]
    return found


def read_inbox(store: Store, run_id: str | None = None) -> dict[str, CommitRecord]:
    """Return the commit records that no driver has collected yet, of one run or of any."""
    records: dict[str, CommitRecord] = {}
    for name in store.names(INBOX):
        record = decode_commit(store.read(f"{INBOX}/{name}") or b"") if name.endswith(".json") else None
        if record is not None and run_id in (None, record.run):
            records[record.unit] = record
    return records


# -- manifest ----------------------------------------------------------------------------------------------------------


def in_input_order(records: Iterable[CommitRecord], files: Mapping[str, int]) -> list[CommitRecord]:
    """Return the records in input order; `files` has the current index of each file if the input was listed again."""

    def position(record: CommitRecord) -> tuple[int, int, str]:
        file = split_retry(record.unit.removeprefix(JOIN_PREFIX))[0].rsplit("-", 1)[0]
        return files.get(file, record.order[0]), record.order[1], record.unit

    return sorted(records, key=position)


def manifest_lines(records: Iterable[CommitRecord]) -> list[ManifestLine]:
    """Return one line per output file. Parts that were joined are not output files."""
    return [
        ManifestLine(file.path, file.bytes, file.records, file.sha256, record.joined or (record.unit,))
        for record in records
        if not record.part and not record.handed_on
        for file in record.outputs
    ]


_NUMBERS_TRIED = 20


class Journal:
    """The open ledger of a run.

    A unit is committed as soon as its record is in the inbox. The driver writes records to the ledger in groups, and
    only then removes them from the inbox, so a crash at any point loses none.
    """

    def __init__(self, store: Store, folders: Sequence[Store], run_id: str = "") -> None:
        """Open the ledger. `folders` hold the committed files; they are synced before a record is written."""
        self._store = store
        self._run_id = run_id
        self._folders = folders
        self._pending: list[CommitRecord] = []
        self._surplus: list[str] = []
        """Units in the inbox that are already in the ledger."""
        self._descriptor = -1
        self.committed = read_commits(store)

    def recover(self) -> None:
        """Collect the records that an earlier attempt left in the inbox, and remove truncated ones."""
        found = read_inbox(self._store, self._run_id)
        for record in found.values():
            self.add(record)
        self.sync()
        for name in self._store.names(INBOX):
            if is_temporary(name) or name.removesuffix(".json") not in found:
                self._store.remove(f"{INBOX}/{name}")

    def add(self, record: CommitRecord) -> CommitRecord:
        """Add a record and return the one that counts, which is the first of the unit."""
        known = self.committed.setdefault(record.unit, record)
        if known is record:
            self._pending.append(record)
        else:
            self._surplus.append(record.unit)
        return known

    def add_from_inbox(self, unit_id: str) -> CommitRecord:
        """Add the record that a worker put into the inbox."""
        known = self.committed.get(unit_id)
        if known is not None:
            return known
        record = decode_commit(self._store.read(f"{INBOX}/{unit_id}.json") or b"")
        assert record is not None, f"unit {unit_id} was reported as committed, but its record is not in the inbox"
        return self.add(record)

    def sync(self) -> None:
        """Write all new records to disk, then remove them from the inbox."""
        if self._pending:
            for folder in self._folders:
                folder.sync()
            self._append(b"".join(encode(record) + b"\n" for record in self._pending))
        done = {f"{unit}.json" for unit in (*(record.unit for record in self._pending), *self._surplus)}
        for name in done.intersection(self._store.names(INBOX)) if done else ():
            self._store.remove(f"{INBOX}/{name}")
        self._pending, self._surplus = [], []

    def _append(self, lines: bytes) -> None:
        if is_url(self._store.root):  # objects cannot be appended to: every group is a new one
            # A driver of an earlier attempt may still take a number; then try the next one.
            if not any(self._store.create(self._next_name(), lines) for _ in range(_NUMBERS_TRIED)):
                raise OSError(errno.EEXIST, "another driver writes to this ledger", f"{self._store.root}/{FOLDER}")
            return
        if self._descriptor < 0:
            path = os.path.join(local_path(self._store.root), self._next_name())
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            self._store.sync(FOLDER)
        size = os.fstat(self._descriptor).st_size
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:  # a partial line would corrupt the next one
            os.ftruncate(self._descriptor, size)
            raise
        os.fsync(self._descriptor)

    def _next_name(self) -> str:
        stems = [name.removesuffix(".jsonl") for name in self._store.names(FOLDER)]
        return f"{FOLDER}/{max((int(stem) for stem in stems if stem.isdigit()), default=0) + 1:06d}.jsonl"

    def clear_temporary(self) -> None:
        """Remove the incomplete files of killed workers from the inbox. Called when no worker is left."""
        for name in self._store.names(INBOX):
            if is_temporary(name):
                self._store.remove(f"{INBOX}/{name}")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
