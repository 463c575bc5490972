# SPDX-License-Identifier: Apache-2.0
"""Counts of the texts of a batch. Each is worked out when it is first asked for, in the pass of its group, and only for
the texts that are still wanted.

    counts = Counts(Texts(data, starts, ends))
    counts.fill([("words", 0), ("top_ngram_characters", 3)], rows)
    counts["words", 0][rows]

What several groups need (where words begin and end, which words are the same) is kept in `Work` and shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

Count = tuple[str, int]
"""The name of a count and its parameter: 0 where it has none, n for n-grams, a length for short lines."""
Rows = npt.NDArray[np.int64]
PADDING = 64
"""So many bytes behind the last text may be read: kernels look at blocks."""


class Texts(NamedTuple):
    """Texts as UTF-8 in one buffer, anywhere in it and in any order. A lone surrogate has the three bytes that it would
    have if it were a character."""

    data: npt.NDArray[np.uint8]
    """The bytes; `PADDING` more than the last text needs."""
    starts: Rows
    """Where each text begins."""
    ends: Rows
    """Where it ends."""


class Group(Protocol):
    """Counts that one pass yields."""

    def compute(self, work: Work, wanted: Sequence[Count], rows: Rows) -> dict[Count, npt.NDArray[np.int64]]:
        """The wanted counts of its group (it may give more of them), one value for each of `rows`."""
        ...


class Work:
    """What groups share about the texts of one batch. Groups keep their intermediate results here."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.shared: dict[str, Any] = {}
        """Intermediate results by name, such as the places of words."""


class Counts:
    """Counts of a batch of texts."""

    def __init__(self, texts: Texts) -> None:
        self._work = Work(texts)
        self._expected: list[Count] = []
        self._columns: dict[Count, npt.NDArray[np.int64]] = {}
        self._known: dict[Count, npt.NDArray[np.bool_]] = {}

    @property
    def work(self) -> Work:
        """What groups share, for kernels that do more than count."""
        return self._work

    def __getitem__(self, count: Count) -> npt.NDArray[np.int64]:
        """One value per text; only those that were filled mean something."""
        return self._columns[count]

    def expect(self, counts: Iterable[Count]) -> None:
        """Counts that may be asked for later: the pass that yields some of a group yields its other ones too."""
        self._expected.extend(count for count in counts if count not in self._expected)

    def fill(self, wanted: Iterable[Count], rows: Rows) -> None:
        """Make sure that the wanted counts are known for `rows`."""
        from thresher.kernels.groups import group_of

        missing: dict[str, list[Count]] = {}
        for count in wanted:
            if not self._knows(count, rows):
                missing.setdefault(group_of(count), []).append(count)
        if not missing:
            return
        for count in self._expected:
            counts = missing.get(group_of(count))
            if counts is not None and count not in counts and not self._knows(count, rows):
                counts.append(count)
        for name, counts in missing.items():
            self._fill_group(name, counts, rows)

    def _knows(self, count: Count, rows: Rows) -> bool:
        known = self._known.get(count)
        return known is not None and bool(known[rows].all())

    def _fill_group(self, name: str, counts: list[Count], rows: Rows) -> None:
        from thresher.kernels.groups import load_group

        for count, values in load_group(name).compute(self._work, counts, rows).items():
            column = self._columns.get(count)
            if column is None:
                size = len(self._work.texts.starts)
                column = self._columns[count] = np.zeros(size, dtype=np.int64)
                self._known[count] = np.zeros(size, dtype=np.bool_)
            column[rows] = values
            self._known[count][rows] = True
