# SPDX-License-Identifier: Apache-2.0
"""The score sidecar: one Parquet file per unit with `id` and a column per rule, committed with the unit.

A null means that the score is unknown: the record did not reach the rule, the rule failed, or its result cannot be
represented exactly. The reader computes it again. Records that a stage made (`id/k`) are left out, because the number
of a child depends on the other records of the batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.core.files.filesystem import join
from thresher.core.source import FileFacts
from thresher.core.unit import Unit, file12
from thresher.ledger.stores.store import open_store

if TYPE_CHECKING:
    import pyarrow as pa

    from thresher.core.records.record_ids import RecordIds
    from thresher.core.scores import ScoreColumn, ScoreSource

FOLDER = "scores"
ID = "id"
_METADATA = "thresher"
_WHOLE = 2**63
_MOST_BYTES = 2**30
"""Size limit of a decompressed sidecar, enough for 10 million records; a larger file is not ours."""
_KINDS: dict[type, str] = {
    int: "int",
    float: "float",
    bool: "bool",
    str: "text",
    np.int64: "int",
    np.float64: "float",
    np.bool_: "bool",
}
_POWERS_OF_TEN = 10 ** np.arange(1, 19, dtype=np.int64)
_DTYPES: dict[str, Any] = {"int": np.int64, "float": np.float64, "bool": np.bool_}


class Packed(NamedTuple):
    """Scores of one rule in compact form."""

    kind: str
    """`int`, `float`, `bool`, `text`, or `json` for other values that JSON represents exactly."""
    values: npt.NDArray[Any]
    """One value per record; strings if the kind is `text` or `json`."""
    known: npt.NDArray[np.bool_]
    """Mask of the valid values."""


@dataclass(frozen=True)
class ScoreRows:
    """Scores of some records of a unit."""

    files: tuple[str, ...]
    """Prefixes of ids: `file12:` or `file12:r`."""
    which: npt.NDArray[np.int64]
    """Index of the file of each record."""
    positions: npt.NDArray[np.int64]
    """Position of each record in its file."""
    columns: dict[str, Packed] = field(default_factory=dict)
    """Scores by column."""

    @property
    def nbytes(self) -> int:
        """Return the approximate size in memory."""
        return 16 * len(self.positions) + 9 * len(self.positions) * len(self.columns)


def pack_rows(ids: RecordIds, columns: Mapping[str, Sequence[Any] | npt.NDArray[Any]]) -> ScoreRows | None:
    """Return the scores of the records that were read; `None` if there are none. An array holds a score for every
    record."""
    rows = np.arange(len(ids), dtype=np.int64)
    if ids.suffixes is not None:
        rows = np.array([row for row in range(len(ids)) if not ids.suffixes[row]], dtype=np.int64)
    if not len(rows):
        return None
    packed = {name: _packed(scores, rows) for name, scores in columns.items()}
    return ScoreRows(tuple(prefix for prefix, _ in ids.sources), ids.which[rows], ids.positions[rows], packed)


def _packed(scores: Sequence[Any] | npt.NDArray[Any], rows: npt.NDArray[np.int64]) -> Packed:
    if isinstance(scores, np.ndarray) and scores.dtype in (np.int64, np.float64):
        kind = "int" if scores.dtype == np.int64 else "float"
        return Packed(kind, scores[rows], np.ones(len(rows), dtype=np.bool_))
    return pack([scores[row] for row in rows.tolist()])


def pack(scores: Sequence[Any]) -> Packed:
    """Return scores as an array of their common kind."""
    kinds = {_KINDS.get(kind, "json") for kind in set(map(type, scores)) if kind is not type(None)}
    kind = kinds.pop() if len(kinds) == 1 else "json" if kinds else "int"
    if kind == "int" and any(score is not None and not -_WHOLE <= score < _WHOLE for score in scores):
        kind = "json"
    known = np.array([score is not None for score in scores], dtype=np.bool_)
    if kind in _DTYPES:
        return Packed(kind, np.array([0 if score is None else score for score in scores], dtype=_DTYPES[kind]), known)
    texts = [_text(score, kind) for score in scores]
    return Packed(kind, np.array(texts, dtype=object), np.array([text is not None for text in texts], dtype=np.bool_))


def _text(score: Any, kind: str) -> str | None:
    """Return a score as text that decodes to the same value; `None` if there is no such text."""
    plain = score.item() if type(score) in _KINDS and isinstance(score, np.generic) else score
    if plain is None:
        return None
    try:
        text = plain if kind == "text" else json.dumps(plain)
        text.encode()
    except (TypeError, ValueError, RecursionError):  # also a lone surrogate, which Parquet cannot hold
        return None
    return text if kind == "text" or _same(json.loads(text), plain) else None


def _same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[key], other[key]) for key in one)
    return bool(one == other) or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


# -- writing ----------------------------------------------------------------------------------------------------------


class ScoreSidecar:
    """Collector of the scores of one unit, which writes them at its commit."""

    def __init__(self, columns: Sequence[ScoreColumn], unit: Unit, path: str) -> None:
        """Collect scores for the local file `path`, which is created by `write`."""
        self._columns = columns
        self._unit = unit
        self.path = path
        self._rows: list[ScoreRows] = []

    def add(self, rows: Sequence[ScoreRows]) -> None:
        """Add scores of some records; a record may occur again with other columns."""
        self._rows.extend(rows)

    def write(self) -> FileFacts | None:
        """Write and sync the file; return `None` if there are no scores."""
        if not self._rows:
            return None
        import pyarrow.parquet as pq

        table, as_json = self._table()
        floats = [entry.name for entry in table.schema if str(entry.type) == "double"]
        content = io.BytesIO()
        with pq.ParquetWriter(
            content,
            table.schema,
            compression="zstd",
            use_dictionary=[name for name in table.column_names if name != ID and name not in floats],
            column_encoding={ID: "DELTA_BYTE_ARRAY"},
            use_byte_stream_split=floats,
            write_statistics=False,
            store_schema=False,
        ) as writer:
            writer.write_table(table)
            writer.add_key_value_metadata({_METADATA: json.dumps(self._facts(as_json))})
        with open(self.path, "wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        return FileFacts(content.tell(), table.num_rows, hashlib.sha256(content.getbuffer()).hexdigest())

    def abort(self) -> None:
        """Remove the written file."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def _facts(self, as_json: list[str]) -> dict[str, Any]:
        """Return the metadata that a reader needs besides the table."""
        needs = {column.name: column.depends_on for column in self._columns}
        return {"unit": self._unit.id, "json": as_json, "depends_on": needs}

    def _table(self) -> tuple[pa.Table, list[str]]:
        """Return all scores as a table, and the names of the columns that hold JSON."""
        import pyarrow as pa

        places, positions, prefixes = self._keys()
        order = np.lexsort((positions, places))
        new = np.ones(len(order), dtype=np.bool_)
        new[1:] = (np.diff(places[order]) != 0) | (np.diff(positions[order]) != 0)
        row_of = np.empty(len(order), dtype=np.int64)
        row_of[order] = np.cumsum(new) - 1
        first = order[new]
        arrays: dict[str, pa.Array] = {ID: _ids(places[first], positions[first], prefixes)}
        as_json = []
        for column in self._columns:
            kind, values, known = self._scattered(column.name, row_of, len(first))
            arrays[column.name] = _column(kind, values, known)
            as_json += [column.name] if kind == "json" else []
        return pa.table(arrays), as_json

    def _keys(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], dict[int, str]]:
        """Return the index of the file and the position of each added record, and the id prefix of each file."""
        number_of = {file12(piece.relative): number for number, piece in enumerate(self._unit.pieces)}
        prefixes: dict[int, str] = {}
        places = []
        for rows in self._rows:
            files = [prefix.partition(":")[0] for prefix in rows.files]
            numbers = [number_of.setdefault(name, len(number_of)) for name in files]
            prefixes.update(zip(numbers, rows.files, strict=True))
            places.append(np.array(numbers, dtype=np.int64)[rows.which])
        return np.concatenate(places), np.concatenate([rows.positions for rows in self._rows]), prefixes

    def _scattered(self, name: str, row_of: npt.NDArray[np.int64], count: int) -> Packed:
        """Return one column of all records, gathered from the added parts."""
        starts = [0, *itertools.accumulate(len(rows.positions) for rows in self._rows)]
        parts = [
            (row_of[start:], rows.columns[name])
            for start, rows in zip(starts, self._rows, strict=False)
            if name in rows.columns
        ]
        kinds = {part.kind for _, part in parts if part.known.any()}
        kind = kinds.pop() if len(kinds) == 1 else "json" if kinds else "int"
        values: npt.NDArray[Any] = np.zeros(count, dtype=_DTYPES.get(kind, object))
        if len(parts) == len(self._rows) and all(part.kind == kind and part.known.all() for _, part in parts):
            values[row_of] = np.concatenate([part.values for _, part in parts])
            return Packed(kind, values, np.ones(count, dtype=np.bool_))
        known = np.zeros(count, dtype=np.bool_)
        for rows, part in parts:
            at = rows[: len(part.known)][part.known]
            values[at] = _as_kind(part, kind)
            known[at] = True
        return Packed(kind, values, known)


