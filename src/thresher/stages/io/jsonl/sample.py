# SPDX-License-Identifier: Apache-2.0
"""Fields and types of JSON lines, from a sample: some records of the first file, of the last and of a few between.

The sample depends on the files and `blocksize` alone, so that every process gets the same result.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.source import ReadContext
from thresher.core.unit import Unit
from thresher.errors import ThresherError
from thresher.stages.io.jsonl.reader import list_jsonl_units
from thresher.stages.io.listing import Splitting
from thresher.stages.io.parquet.pieces import piece_table
from thresher.stages.io.parquet.run_schema import SourceColumns

if TYPE_CHECKING:
    from thresher.core.documents.batch import DocumentBatch
    from thresher.core.files.filesystem import FileInfo
    from thresher.stages.io.jsonl.reader import JsonlReader

SAMPLED = 8
"""Largest number of files, and of units, in the sample."""
_CONTEXT = ReadContext(chunk_bytes=64 * 1024, max_record_bytes=2**20)
"""Bytes to read per unit; a larger record is skipped."""


def sample_columns(reader: JsonlReader) -> SourceColumns | None:
    """Return the fields of the sampled records; `None` if the input is a single unit, which needs no sample."""
    units = sampled_units(reader, list(reader.files()))
    if len(units) < 2:
        return None
    found = SourceColumns(reader.fields, is_sample=True)
    note_records(reader, units, found)
    return found


def sampled_units(reader: JsonlReader, files: Sequence[FileInfo]) -> Sequence[Unit]:
    """Return the units of the sample."""
    splitting = Splitting(reader.blocksize, storage_options=reader.storage_options)
    return evenly_spaced([unit for file in evenly_spaced(files) for unit in list_jsonl_units(iter([file]), splitting)])


def note_records(reader: JsonlReader, units: Sequence[Unit], found: SourceColumns) -> None:
    """Add the fields of the first records of units to the columns that were found."""
    for unit in units:
        batch = _first_records(reader, unit)
        if batch is not None and len(batch):
            found.note(piece_table(batch, None).schema)


def evenly_spaced(items: Sequence[Any]) -> Sequence[Any]:
    """Return the first item, the last, and some between at even distances."""
    if len(items) <= SAMPLED:
        return items
    return [items[index * (len(items) - 1) // (SAMPLED - 1)] for index in range(SAMPLED)]


def _first_records(reader: JsonlReader, unit: Unit) -> DocumentBatch | None:
    """Return some records of a unit; an unreadable file is reported when its own unit is read."""
    items: Any = reader.read(unit, _CONTEXT)
    try:
        with contextlib.closing(items):
            item = next(items, None)
            return None if item is None or item.task is None else reader.parse(item.task)
    except (OSError, ThresherError):
        return None
