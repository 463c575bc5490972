# SPDX-License-Identifier: Apache-2.0
"""Writing of one Parquet file: batches are spooled until the types of all columns are known, then row groups are
written."""

from __future__ import annotations

import contextlib
import io
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.records import Rows
from thresher.core.source import FileFacts
from thresher.errors import RunFailedError
from thresher.stages.io.file_writer import LocalFile
from thresher.stages.io.parquet.file_schema import FileSchema, convert_table
from thresher.stages.io.parquet.fit import fit_table
from thresher.stages.io.parquet.pieces import piece_table
from thresher.stages.io.parquet.run_schema import read_schema, schema_text

ROW_GROUP_BYTES = 32 * 2**20
"""A row group ends after the first record that brings its values to this size…"""
ROW_GROUP_ROWS = 128 * 1024
"""…or this number of rows."""
SPOOL_BYTES = 8 * 2**20
"""Spooled tables stay in memory up to this size."""
ZSTD_LEVEL = 3


class ParquetFile:
    """The records of one unit as Parquet."""

    def __init__(self, path: str, codec: str, fields: list[str] | None, schema: pa.Schema | None = None) -> None:
        """`schema`: the schema of the file, if known; otherwise it is derived from the records."""
        self._path = path
        self._codec = codec
        self._fields = None if fields is None else frozenset(fields)
        self._given = schema
        self._part = False
        self._schema = FileSchema()
        self._spool = Spool(f"{path}.spool")
        self._records = 0

    def write(self, batch: DocumentBatch) -> None:
        """Spool the records of a batch."""
        if len(batch):
            table = piece_table(batch, self._fields)
            self._schema.note(table.schema)
            self._spool.add(table)
            self._records += len(batch)

    def proposed_schema(self) -> str:
        """Return the schema that these records propose for the run."""
        return schema_text(self._schema.resolve())

    def settle(self, schema: str) -> None:
        """Set the schema of the run; without one a part is written, in which types that other parts determine are left
        open."""
        self._given = read_schema(schema) if schema else None
        self._part = not schema

    def close(self) -> FileFacts:
        """Write the file."""
        try:
            if self._given is not None:
                return write_in_schema(self._path, self._given, self._codec, self._spool.tables())
            schema = self._schema.resolve(part=self._part)
            tables = (convert_table(table, schema) for table in self._spool.tables())
            facts = write_parquet(self._path, schema, self._codec, tables)
            return msgspec.structs.replace(facts, schema=self.proposed_schema()) if self._part else facts
        finally:
            self._spool.remove()

    def abort(self) -> None:
        """Remove the file and the spool."""
        self._spool.remove()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


def write_in_schema(path: str, schema: pa.Schema, codec: str, tables: Iterable[pa.Table]) -> FileFacts:
    """Write tables as one file in the schema of a run."""
    extras: Counter[str] = Counter()
    facts = write_parquet(path, schema, codec, _tables_in_schema(tables, schema, extras))
    return msgspec.structs.replace(facts, extras=dict(extras))


def _tables_in_schema(tables: Iterable[pa.Table], schema: pa.Schema, extras: Counter[str]) -> Iterator[pa.Table]:
    """Yield tables in the schema of a run; `extras` counts the values that went to its overflow column."""
    for table in tables:
        made, misfits = fit_table(table, schema, extras)
        if misfits:
            name, value = next(iter(next(iter(misfits.values())).items()))
            raise RunFailedError(
                f"column {name!r} has the value {value[:100].decode('utf-8', 'replace')}, which does not fit the "
                f"schema of this run: {', '.join(f'{field.name} {field.type}' for field in schema)}. That was "
                "derived from the source files, and a stage changed the values; give ParquetWriter a schema= that "
                "allows them, or one with a column _extra of type json, and start over"
            )
        yield made


def join_parquet(part_paths: Sequence[str], path: str, codec: str, schema_of_run: pa.Schema | None = None) -> FileFacts:
    """Write one file with the rows of all parts; without the schema of the run it is derived from their records."""
    schema = FileSchema()
    for part in part_paths:
        schema.note(pq.read_schema(part))

    def tables() -> Iterator[pa.Table]:
        for part in part_paths:
            with pq.ParquetFile(part) as opened:
                for group in range(opened.num_row_groups):
                    yield opened.read_row_group(group)

    if schema_of_run is not None:
        return write_in_schema(path, schema_of_run, codec, tables())
    resolved = schema.resolve()
    return write_parquet(path, resolved, codec, (convert_table(table, resolved) for table in tables()))