# Arrow imports pandas before it converts Python values, which takes longer than all scores of a unit. So arrays are
# built from buffers.


def _ids(places: npt.NDArray[np.int64], positions: npt.NDArray[np.int64], prefixes: Mapping[int, str]) -> pa.Array:
    """Return the ids of records in the order of their files: the prefix of the file, and the position."""
    import pyarrow as pa

    ends = np.zeros(len(places) + 1, dtype=np.int32)
    lengths = 1 + np.searchsorted(_POWERS_OF_TEN, positions, side="right")
    borders = [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]
    texts = []
    for start, end in itertools.pairwise(borders):
        prefix = prefixes[int(places[start])]
        texts.append(prefix + prefix.join(map(str, positions[start:end].tolist())))
        lengths[start:end] += len(prefix.encode())
    np.cumsum(lengths, out=ends[1:])
    return pa.StringArray.from_buffers(len(places), pa.py_buffer(ends), pa.py_buffer("".join(texts).encode()))


def _column(kind: str, values: npt.NDArray[Any], known: npt.NDArray[np.bool_]) -> pa.Array:
    import pyarrow as pa

    if values.dtype not in (np.int64, np.float64):
        return pa.array(values, mask=~known, type=pa.string() if kind in ("text", "json") else None)
    mask = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [mask, pa.py_buffer(values)])


