# SPDX-License-Identifier: Apache-2.0
"""Selection of the vectors of a cluster that are kept: in order, each that is not similar to one kept before."""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.stages.dedup.semantic.vectors import Floats, Vectors, similarities

_ROWS = 1024
"""Vectors of a block. The result does not depend on it."""
Rows = npt.NDArray[np.int64]


class VectorFile:
    """Vectors in a local file, of which only a few are in memory."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._file = open(path, "wb+")  # noqa: SIM115  # closed by `remove`
        self.rows = 0
        self._dimensions = 0

    def add(self, vectors: Vectors) -> None:
        """Add vectors at the end."""
        self._dimensions = vectors.shape[1]
        self._file.seek(0, os.SEEK_END)
        self._file.write(vectors.tobytes())
        self.rows += len(vectors)

    def read(self, rows: Rows) -> Vectors:
        """Return some vectors."""
        nbytes = 2 * self._dimensions
        self._file.flush()
        content = b"".join(os.pread(self._file.fileno(), nbytes, row * nbytes) for row in rows.tolist())
        return np.frombuffer(content, dtype=np.int16).reshape(-1, self._dimensions)

    def block(self, start: int, end: int) -> Vectors:
        """Return the vectors from `start` to `end` - 1."""
        nbytes = 2 * self._dimensions
        self._file.flush()
        content = os.pread(self._file.fileno(), (min(end, self.rows) - start) * nbytes, start * nbytes)
        return np.frombuffer(content, dtype=np.int16).reshape(-1, self._dimensions)

    def remove(self) -> None:
        """Remove the file."""
        self._file.close()
        os.unlink(self.path)


class Found(NamedTuple):
    """Outcomes of vectors, in the order in which they were compared."""

    kept: Rows
    """The vector that is kept in place of each: itself, or the most similar one that was kept before."""
    similarity: Floats
    """Cosine of the two."""


def find_kept(vectors: VectorFile, order: Rows, least: float, scratch: str, rows: int = _ROWS) -> Found:
    """Look at vectors in an order, and keep each that is less similar than `least` to all that were kept before.

    `Found.kept` numbers vectors by their places in `order`. `scratch`: path of a file for vectors that are kept.
    """
    kept = VectorFile(scratch)
    kept_at: list[Rows] = []
    of_each = np.arange(len(order), dtype=np.int64)
    similarity = np.ones(len(order))
    try:
        for start in range(0, len(order), rows):
            block = vectors.read(order[start : start + rows])
            places, best = _most_similar(block, kept, rows)
            own, similar = _greedy(block, best, least)
            known = np.concatenate([np.zeros(0, dtype=np.int64), *kept_at])
            end = start + len(block)
            of_each[start:end] = np.where(own >= 0, start + own, known[places] if len(known) else 0)
            similarity[start:end] = similar
            is_kept = of_each[start:end] == np.arange(start, end)
            kept_at.append(start + np.flatnonzero(is_kept))
            kept.add(block[is_kept])
    finally:
        kept.remove()
    return Found(of_each, similarity)


def _most_similar(block: Vectors, kept: VectorFile, rows: int) -> tuple[Rows, Floats]:
    """Return the place of the most similar vector that was kept, the first of equal ones, and its similarity."""
    places, best = np.zeros(len(block), dtype=np.int64), np.full(len(block), -np.inf)
    for start in range(0, kept.rows, rows):
        found = similarities(block, kept.block(start, start + rows))
        place = found.argmax(axis=1)
        value = found[np.arange(len(block)), place]
        better = value > best
        places[better], best[better] = start + place[better], value[better]
    return places, best


def _greedy(block: Vectors, earlier: Floats, least: float) -> tuple[Rows, Floats]:
    """Return which vector of the block is kept in place of each, -1 for one of an earlier block, and the similarity.

    `earlier`: similarity of each vector with the most similar one that was kept before the block.
    """
    found = similarities(block, block)
    found[np.triu_indices(len(block))] = -np.inf
    known = earlier >= least
    found[:, known] = -np.inf  # what is not kept stands for no other
    own, best = np.where(known, -1, np.arange(len(block))), np.where(known, earlier, 1.0)
    for row in np.flatnonzero((found >= least).any(axis=1)).tolist():
        place = int(found[row].argmax())
        if found[row, place] >= least and found[row, place] > earlier[row]:
            own[row], best[row] = place, found[row, place]
            found[:, row] = -np.inf
    return own, best
