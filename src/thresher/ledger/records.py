# SPDX-License-Identifier: Apache-2.0
"""Commit records of units, the ledger that holds them (`ledger/NNNNNN.jsonl` and its inbox), and the manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from thresher.core.tally import Tally
from thresher.ledger.stores.store import Store

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
