# SPDX-License-Identifier: Apache-2.0
"""Quarantined and dropped records: their encoding as JSON lines, their files, and the retries of quarantined ones.

A quarantined record of more than 1 MiB lies in a file of its own, `quarantine/<unit>/<line number>.bin`, which its
entry names.

The quarantined records of unit U are retried as a unit of their own, `U-retry-N`. Records that fail again are in its
quarantine file, which replaces the previous one at the commit: so a record leaves the quarantine at the moment it
enters the output.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.files.filesystem import join
from thresher.core.source import FileFacts
from thresher.credentials import redacted
from thresher.errors import UsageError
from thresher.ledger.records import encode_text, retry_id, split_retry
from thresher.ledger.stores.store import Store, escapes_folder

if TYPE_CHECKING:
    from thresher.core.records.record_ids import RecordIds
    from thresher.core.records.record_task import DroppedRows, FailedRows

DROPPED_KEY = "_dropped"
RETRY_KEY = "thresher.retry"
"""Key in the metadata of a retried batch; the value is a dict with `enters_at` and `attempts`."""
_REFERENCE = b',"record_file":'
"""Last key of an entry whose record lies in a file."""
LARGE_BYTES = 2**20
"""Size above which a quarantined record is kept in a file of its own."""


def enters_at(metadata: dict[str, Any]) -> int:
    """Return the index of the stage at which a retried batch enters; 0 if it goes through all of them."""
    return int(metadata.get(RETRY_KEY, {}).get("enters_at", 0))


def quarantine_lines(failed: FailedRows, stage_name: str) -> list[bytes]:
    """Return one JSON line per failure: id, source, position, stage, error, message, traceback, attempts, record.

    A line for more than one record, or for an unknown number (`null`), has their number under `records`. A large record
    follows its entry after a line feed; `QuarantineFile` puts it into a file of its own.
    """
    ids = failed.record_ids
    records = failed.lines if failed.batch is None else failed.batch.json_lines()
    retried = {} if failed.batch is None else failed.batch.metadata.get(RETRY_KEY, {})
    trace = redacted(failed.traceback)
    lines = []
    for row, message in enumerate(failed.messages):
        entry = _origin(ids, row)
        entry["stage"] = stage_name
        entry["error"] = failed.error
        entry["message"] = redacted(message)
        entry["traceback"] = trace
        entry["attempts"] = failed.attempts + retried.get("attempts", 0)
        if failed.counts and failed.counts[row] != 1:
            entry["records"] = failed.counts[row]
        entry.update(failed.extra)
        if row < len(records) and len(records[row]) > LARGE_BYTES:
            lines.append(with_record(encode_text(entry), records[row]))
            continue
        entry.update(_record(bytes(records[row])) if row < len(records) else {"record": None})
        lines.append(encode_text(entry))
    return lines


def with_record(entry: bytes, record: bytes | memoryview) -> bytes:
    """Return the line of an entry whose record is to be kept in a file of its own; a reference to a former file is
    removed."""
    end = entry.rfind(_REFERENCE)
    return b"\n".join((entry if end < 0 else entry[:end] + b"}", record))


def _origin(ids: RecordIds | None, row: int) -> dict[str, Any]:
    if ids is None or row >= len(ids):
        return {"id": None, "source": None, "position": None}
    return dict(zip(("id", "source", "position"), ids.where(row), strict=True))


def _record(line: bytes) -> dict[str, Any]:
    try:
        return {"record": line.decode("utf-8")}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(line).decode("ascii")}


def dropped_lines(dropped: DroppedRows, stage_name: str) -> list[bytes]:
    """Return the dropped records as JSON lines, each with a last key that names the rule and the reason."""
    from thresher.core.documents.json_records import patch_line, split_object

    key = frozenset({DROPPED_KEY})
    ids = dropped.batch.ids
    lines = []
    for row, line in enumerate(dropped.batch.json_lines()):
        reason = {
            "stage": stage_name,
            "rule": dropped.rule,
            "score": _score(dropped.scores, row),
            "threshold": dropped.threshold,
            "id": None if ids is None else ids.at(row),
        }
        if DROPPED_KEY in split_object(line):  # the record was dropped by an earlier run: replace that reason
            line = patch_line(line, {}, key)
        lines.append(patch_line(line, {DROPPED_KEY: encode_text(reason)}, frozenset()))
    return lines


def dropped_start(line: bytes, stage_name: str) -> bytes:
    """Return how the line of a dropped record begins, up to the stage that dropped it."""
    from thresher.core.documents.json_records import patch_line

    reason = encode_text({"stage": stage_name}).removesuffix(b"}")
    return patch_line(line, {DROPPED_KEY: reason}, frozenset()).removesuffix(b"}")


def without_id(line: bytes) -> bytes:
    """Return the start of the line of a dropped record, up to the record id, which is its last value."""
    return line[: line.rindex(b'"id":')]


def _score(scores: Sequence[Any] | None, row: int) -> Any:
    if scores is None or row >= len(scores):
        return None
    score = scores[row]
    return score.item() if hasattr(score, "item") else score


# -- files ------------------------------------------------------------------------------------------------------------


class QuarantineFile:
    """Lines in a local file, and the large records among them in files beside it."""

    def __init__(self, path: str, unit_id: str = "") -> None:
        """Create `<path>.jsonl`. With `unit_id`, large records become `<path>/<line number>.bin`, and entries name them
        below a folder of that name."""
        self.path = path
        self._unit_id = unit_id
        self._file = open(f"{path}.jsonl", "wb")  # noqa: SIM115  # closed by close() and abort()
        self._hash = hashlib.sha256()
        self._nbytes = 0
        self._count = 0
        self._records: list[FileFacts] = []
        self._begun: list[str] = []
        """Suffixes of the files of large records, including one that could not be finished."""

    def add(self, lines: Sequence[bytes]) -> None:
        """Add lines."""
        for line in lines:
            self._count += 1
            end = line.find(b"\n") if self._unit_id else -1
            text = (line if end < 0 else self._apart(line[:end], memoryview(line)[end + 1 :])) + b"\n"
            self._file.write(text)
            self._hash.update(text)
            self._nbytes += len(text)

    def _apart(self, entry: bytes, record: memoryview) -> bytes:
        """Write a record to a file of its own, and return its entry with a reference to the file."""
        name = f"/{self._count}.bin"
        os.makedirs(self.path, exist_ok=True)
        self._begun.append(name)
        with open(self.path + name, "wb") as file:
            file.write(record)
            file.flush()
            os.fsync(file.fileno())
        facts = FileFacts(len(record), 0, hashlib.sha256(record).hexdigest(), suffix=name)
        self._records.append(facts)
        reference = {"path": f"{self._unit_id}{name}", "bytes": facts.nbytes, "sha256": facts.sha256}
        return entry[:-1] + _REFERENCE + encode_text(reference) + b"}"

    def close(self) -> list[FileFacts]:
        """Finish the files; the records come first, so that no entry names a record that is not there."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return [*self._records, FileFacts(self._nbytes, self._count, self._hash.hexdigest(), suffix=".jsonl")]

    def abort(self) -> None:
        """Remove the files."""
        with contextlib.suppress(OSError):  # what cannot be flushed any more is removed anyway
            self._file.close()
        for suffix in (".jsonl", *self._begun):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.path}{suffix}")
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(self.path)


