# SPDX-License-Identifier: Apache-2.0
"""Writer of Parquet. Types, row groups and pages depend on the records of a file, never on their batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.source import FileFacts
from thresher.errors import UsageError
from thresher.stages.io.file_writer import FileWriter
from thresher.stages.io.parquet.type_names import TYPE_NAMES, is_type_name

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.documents.batch import DocumentBatch
    from thresher.stages.io.parquet.file_writer import ParquetFile

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
"""Parquet codecs by the names that a user may give."""
MISFIT = "does-not-fit-schema"
"""The error of records that do not fit a given schema."""


class ParquetWriter(FileWriter):
    """Write Parquet, one file per unit of the input."""

    def __init__(  # noqa: PLR0913 - the parameters of every writer of files, and the schema
        self,
        path: str,
        fields: list[str] | None = None,
        compression: str | None = "zstd",
        target_file_size: int | str | None = None,
        mode: str = "error",
        storage_options: dict[str, Any] | None = None,
        schema: Any = None,
    ) -> None:
        """Write all files with one schema.

        `path`: the folder or URL for the files.
        `fields`: write only these.
        `compression`: `zstd`, `gzip`, `snappy`, `lz4`, `brotli` or `none`.
        `target_file_size`: join the files of units to about this size, such as "256MB".
        `mode`: what to do with a folder that holds something: `error` refuses it, `overwrite` replaces the data files,
        `append` adds files with names of their own.
        `storage_options`: what fsspec is given for URLs.
        `schema`: the columns and their types, a mapping such as `{"text": "string", "n": "int64"}` or a
        `pyarrow.Schema`. Records that do not fit it are quarantined. Without one it is settled from the first records,
        and from all source files where those are Parquet.
        """
        super().__init__(path, fields, compression, target_file_size, mode, storage_options)
        self.schema = _checked_schema(schema)

    @classmethod
    def legal_compressions(cls) -> Sequence[str]:
        """Return the compressions that Parquet supports."""
        return tuple(CODECS)

    def extension(self) -> str:
        """Return `.parquet`, whatever the compression, which is internal."""
        return ".parquet"

    def _codec(self) -> str:
        return CODECS[self.compression or "none"]

    def open_writer(self, local_path: str) -> ParquetFile:
        """Return a writer for one file."""
        from thresher.stages.io.parquet.file_writer import ParquetFile

        return ParquetFile(local_path, self._codec(), self.fields, self._given())

    def join_parts(self, part_paths: list[str], local_path: str, schema: str = "") -> FileFacts:
        """Write the rows of all parts to one file, as if there had been no parts."""
        from thresher.stages.io.parquet.file_writer import join_parquet
        from thresher.stages.io.parquet.run_schema import read_schema

        return join_parquet(part_paths, local_path, self._codec(), read_schema(schema) if schema else self._given())

    def _given(self) -> pa.Schema | None:
        from thresher.stages.io.parquet.run_schema import given_schema

        return None if self.schema is None else given_schema(self.schema)

    @property
    def settles_schema(self) -> bool:
        """Return True if no schema was given."""
        return self.schema is None

    def settled_schema(self, proposal: str, source: Any) -> str:
        """Return the schema of a run, with room for later values."""
        from thresher.stages.io.parquet.run_schema import derive_schema

        return derive_schema(proposal, source, self.fields)

    def fitting(self, batch: DocumentBatch) -> DocumentBatch:
        """Return the batch without records that do not fit the given schema."""
        schema = self._given()
        if schema is None:
            return super().fitting(batch)
        from thresher.stages.io.parquet.fit import fit_table
        from thresher.stages.io.parquet.pieces import piece_table

        fields = None if self.fields is None else frozenset(self.fields)
        _, misfits = fit_table(piece_table(batch, fields), schema)
        rows = sorted(misfits)
        if rows:
            batch = batch.set_aside(rows, MISFIT, [_misfit_text(misfits[row], schema) for row in rows])
        return super().fitting(batch)


def _misfit_text(misfits: dict[str, bytes], schema: pa.Schema) -> str:
    name, value = next(iter(misfits.items()))
    index = schema.get_field_index(name)
    shown = value[:100].decode("utf-8", "replace")
    if index < 0:
        return (
            f"the record has a column {name!r} that the schema does not name; add it, leave it out with fields=, or "
            "name a column _extra of type json, which takes what fits nowhere else"
        )
    return f"{name!r} is {shown}, and the schema has {schema.field(index)} for it; change the schema or the value"


def _checked_schema(given: Any) -> dict[str, str] | str | None:
    """Return the schema in a form that recipes, fingerprints and other processes can carry."""
    if given is None:
        return None
    if isinstance(given, Mapping) and given:
        for name, kind in given.items():
            if not isinstance(name, str):
                raise UsageError(f"ParquetWriter.schema: {name!r} is not a column name")
            if not isinstance(kind, str) or not is_type_name(kind):
                raise UsageError(
                    f"ParquetWriter.schema: {kind!r}, for column {name!r}, is not a type. "
                    f"There is: {', '.join(sorted(TYPE_NAMES))}, and list<…> of these"
                )
        return dict(given)
    names = getattr(given, "names", None)
    if names and hasattr(given, "serialize"):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"ParquetWriter.schema: two columns are named {twice[0]!r}; names must be different")
        from thresher.stages.io.parquet.run_schema import schema_text

        return schema_text(given)
    raise UsageError(
        f"ParquetWriter.schema: {given!r} is neither a mapping of column names to types, such as "
        '{"text": "string"}, nor a pyarrow.Schema with at least one column'
    )
