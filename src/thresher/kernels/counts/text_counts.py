# SPDX-License-Identifier: Apache-2.0
"""Counts of the texts of a batch. Each count is computed when it is first needed, together with its group, and only for
the texts that still need it.

    counts = Counts(Texts(data, starts, ends))
    counts.of([("words", 0), ("top_ngram_characters", 3)], rows)["words", 0]

Intermediate results of several groups (positions of words, numbers of equal words) are shared in `SharedCounts`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import GROUP_OF

Count = tuple[str, int]
"""The name of a count and its parameter: 0 if it has none, n for n-grams, a length for short lines."""
Rows = npt.NDArray[np.int64]
PADDING = 64
"""Number of bytes after the last text that must be readable: kernels read blocks."""


class Texts(NamedTuple):
    """Texts as UTF-8 in one buffer, anywhere in it and in any order. Lone surrogates are encoded as three bytes
    (`surrogatepass`)."""

    data: npt.NDArray[np.uint8]
    """The bytes, followed by `PADDING` more."""
    starts: Rows
    """Start of each text."""
    ends: Rows
    """End of each text."""


class CountGroup(Protocol):
    """A group of counts that one pass computes."""

    def compute(self, work: SharedCounts, wanted: Sequence[Count], rows: Rows) -> dict[Count, npt.NDArray[np.int64]]:
        """Return the wanted counts (and maybe others of the group), one value for each of `rows`."""
        ...


class SharedCounts:
    """Intermediate results that groups share for the texts of one batch."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts
        self.shared: dict[str, Any] = {}
        """Intermediate results by name, such as the positions of words."""


class Counts:
    """Counts of a batch of texts."""

    def __init__(self, texts: Texts) -> None:
        self._work = SharedCounts(texts)
        self._expected: list[Count] = []
        self._columns: dict[Count, npt.NDArray[np.int64]] = {}
        self._known: dict[Count, npt.NDArray[np.bool_]] = {}

    @property
    def work(self) -> SharedCounts:
        """Return the shared intermediate results, for kernels that do more than count."""
        return self._work

    def __getitem__(self, count: Count) -> npt.NDArray[np.int64]:
        """Return one value per text; only those that were filled are valid."""
        return self._columns[count]

    def expect(self, counts: Iterable[Count]) -> None:
        """Announce counts that may be needed later: a pass that computes some counts of a group then computes these
        too."""
        self._expected.extend(count for count in counts if count not in self._expected)

    def of(self, wanted: Sequence[Count], rows: Rows) -> dict[Count, npt.NDArray[np.int64]]:
        """Return the wanted counts, one value for each of `rows`."""
        self.fill(wanted, rows)
        return {count: self._columns[count][rows] for count in wanted}

    def fill(self, wanted: Iterable[Count], rows: Rows) -> None:
        """Compute the wanted counts for `rows` where they are missing."""
        missing: dict[str, list[Count]] = {}
        for count in wanted:
            if not self._knows(count, rows):
                missing.setdefault(GROUP_OF[count[0]], []).append(count)
        if not missing:
            return
        for count in self._expected:
            counts = missing.get(GROUP_OF[count[0]])
            if counts is not None and count not in counts and not self._knows(count, rows):
                counts.append(count)
        for name, counts in missing.items():
            self._fill_group(name, counts, rows)

    def _knows(self, count: Count, rows: Rows) -> bool:
        known = self._known.get(count)
        return known is not None and bool(known[rows].all())

    def _fill_group(self, name: str, counts: list[Count], rows: Rows) -> None:
        for count, values in load_group(name).compute(self._work, counts, rows).items():
            column = self._columns.get(count)
            if column is None:
                size = len(self._work.texts.starts)
                column = self._columns[count] = np.zeros(size, dtype=np.int64)
                self._known[count] = np.zeros(size, dtype=np.bool_)
            column[rows] = values
            self._known[count][rows] = True


_LOADED: dict[str, CountGroup] = {}


def load_group(name: str) -> CountGroup:
    """Return a group with its kernels loaded, or compiled: that is done when it is first needed."""
    group = _LOADED.get(name)
    if group is None:
        group = _LOADED[name] = cast("CountGroup", importlib.import_module(f"{__package__}.{name}"))
    return group