# -- retries ----------------------------------------------------------------------------------------------------------


QUARANTINE = "quarantine"
RETRIED = f"{QUARANTINE}/retried"
"""Folder for quarantine files that a retry has replaced."""


def retries_due(latest: dict[str, int], to_retry: Collection[str]) -> dict[str, int]:
    """Return the units of `to_retry` to process next, with the number of their retry.

    An interrupted round is finished before the next one begins: so a retry that was killed and started again does the
    same work and retries nothing twice.
    """
    last = max(latest.values(), default=0)
    behind = [unit for unit in to_retry if latest.get(unit, 0) < last]
    return dict.fromkeys(behind, last) if behind else dict.fromkeys(to_retry, last + 1)


def quarantine_file(unit_id: str) -> str:
    """Return the name of a unit's quarantine file in the run folder."""
    return f"{QUARANTINE}/{unit_id}.jsonl"


def current_files(store: Store, latest: dict[str, int]) -> dict[str, str]:
    """Return the id of the current quarantine file of each unit that has one, in the order of names.

    Files of units that are not committed are ignored: these units will be processed again.
    """
    there = {name.removesuffix(".jsonl") for name in store.names(QUARANTINE) if name.endswith(".jsonl")}
    current = {retry_id(unit, number): unit for unit, number in latest.items()}
    return {current[name]: name for name in sorted(there & current.keys())}


