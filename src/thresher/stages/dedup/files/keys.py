# SPDX-License-Identifier: Apache-2.0
"""Keys of documents: documents that share a key are candidates for duplicates.

Two documents with the same key are joined by an edge to the first document with that key, so a key that a million
documents share costs a million edges, and not a million times as many.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint64]
Edges = npt.NDArray[np.uint64]
"""Pairs of documents, one per row, the later one first."""


class Keys(NamedTuple):
    """Keys and the documents that have them."""

    hashes: Numbers
    """One hash per key."""
    lows: Numbers | None
    """64 further bits of each key, where 64 are not enough."""
    documents: Numbers
    """Number of the document that has the key."""

    @staticmethod
    def concat(parts: list[Keys], wide: bool) -> Keys:
        """Return the keys of all parts; `wide`: they have `lows`."""
        none = np.zeros(0, dtype=np.uint64)
        lows = np.concatenate([none, *(part.lows for part in parts if part.lows is not None)]) if wide else None
        return Keys(
            np.concatenate([none, *(part.hashes for part in parts)]),
            lows,
            np.concatenate([none, *(part.documents for part in parts)]),
        )

    def sorted(self) -> Keys:
        """Return the keys in order."""
        parts = (self.documents, self.hashes) if self.lows is None else (self.documents, self.lows, self.hashes)
        return self.take(np.lexsort(parts))

    def starts(self) -> npt.NDArray[np.int64]:
        """Return where each different key begins, if they are in order."""
        is_first = np.ones(len(self.hashes), dtype=bool)
        is_first[1:] = self.hashes[1:] != self.hashes[:-1]
        if self.lows is not None:
            is_first[1:] |= self.lows[1:] != self.lows[:-1]
        return np.flatnonzero(is_first)

    def take(self, rows: npt.NDArray[np.int64]) -> Keys:
        """Return some of the keys."""
        lows = None if self.lows is None else self.lows[rows]
        return Keys(self.hashes[rows], lows, self.documents[rows])


def grouped(keys: Keys) -> tuple[Keys, Edges]:
    """Return each key once, sorted, with its first document, and edges from all other documents to that one."""
    order = np.argsort(keys.hashes) if keys.lows is None else np.lexsort((keys.lows, keys.hashes))
    keys = keys.take(order)
    if not len(order):
        return keys, np.zeros((0, 2), dtype=np.uint64)
    starts = keys.starts()
    firsts = np.minimum.reduceat(keys.documents, starts)
    first_of_each = np.repeat(firsts, np.diff(np.append(starts, len(order))))
    others = keys.documents != first_of_each
    edges = np.stack((keys.documents[others], first_of_each[others]), axis=1)
    lows = None if keys.lows is None else keys.lows[starts]
    return Keys(keys.hashes[starts], lows, firsts), unique_edges(edges)


def candidates(keys: Keys) -> Edges:
    """Return pairs of documents to verify: each document with the first one that has the same key, and with the one
    before it.

    The second is for documents that are similar to each other and not to the first one.
    """
    keys = keys.sorted()
    starts = keys.starts()
    if not len(starts):
        return np.zeros((0, 2), dtype=np.uint64)
    firsts = np.repeat(keys.documents[starts], np.diff(np.append(starts, len(keys.hashes))))
    before = np.append(keys.documents[:1], keys.documents[:-1])
    before[starts] = keys.documents[starts]
    pairs = [np.stack((keys.documents, other), axis=1) for other in (firsts, before)]
    return unique_edges(np.concatenate([pair[pair[:, 0] != pair[:, 1]] for pair in pairs]))


def unique_edges(edges: Edges) -> Edges:
    """Return edges without repetition, in order."""
    if len(edges) < 2:
        return edges
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    is_new = np.ones(len(edges), dtype=bool)
    is_new[1:] = (edges[1:] != edges[:-1]).any(axis=1)
    return edges[is_new]
