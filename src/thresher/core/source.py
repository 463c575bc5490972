# SPDX-License-Identifier: Apache-2.0
"""Values that readers and writers exchange with the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from thresher.core.records.record_task import FailedRows, NoRecords, RecordTask
from thresher.core.task import Task
from thresher.core.unit import Unit

Records = TypeVar("Records", bound=RecordTask, contravariant=True)


@dataclass(frozen=True)
class SourceItem:
    """One thing that a reader gives."""

    unit: Unit
    """The unit it belongs to: the one that is read, or one that was cut from a stream."""
    task: Task | None
    """A chunk or a batch; `None` only to close a unit."""
    closes: bool = False
    """Nothing more comes for this unit."""
    consumed: int = 0
    """Part of the unit that was read so far, in the measure of its weight (by default bytes on disk); for progress."""


@dataclass(frozen=True)
class ReadContext:
    """Limits and callbacks of one call of a reader."""

    chunk_bytes: int = 4 * 2**20
    """About how many bytes to give at a time."""
    max_record_bytes: int = 2**62
    """A larger record is set aside as `record-too-large`."""
    done: frozenset[str] = frozenset()
    """Units that are committed: a stream passes over them without parsing."""
    before_large: Callable[..., None] = lambda nbytes=0: None
    """To be called before a record is held that is larger than two chunks, with the bytes that are about to be held if
    they are known; it may wait until there is room."""


def failed_record(
    source: tuple[str, str], position: int, error: str, message: str, data: bytes = b"", *, attempts: int = 1
) -> NoRecords:
    """Return a task that quarantines one record which a reader cannot read, and holds nothing else.

    `source` and `position` make its id, as in `Piece.source` and `RecordIds`. `error` is a short code such as
    `truncated`, `message` says what is wrong and what to do, `data` is what there is of the record.
    """
    import numpy as np

    from thresher.core.records.record_ids import RecordIds

    place = "row" if source[0].endswith("r") else "byte"
    ids = RecordIds((source,), np.array([position], dtype=np.int64))
    text = f"{source[1]}, {place} {position}: {message}"
    task = NoRecords()
    task.note_failed([FailedRows(None, error, [text], attempts=attempts, lines=[data], ids=ids)])
    return task


class FileFacts(msgspec.Struct, frozen=True):
    """Facts of a finished local file, as its writer reports them."""

    nbytes: int
    """Size of the file."""
    records: int
    """Number of records in the file. A record that is spread over several files is counted in one of them."""
    sha256: str
    """SHA-256 of the file."""
    schema: str = ""
    """For a part with open types, the schema that it proposes for the run."""
    extras: dict[str, int] = {}
    """Values that fit no column and went to the column for such values, by the name of their field."""
    suffix: str = ""
    """Suffix of the file after `local_path`: one of `SinkStage.suffixes()`, or a name below a folder."""


class RecordWriter(Protocol[Records]):
    """Writes the records of one unit to local files. The bytes depend on records, order and settings alone."""

    def write(self, batch: Records) -> None:
        """Add the records of a batch."""

    def close(self) -> FileFacts | Sequence[FileFacts]:
        """Finish the file or files and return their facts. The data is on disk, synced; without records there is no
        file."""

    def abort(self) -> None:
        """Remove what was written, also after `close`."""


class SettledWriter(RecordWriter[Records], Protocol[Records]):
    """A writer of files that have the schema of their run."""

    def proposed_schema(self) -> str:
        """Return the schema that the run would get from the records so far."""

    def settle(self, schema: str) -> None:
        """Set the schema, before `close`; with an empty one a part is written, in which types are left open."""
