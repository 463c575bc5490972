# SPDX-License-Identifier: Apache-2.0
"""Readers in two stages: one that groups files, and one that reads each group.

`JsonlReader` and `ParquetReader` do both, cut large files, and give ids that do not depend on the grouping: prefer
them. The two stages are for pipelines that put stages of their own between listing and reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import msgspec

from thresher.core.arguments.sizes import parse_size
from thresher.core.documents.batch import DocumentBatch
from thresher.core.records.record_task import RecordTask
from thresher.core.source import ReadContext, SourceItem
from thresher.core.stage import ProcessingStage, SourceStage
from thresher.core.task import FileGroupTask
from thresher.core.unit import Unit
from thresher.errors import UsageError
from thresher.stages.io.file_reader import FileReader
from thresher.stages.io.file_units import file_units

ENDINGS = (".jsonl", ".json", ".ndjson", ".parquet")
_PACKED = (".gz", ".gzip", ".zst", ".bz2", ".xz")


class FileGroup(FileGroupTask, RecordTask):
    """A list of files whose records are the files themselves, so that one of them can fail alone."""

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the path of each file."""
        return [{"path": path} for path in self.data]

    @classmethod
    def from_dicts(cls, records: Sequence[dict[str, Any]]) -> Self:
        """Return the group of the files with these paths."""
        return cls(data=[record["path"] for record in records])


@dataclass
class FilePartitioningStage(SourceStage[FileGroup]):
    """List files in groups; each group is a task, and the unit that is committed and resumed.

    Files are never cut and keep their order: a group holds files that follow one another.
    """

    file_paths: str | list[str]
    files_per_partition: int | None = None
    blocksize: int | str | None = None
    file_extensions: list[str] | None = None
    storage_options: dict[str, Any] | None = None
    limit: int | None = None
    name: str = "FilePartitioningStage"

    def __post_init__(self) -> None:
        if self.files_per_partition is not None and self.blocksize is not None:
            raise UsageError("FilePartitioningStage: give files_per_partition or blocksize, not both")

    def list_units(self) -> Iterator[Unit]:
        """Yield the groups in input order, the first `limit` of them."""
        endings = [*(self.file_extensions or ENDINGS)]
        packed = [ending + more for ending in endings for more in _PACKED]
        weigh = (lambda piece: 1) if self.files_per_partition is not None else None
        most = self.files_per_partition or (0 if self.blocksize is None else parse_size(self.blocksize, "blocksize"))
        units = file_units(
            self.file_paths, [*endings, *packed], weigh=weigh, pack_weight=most, storage_options=self.storage_options
        )
        for number, unit in enumerate(units):
            if self.limit is not None and number >= self.limit:
                return
            yield msgspec.structs.replace(unit, weight=0)

    def read(self, unit: Unit, context: ReadContext) -> Iterator[SourceItem]:
        """Yield the group as one task."""
        import numpy as np

        from thresher.core.records.record_ids import RecordIds

        count = len(unit.pieces)
        group = FileGroup(data=[piece.path for piece in unit.pieces])
        sources = tuple(piece.source for piece in unit.pieces)
        zeros = np.zeros(count, dtype=np.int64)
        yield SourceItem(unit, group.with_ids(RecordIds(sources, zeros, np.arange(count, dtype=np.int64))))

    def input_roots(self) -> list[str]:
        """Return the given paths, except globs."""
        paths = [self.file_paths] if isinstance(self.file_paths, str) else list(self.file_paths)
        return [path for path in paths if not any(character in path for character in "*?[")]


class FileGroupReader(ProcessingStage[FileGroupTask, DocumentBatch]):
    """Read the files of a group as batches of documents."""

    fans_out = True
    reader: ClassVar[str] = ""
    """Name of the reader that does the work."""

    def __init__(
        self,
        fields: list[str] | None = None,
        read_kwargs: dict[str, Any] | None = None,
        allow_empty: bool = True,
        name: str | None = None,
    ) -> None:
        """`fields`: keep only these. `read_kwargs`: `storage_options`, and what has no effect here."""
        from thresher.compat.nemo.arguments import translated
        from thresher.core.registry import lookup

        del allow_empty
        reader = self.reader or "JsonlReader"
        own, _ = translated(reader, lookup(reader).load(), {"read_kwargs": read_kwargs})
        self.fields = fields
        self.storage_options: dict[str, Any] | None = own.get("storage_options")
        if name:
            self.name = name

    def process(self, task: FileGroupTask) -> Iterator[DocumentBatch]:
        """Yield the documents of all files of the group, in order."""
        from thresher.core.registry import lookup

        reader: FileReader = lookup(self.reader).load()(
            task.data, fields=self.fields, storage_options=self.storage_options
        )
        for unit in reader.list_units():
            for item in reader.read(unit, ReadContext()):
                if item.task is not None:
                    yield reader.parse(item.task)


class JsonlReaderStage(FileGroupReader):
    """Read the JSON lines of a group of files."""

    reader = "JsonlReader"


class ParquetReaderStage(FileGroupReader):
    """Read the rows of a group of Parquet files."""

    reader = "ParquetReader"
