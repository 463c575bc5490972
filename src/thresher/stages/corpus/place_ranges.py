# SPDX-License-Identifier: Apache-2.0
"""Ranges of places, made of what the index of sorted files says of their blocks and marks (see `sorted_file`)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Places = npt.NDArray[Any]
"""One place per document: numbers, or byte strings of a fixed length."""


class PlaceRange(NamedTuple):
    """Places from `start` to `end`, `end` excluded; `None`: there is no bound."""

    start: Any
    end: Any

    def contains(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return which places are in the range."""
        inside = np.ones(len(places), dtype=bool)
        if self.start is not None:
            inside &= np.asarray(places >= self.start)
        if self.end is not None:
            inside &= np.asarray(places < self.end)
        return inside

    def at_start(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return which places are the first place of the range."""
        return np.asarray(places == self.start)

    def after_start(self, places: Places) -> npt.NDArray[np.bool_]:
        """Return which places are in the range and not its first place."""
        return self.contains(places) & ~self.at_start(places)

    def blocks(self, blocks: Any) -> Any:
        """Return the blocks that may hold documents of the range, in input order."""
        some = np.ones(len(blocks), dtype=bool) if self.start is None else blocks["last"] >= self.start
        if self.end is not None:
            some &= blocks["first"] < self.end
        found = blocks[some]
        return found[np.lexsort((found["offset"], found["file"]))]


def ranges_of(marks: Any, target_bytes: int) -> list[tuple[PlaceRange, int]]:
    """Return ranges of places with about `target_bytes` each, in order, and the bytes in them.

    Documents of the same place are never in two ranges, so a place with more bytes has a range of its own.
    """
    ordered = marks[np.argsort(marks["place"], kind="stable")]
    places, first = np.unique(ordered["place"], return_index=True)
    if not len(places):
        return []
    sizes = np.add.reduceat(ordered["nbytes"], first)
    starts, total = [0], 0
    for row, size in enumerate(sizes.tolist()):
        if total and total + size > target_bytes:
            starts.append(row)
            total = 0
        total += size
    edges = [None, *(places[row] for row in starts[1:]), None]
    totals = np.add.reduceat(sizes, starts).tolist()
    return [(PlaceRange(*pair), n) for pair, n in zip(itertools.pairwise(edges), totals, strict=True)]


def parts_of(wanted: PlaceRange, blocks: Any, target_bytes: int) -> list[PlaceRange]:
    """Return a range in parts that, if possible, have no more than about `target_bytes` each."""
    ordered = blocks[np.argsort(blocks["first"], kind="stable")]
    filled = np.cumsum(ordered["nbytes"]) // target_bytes
    edges = np.unique(ordered["first"][1:][np.diff(filled) > 0])
    inside = edges[wanted.contains(edges)]
    bounds = [wanted.start, *(edge for edge in inside if edge != wanted.start), wanted.end]
    return [PlaceRange(start, end) for start, end in itertools.pairwise(bounds)]


def kth_place(blocks: Any, k: int, places_of: Callable[[Any], Places]) -> tuple[Any, int] | None:
    """Return the place of the `k`-th document in order, and how many documents of that place are among the first `k`;
    `None` if there are not so many. `places_of` reads the places of a block, which few blocks need."""
    if k > int(blocks["records"].sum()):
        return None
    edges = np.unique(np.concatenate([blocks["first"], blocks["last"]]))
    by_first, by_last = np.argsort(blocks["first"], kind="stable"), np.argsort(blocks["last"], kind="stable")
    surely, maybe = (
        np.concatenate(([0], np.cumsum(blocks["records"][order])))[np.searchsorted(blocks[key][order], edges, "right")]
        for key, order in (("last", by_last), ("first", by_first))
    )
    high = edges[int(np.argmax(surely >= k))]
    certain = edges[maybe < k]
    doubtful = blocks[(blocks["first"] <= high) & (blocks["last"] > certain[-1] if len(certain) else True)]
    before = int(blocks["records"][blocks["last"] <= certain[-1]].sum()) if len(certain) else 0
    single = doubtful["first"] == doubtful["last"]
    read = [places_of(block) for block in doubtful[~single]]
    places = np.concatenate([doubtful["first"][single], *read])
    weights = np.concatenate([doubtful["records"][single], *(np.ones(len(one), dtype=np.int64) for one in read)])
    order = np.argsort(places, kind="stable")
    places, reached = places[order], before + np.cumsum(weights[order])
    place = places[int(np.argmax(reached >= k))]
    smaller = places < place
    return place, k - (int(reached[smaller][-1]) if smaller.any() else before)


def cuts(sizes: npt.NDArray[np.int64], nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents of about `nbytes`; a larger one is alone or with smaller ones before it."""
    numbers = (np.cumsum(sizes) - 1) // nbytes
    start = 0
    for end in (*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(sizes)):
        yield start, end
        start = end
