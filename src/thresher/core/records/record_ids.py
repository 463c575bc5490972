# SPDX-License-Identifier: Apache-2.0
"""Ids of records, as numbers that take little room beside the records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


class RecordIds:
    """Ids of the records of a batch, kept as numbers; texts are made on demand."""

    __slots__ = ("_which", "positions", "sources", "suffixes")

    def __init__(
        self,
        sources: tuple[tuple[str, str], ...],
        positions: Rows | Sequence[int],
        which: Rows | None = None,
        suffixes: tuple[str, ...] | None = None,
    ) -> None:
        """`sources` are pairs of id prefix (`file12:` or `file12:r`) and path; `which` picks one per record."""
        self.sources = sources
        self.positions: Rows = np.asarray(positions, dtype=np.int64)
        self._which = which
        self.suffixes = suffixes

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def which(self) -> Rows:
        """Return the index of each record's source."""
        return np.zeros(len(self), dtype=np.int64) if self._which is None else self._which

    def at(self, row: int) -> str:
        """Return the id of one record."""
        suffix = self.suffixes[row] if self.suffixes is not None else ""
        return f"{self.source_at(row)[0]}{int(self.positions[row])}{suffix}"

    def source_at(self, row: int) -> tuple[str, str]:
        """Return id prefix and path of the file that a record came from."""
        return self.sources[int(self._which[row]) if self._which is not None else 0]

    def where(self, row: int) -> tuple[str, str, int]:
        """Return the id of a record, the file that it came from and its position there."""
        return self.at(row), self.source_at(row)[1], int(self.positions[row])

    def strings(self) -> list[str]:
        """Return all ids as texts."""
        if self._which is None and self.suffixes is None:
            prefix = self.sources[0][0] if self.sources else ""
            return [f"{prefix}{position}" for position in self.positions.tolist()]
        return [self.at(row) for row in range(len(self))]

    def take(self, rows: Rows) -> RecordIds:
        """Return the ids of some records."""
        return RecordIds(
            self.sources,
            self.positions[rows],
            None if self._which is None else self._which[rows],
            None if self.suffixes is None else tuple(self.suffixes[row] for row in rows.tolist()),
        )

    def children(self, row: int, count: int, first: int = 0) -> RecordIds:
        """Return ids of `count` new records made from one: its id with `/0`, `/1`, … appended, from `first` on."""
        suffix = self.suffixes[row] if self.suffixes is not None else ""
        return RecordIds(
            (self.source_at(row),),
            np.full(count, self.positions[row], dtype=np.int64),
            None,
            tuple(f"{suffix}/{k}" for k in range(first, first + count)),
        )

    def rows_of(self, others: RecordIds) -> Rows | None:
        """Return the row of each of `others` among these ids; `None` if one of them is missing."""
        if others is self:
            return np.arange(len(self), dtype=np.int64)
        mine, theirs = self._keys(others.sources), others._keys(self.sources)
        if mine is None or theirs is None:
            places = {name: row for row, name in enumerate(self.strings())}
            found = [places.get(name, -1) for name in others.strings()]
            return None if -1 in found else np.array(found, dtype=np.int64)
        order = None if bool((mine[1:] > mine[:-1]).all()) else np.argsort(mine, kind="stable")
        ordered = mine if order is None else mine[order]
        rows = np.searchsorted(ordered, theirs)
        if len(theirs) and (not len(mine) or bool((ordered[np.minimum(rows, len(mine) - 1)] != theirs).any())):
            return None
        return rows if order is None else order[rows]

    def _keys(self, sources: tuple[tuple[str, str], ...]) -> Rows | None:
        """Return one number per id, comparable among ids of the same `sources`; `None` if that is impossible."""
        if self.sources != sources or self.suffixes is not None or len(sources) >= 2**14:
            return None
        if self._which is None:
            return self.positions
        return self.positions + (self._which << 48)

    @staticmethod
    def concat(parts: Sequence[RecordIds]) -> RecordIds:
        """Return the ids of several batches, one after the other."""
        sources: dict[tuple[str, str], int] = {}
        which = []
        for part in parts:
            places = np.array([sources.setdefault(s, len(sources)) for s in part.sources], dtype=np.int64)
            index = part._which if part._which is not None else np.zeros(len(part), dtype=np.int64)
            which.append(places[index] if len(places) else index)
        suffixes: tuple[str, ...] | None = None
        if any(part.suffixes is not None for part in parts):
            suffixes = tuple(s for part in parts for s in (part.suffixes or ("",) * len(part)))
        positions = np.concatenate([p.positions for p in parts]) if parts else np.zeros(0, dtype=np.int64)
        one = len(sources) <= 1
        return RecordIds(tuple(sources), positions, None if one or not which else np.concatenate(which), suffixes)

    def __reduce__(self) -> tuple[Any, ...]:
        return RecordIds, (self.sources, self.positions, self._which, self.suffixes)
