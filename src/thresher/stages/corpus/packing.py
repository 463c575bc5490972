# SPDX-License-Identifier: Apache-2.0
"""Which tokens of which documents make a sequence: pure functions of the lengths of documents."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pieces:
    """Stretches of documents, in the order in which they fill sequences; arrays with one entry for each piece."""

    document: Numbers
    """The document it is of."""
    start: Numbers
    """Where it begins in the document."""
    length: Numbers
    """Its number of tokens, at least 1."""
    sequence: Numbers
    """The sequence it belongs to; these ascend from 0."""

    def __len__(self) -> int:
        return len(self.document)


def concatenated(lengths: Numbers, skip: int, size: int, *, whole: bool) -> Pieces:
    """Cut the documents, one after the other, into sequences of `size` tokens; documents have at least one token.

    `skip` tokens of the first document are gone already. `whole`: what is left at the end is a shorter sequence; else
    it is left out.
    """
    offsets = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    offsets[1:] -= skip
    total = int(offsets[-1])
    end = total if whole else total - total % size
    borders = np.union1d(offsets, np.arange(0, end + 1, size))
    borders = borders[borders <= end]
    if end and borders[-1] != end:  # the last document is cut there
        borders = np.append(borders, end)
    starts = borders[:-1]
    document = np.searchsorted(offsets, starts, side="right") - 1
    start = starts - offsets[document] + np.where(document == 0, skip, 0)
    return Pieces(document, start, np.diff(borders), starts // size)


def best_fit(lengths: Numbers, size: int) -> Pieces:
    """Fill sequences of at most `size` tokens, so that documents are cut only where they are longer than that.

    A longer document is cut into pieces of `size` and a rest. The longest piece comes first, and each goes to the
    fullest sequence that has room (best-fit decreasing). Sequences are numbered by their first pieces, and the pieces
    of a sequence keep their order.
    """
    counts = -(-lengths // size)
    document = np.repeat(np.arange(len(lengths)), counts)
    number = np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
    start = number * size
    length = np.minimum(lengths[document] - start, size)
    sequence = _fitted(length, size)
    _, first = np.unique(sequence, return_index=True)
    renumbered = np.empty(len(first), dtype=np.int64)
    renumbered[np.argsort(first, kind="stable")] = np.arange(len(first))
    sequence = renumbered[sequence]
    order = np.argsort(sequence, kind="stable")
    return Pieces(document[order], start[order], length[order], sequence[order])


def _fitted(lengths: Numbers, size: int) -> Numbers:
    """Return the sequence of each piece, numbered as they were opened."""
    sequence = np.zeros(len(lengths), dtype=np.int64)
    spaces: list[int] = []  # the sizes of all gaps, ascending
    gaps: dict[int, list[int]] = {}  # sequences by the size of their gap
    opened = 0
    for piece in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[piece])
        place = bisect.bisect_left(spaces, length)
        if place == len(spaces):
            chosen, space = opened, size
            opened += 1
        else:
            space = spaces[place]
            chosen = gaps[space].pop()
            if not gaps[space]:
                del gaps[space], spaces[place]
        sequence[piece] = chosen
        left = space - length
        if left in gaps:
            gaps[left].append(chosen)
        elif left:
            bisect.insort(spaces, left)
            gaps[left] = [chosen]
    return sequence