def write_parquet(path: str, schema: pa.Schema, codec: str, pieces: Iterator[pa.Table]) -> FileFacts:
    """Write pieces, which have the schema, as one file; without rows there is no file."""
    file = LocalFile(path)
    records = 0
    level = ZSTD_LEVEL if codec == "zstd" else None
    try:
        sink = pa.PythonFile(_Sink(file), mode="w")
        with pq.ParquetWriter(sink, schema, compression=codec, compression_level=level, version="2.6") as writer:
            for group in _row_groups(pieces):
                records += group.num_rows
                writer.write_table(group, row_group_size=group.num_rows)
    except BaseException:
        file.abort()
        raise
    return file.close(records)


def _row_groups(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables rebuilt by the size of records alone. Each is one chunk, so that pages do not depend on batches."""
    waiting: list[pa.Table] = []
    rows = nbytes = 0
    for table in tables:
        ends = table_row_bytes(table).cumsum()
        start = 0
        while start < table.num_rows:
            done = int(ends[start - 1]) if start else 0
            by_bytes = int(ends.searchsorted(done + ROW_GROUP_BYTES - nbytes)) + 1
            end = min(by_bytes, start + ROW_GROUP_ROWS - rows)
            if end > table.num_rows:
                waiting.append(table.slice(start))
                rows += table.num_rows - start
                nbytes += int(ends[-1]) - done
                break
            waiting.append(table.slice(start, end - start))
            yield pa.concat_tables(waiting).combine_chunks()
            waiting, rows, nbytes = [], 0, 0
            start = end
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def table_row_bytes(table: pa.Table) -> Rows:
    """Return the bytes of the values in each row."""
    total = np.zeros(table.num_rows, dtype=np.int64)
    for column in table.columns:
        total += row_bytes(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    return total


def row_bytes(array: pa.Array) -> Rows:
    """Return the bytes of each value, without nulls and offsets, which may vary."""
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return row_bytes(array.storage)
    if pa.types.is_struct(kind):
        return sum((row_bytes(child) for child in array.flatten()), np.zeros(len(array), dtype=np.int64))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_bytes(array)
    if pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        return np.full(len(array), max(1, kind.bit_width // 8), dtype=np.int64)
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind) or _is_large_binary(kind):
        lengths = pc.fill_null(pc.binary_length(array), 0)
        return np.asarray(lengths.to_numpy(zero_copy_only=False), dtype=np.int64)
    return np.full(len(array), 16, dtype=np.int64)  # rare types: a constant estimate


def _is_large_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_binary(kind))


def _list_bytes(array: pa.Array) -> Rows:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    inner = np.concatenate([[0], row_bytes(array.flatten()).cumsum()])
    ends = lengths.cumsum()
    return np.asarray(inner[ends] - inner[ends - lengths], dtype=np.int64)


class Spool:
    """Tables with individual schemas: in memory while they are small, then in a file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file: Any = io.BytesIO()
        self._in_memory = True
        self._positions: list[int] = []

    def add(self, table: pa.Table) -> None:
        """Add a table."""
        self._positions.append(self._file.tell())
        with pa.ipc.new_stream(self._file, table.schema) as writer:
            writer.write_table(table)
        if self._in_memory and self._file.tell() > SPOOL_BYTES:
            content = self._file.getbuffer()
            self._in_memory = False
            self._file = open(self._path, "w+b")  # noqa: SIM115  # closed by remove()
            self._file.write(content)

    def tables(self) -> Iterator[pa.Table]:
        """Yield all tables, in order."""
        for position in self._positions:
            self._file.seek(position)
            yield pa.ipc.open_stream(self._file).read_all()

    def remove(self) -> None:
        """Remove all tables."""
        with contextlib.suppress(OSError):  # the file is removed anyway, flushed or not
            self._file.close()
        if not self._in_memory:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)


class _Sink(io.RawIOBase):
    """A `LocalFile` with the file interface that Arrow expects."""

    def __init__(self, file: LocalFile) -> None:
        super().__init__()
        self._local = file

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._local.nbytes

    def write(self, data: Any) -> int:
        self._local.append(data)
        return len(data)
