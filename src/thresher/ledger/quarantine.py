# SPDX-License-Identifier: Apache-2.0
"""Quarantined and dropped records: their encoding as JSON lines, reading quarantine files, and the ids of retries.

The quarantined records of unit U are retried as a unit of their own, `U-retry-N`. Records that fail again are in its
quarantine file, which replaces the previous one at the commit: so a record leaves the quarantine at the moment it
enters the output.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thresher.core.files.filesystem import join
from thresher.credentials import redacted
from thresher.errors import UsageError
from thresher.ledger.stores.store import Store

if TYPE_CHECKING:
    from thresher.core.records.record_ids import RecordIds
    from thresher.core.records.record_task import DroppedRows, FailedRows

DROPPED_KEY = "_dropped"
RETRY_KEY = "thresher.retry"
"""Key in the metadata of a retried batch; the value is a dict with `enters_at` and `attempts`."""


def enters_at(metadata: dict[str, Any]) -> int:
    """Return the index of the stage at which a retried batch enters; 0 if it goes through all of them."""
    return int(metadata.get(RETRY_KEY, {}).get("enters_at", 0))


def quarantine_lines(failed: FailedRows, stage_name: str) -> list[bytes]:
    """Return one JSON line per failure: id, source, position, stage, error, message, traceback, attempts, record.

    A line for more than one record, or for an unknown number (`null`), has their number under `records`.
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
        entry.update(_record(bytes(records[row])) if row < len(records) else {"record": None})
        lines.append(encode_text(entry))
    return lines


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


def without_id(line: bytes) -> bytes:
    """Return the start of the line of a dropped record, up to the record id, which is its last value."""
    return line[: line.rindex(b'"id":')]


def _score(scores: Sequence[Any] | None, row: int) -> Any:
    if scores is None or row >= len(scores):
        return None
    score = scores[row]
    return score.item() if hasattr(score, "item") else score


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


# -- retries ----------------------------------------------------------------------------------------------------------


QUARANTINE = "quarantine"
RETRIED = f"{QUARANTINE}/retried"
"""Folder for quarantine files that a retry has replaced."""
_RETRY = re.compile(r"(.+)-retry-([1-9]\d{0,8})")


def retry_id(unit_id: str, number: int) -> str:
    """Return the id of the `number`-th retry of a unit; for 0, that of the unit itself."""
    return f"{unit_id}-retry-{number}" if number else unit_id


def split_retry(unit_id: str) -> tuple[str, int]:
    """Return the unit of an id and the number of the retry; 0 for the unit itself."""
    found = _RETRY.fullmatch(unit_id)
    return (found[1], int(found[2])) if found else (unit_id, 0)


def latest_retries(committed: Iterable[str]) -> dict[str, int]:
    """Return the number of the last committed retry of each committed unit; 0 if there was none."""
    latest: dict[str, int] = {}
    for unit_id in committed:
        unit, number = split_retry(unit_id)
        latest[unit] = max(number, latest.get(unit, 0))
    return latest


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
    """Move the quarantine files aside that a committed retry has replaced."""
    for name in store.names(QUARANTINE):
        unit, number = split_retry(name.removesuffix(".jsonl"))
        if name.endswith(".jsonl") and number < latest.get(unit, 0):
            store.move(f"{QUARANTINE}/{name}", f"{RETRIED}/{name}")


# -- reading; run folders are untrusted, so only JSON of the known form is accepted -----------------------------------


RECORD_ID = re.compile(r"([0-9a-f]{12}):(r?)(\d{1,18})((?:/\d{1,9})*)")
"""Pattern of record ids: `file12:offset` or `file12:rN`, with `/k` for each generation of children."""


class QuarantineEntry(msgspec.Struct, frozen=True):
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
        """Return the stored record."""
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
            yield line, _DECODER.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(
                f"{join(store.root, name)}, line {number}: not an entry of a quarantine file ({error}); "
                "it was changed after the run wrote it"
            ) from None