def _as_kind(part: Packed, kind: str) -> npt.NDArray[Any]:
    found = part.values[part.known]
    if part.kind == kind or not len(found):
        return found
    return np.array([json.dumps(score) for score in found.tolist()], dtype=object)


# -- reading ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnitScores:
    """The scores of one unit that are valid for a plan."""

    rows: dict[str, int]
    """Row by record id."""
    columns: dict[str, list[Any]]
    """Scores by column; `None` if unknown."""


class KnownScores:
    """Scores of another run, read unit by unit."""

    _HELD = 2
    """Number of units whose scores are held in memory: a worker goes from one unit to the next."""

    def __init__(self, source: ScoreSource, columns: Sequence[ScoreColumn]) -> None:
        self._store = open_store(join(source.run_dir, FOLDER), source.storage_options)
        self._wanted = {column.name: column.depends_on for column in columns if column.depends_on is not None}
        self._units: dict[str, UnitScores] = {}

    def of_unit(self, unit_id: str) -> UnitScores:
        """Return the scores of a unit."""
        found = self._units.get(unit_id)
        if found is None:
            while len(self._units) >= self._HELD:
                del self._units[next(iter(self._units))]
            found = self._units[unit_id] = self._read(unit_id)
        return found

    def _read(self, unit_id: str) -> UnitScores:
        content = self._store.read(f"{unit_id}.parquet")
        if content is None:
            return UnitScores({}, {})
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(pa.BufferReader(content))
            if sum(file.metadata.row_group(n).total_byte_size for n in range(file.num_row_groups)) > _MOST_BYTES:
                return UnitScores({}, {})
            facts = json.loads((file.metadata.metadata or {})[_METADATA.encode()])
            holds = [name for name, needs in self._wanted.items() if facts["depends_on"].get(name) == needs]
            table = file.read(columns=[ID, *holds])
            columns = {name: table.column(name).to_pylist() for name in holds}
            for name in set(holds) & set(facts["json"]):
                columns[name] = [None if text is None else json.loads(text) for text in columns[name]]
            return UnitScores({name: row for row, name in enumerate(table.column(ID).to_pylist())}, columns)
        except (pa.ArrowException, OSError, LookupError, TypeError, AttributeError, ValueError, RecursionError):
            return UnitScores({}, {})  # not our file, or damaged: the scores are computed again
