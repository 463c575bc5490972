# SPDX-License-Identifier: Apache-2.0
"""Base class of writers whose files are one encoded record after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from thresher.core.records.record_task import RecordTask
from thresher.core.source import FileFacts
from thresher.core.stage import SinkStage
from thresher.core.task import FileGroupTask
from thresher.stages.io.file_writer import LocalFile

Records = TypeVar("Records", bound=RecordTask)


class EncodedWriter(SinkStage[Records, FileGroupTask], Generic[Records]):
    """A writer of one's own format: define `extension` and `encode`, and set `path` in the constructor."""

    def encode(self, batch: Records) -> Iterable[bytes | memoryview]:
        """Return the bytes of the records, in order. They depend on the records and the writer's settings alone."""
        raise TypeError(f"{type(self).__name__} must define encode(batch)")

    def file_start(self) -> bytes:
        """Return what every file begins with."""
        return b""

    def file_end(self) -> bytes:
        """Return what every file ends with, such as the end mark of an archive."""
        return b""

    def open_writer(self, local_path: str) -> EncodedFile:
        """Return what writes one file."""
        return EncodedFile(self, local_path)


class EncodedFile:
    """Writes the records of one unit to one file."""

    def __init__(self, writer: EncodedWriter[Any], path: str) -> None:
        self._writer = writer
        self._file = LocalFile(path)
        self._file.append(writer.file_start())
        self._records = 0

    def write(self, batch: RecordTask) -> None:
        """Add the records of a batch."""
        for data in self._writer.encode(batch):
            self._file.append(data)
        self._records += batch.num_items

    def close(self) -> FileFacts:
        """Finish the file."""
        self._file.append(self._writer.file_end())
        return self._file.close(self._records)

    def abort(self) -> None:
        """Remove the file."""
        self._file.abort()