def archive_replaced(store: Store, latest: dict[str, int]) -> None:
    """Move the quarantine files and large records aside that a committed retry has replaced."""
    for name in store.names(QUARANTINE):
        unit, number = split_retry(name.removesuffix(".jsonl").removesuffix("/"))
        if name.endswith((".jsonl", "/")) and number < latest.get(unit, 0):
            store.move(f"{QUARANTINE}/{name}".rstrip("/"), f"{RETRIED}/{name}".rstrip("/"))


# -- reading; run folders are untrusted, so only JSON of the known form is accepted -----------------------------------


RECORD_ID = re.compile(r"([0-9a-f]{12}):(r?)(\d{1,18})((?:/\d{1,9})*)")
"""Pattern of record ids: `file12:offset` or `file12:rN`, with `/k` for each generation of children."""


class RecordFile(msgspec.Struct, frozen=True):
    """A file that holds one large record."""

    path: str
    """Name relative to the folder of the quarantine file."""
    bytes: int
    """Size of the file."""
    sha256: str
    """SHA-256 of the file."""


class QuarantineEntry(msgspec.Struct, frozen=True, dict=True):
    """One line of a quarantine file."""

    id: str | None = None
    """Id of the record; the id of the task if a whole task without records was quarantined."""
    source: str | None = None
    """Input file of the record."""
    position: int | None = None
    """Byte offset or row in that file."""
    stage: str = ""
    """Stage that failed."""
    error: str = ""
    """Kind of failure."""
    message: str = ""
    """Error message."""
    traceback: str = ""
    """Traceback through the code of the stage."""
    attempts: int = 1
    """Number of attempts, including those of earlier runs and retries."""
    record: str | None = None
    """The record as the stage received it."""
    record_base64: str | None = None
    """The same in Base64, if it is not valid UTF-8."""
    record_file: RecordFile | None = None
    """The file that holds it, if it is large."""
    records: int | None = 1
    """Number of records that the entry covers, in consecutive rows from `position` on; `None` if unknown."""

    @property
    def count(self) -> int:
        """Return the number of records for the counts; an unknown number counts as one."""
        return 1 if self.records is None else self.records

    def holds(self, record_id: str) -> bool:
        """Return True if the entry covers a record, by its id or within a range of rows."""
        if self.id == record_id or self.id is None or self.count == 1:
            return self.id == record_id
        first, wanted = RECORD_ID.fullmatch(self.id), RECORD_ID.fullmatch(record_id)
        if first is None or wanted is None or first.groups()[:2] != wanted.groups()[:2]:
            return False
        return 0 <= int(wanted[3]) - int(first[3]) < self.count

    @property
    def is_child(self) -> bool:
        """Return True if a stage made the record from another one."""
        return "/" in (self.id or "")

    @property
    def can_be_retried(self) -> bool:
        """Return True if the entry can be retried.

        A record of the input is read again; a child is restored from the entry. A loss of unknown size cannot be
        retried: only a run from the start can read the rest of a damaged file.
        """
        if self.id is None or self.records is None or not RECORD_ID.fullmatch(self.id):
            return False
        return not self.is_child or _is_object(self.line)

    @property
    def line(self) -> bytes | None:
        """Return the stored record; `None` if there is none, or if its file is missing."""
        if self.record_file is not None:
            store, folder = self.__dict__.get("_read_from", (None, ""))
            path = f"{folder}/{self.record_file.path}"
            return None if store is None or escapes_folder(path) else store.read(path)
        if self.record_base64 is not None:
            try:
                return base64.b64decode(self.record_base64, validate=True)
            except (binascii.Error, ValueError):
                return None
        return None if self.record is None else self.record.encode("utf-8", "surrogatepass")


_DECODER = msgspec.json.Decoder(QuarantineEntry)


def _is_object(line: bytes | None) -> bool:
    """Return True if a stored record is complete; one that was too large for memory is truncated."""
    try:
        return line is not None and isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def read_entries(store: Store, unit_id: str) -> Iterator[QuarantineEntry]:
    """Yield the entries of the quarantine file of a unit, in order."""
    for _, entry in read_lines(store, quarantine_file(unit_id)):
        yield entry


def read_lines(store: Store, name: str) -> Iterator[tuple[bytes, QuarantineEntry]]:
    """Yield the lines of a quarantine file with their decoded entries."""
    for number, line in enumerate((store.read(name) or b"").split(b"\n"), start=1):
        if not line:
            continue
        try:
            entry = _DECODER.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(
                f"{join(store.root, name)}, line {number}: not an entry of a quarantine file ({error}); "
                "it was changed after the run wrote it"
            ) from None
        entry.__dict__["_read_from"] = (store, name.rpartition("/")[0])
        yield line, entry
