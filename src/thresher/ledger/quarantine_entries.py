# SPDX-License-Identifier: Apache-2.0
"""Reading what was set aside. Run folders are untrusted: nothing but JSON of known form is taken from them."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator

import msgspec

from thresher.core.filesystem import join
from thresher.errors import UsageError
from thresher.ledger.retries import quarantine_file
from thresher.ledger.store import Store

RECORD_ID = re.compile(r"([0-9a-f]{12}):(r?)(\d{1,18})((?:/\d{1,9})*)")
"""`file12:offset` or `file12:rN`, and `/k` for each step down to a child."""


class QuarantineEntry(msgspec.Struct, frozen=True):
    """One line of a quarantine file."""

    id: str | None = None
    """Of the record; that of a task where a whole task was set aside that is no batch of records."""
    source: str | None = None
    """The file that it came from."""
    position: int | None = None
    """Its byte or row there."""
    stage: str = ""
    """The stage that could not work on it."""
    error: str = ""
    """The kind of failure."""
    message: str = ""
    """What is wrong."""
    traceback: str = ""
    """Where the code of a stage raised."""
    attempts: int = 1
    """How often it was tried, earlier runs and retries included."""
    record: str | None = None
    """The record as it came to the stage."""
    record_base64: str | None = None
    """The same, where it is not valid UTF-8."""

    @property
    def is_child(self) -> bool:
        """Whether a stage made the record of another one."""
        return "/" in (self.id or "")

    @property
    def can_be_retried(self) -> bool:
        """A record of the input is read again; a child is taken as it was kept."""
        if self.id is None or not RECORD_ID.fullmatch(self.id):
            return False
        return not self.is_child or _is_object(self.line)

    @property
    def line(self) -> bytes | None:
        """The record as it was kept."""
        if self.record_base64 is not None:
            try:
                return base64.b64decode(self.record_base64, validate=True)
            except (binascii.Error, ValueError):
                return None
        return None if self.record is None else self.record.encode("utf-8", "surrogatepass")


_DECODER = msgspec.json.Decoder(QuarantineEntry)


def _is_object(line: bytes | None) -> bool:
    """Whether a kept record is whole: of one that memory did not suffice for there is only the beginning."""
    try:
        return line is not None and isinstance(msgspec.json.decode(line), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


def read_entries(store: Store, unit_id: str) -> Iterator[QuarantineEntry]:
    """The entries of the quarantine file of a unit, in its order."""
    for _, entry in read_lines(store, quarantine_file(unit_id)):
        yield entry


def read_lines(store: Store, name: str) -> Iterator[tuple[bytes, QuarantineEntry]]:
    """The lines of a quarantine file, each as it is and as an entry."""
    for number, line in enumerate((store.read(name) or b"").split(b"\n"), start=1):
        if not line:
            continue
        try:
            yield line, _DECODER.decode(line)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UsageError(
                f"{join(store.root, name)}, line {number}: not an entry of a quarantine file ({error}); "
                "somebody changed it since the run wrote it"
            ) from None
