# SPDX-License-Identifier: Apache-2.0
"""Writes Parquet. Types, row groups and pages depend on the records of a file, never on the batches they came in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.source import FileFacts
from thresher.stages.io.file_writer import FileWriter

if TYPE_CHECKING:
    from thresher.stages.io.parquet_file_writer import ParquetFile

CODECS = {
    "zstd": "zstd",
    "zst": "zstd",
    "gzip": "gzip",
    "gz": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "brotli": "brotli",
    "none": "none",
}
"""Names that a user may give to what Parquet calls them."""


class ParquetWriter(FileWriter):
    """Write Parquet, one file per unit of the input."""

    def __init__(
        self,
        path: str,
        fields: list[str] | None = None,
        compression: str | None = "zstd",
        target_file_size: int | str | None = None,
        mode: str = "error",
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(path, fields, compression, target_file_size, mode, storage_options)

    @classmethod
    def legal_compressions(cls) -> Sequence[str]:
        """What Parquet knows."""
        return tuple(CODECS)

    def extension(self) -> str:
        """`.parquet`, whatever the compression: that is inside."""
        return ".parquet"

    def _codec(self) -> str:
        return CODECS[self.compression or "none"]

    def open_writer(self, local_path: str) -> ParquetFile:
        """A writer for one file."""
        from thresher.stages.io.parquet_file_writer import ParquetFile

        return ParquetFile(local_path, self._codec(), self.fields)

    def open_part_writer(self, local_path: str) -> ParquetFile:
        """A writer for a part: a Parquet file in which types that other parts decide on are left open."""
        from thresher.stages.io.parquet_file_writer import ParquetFile

        return ParquetFile(local_path, self._codec(), self.fields, part=True)

    def join_parts(self, part_paths: list[str], local_path: str) -> FileFacts:
        """The rows of all parts in one file, as if there had been no parts."""
        from thresher.stages.io.parquet_file_writer import join_parquet

        return join_parquet(part_paths, local_path, self._codec())
