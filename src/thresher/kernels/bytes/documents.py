# SPDX-License-Identifier: Apache-2.0
"""Arguments of kernels that process the words of one document after the other."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.signatures import types
from thresher.kernels.bytes.intrinsics import BYTES, INT32, INT64
from thresher.kernels.counts.positions import Positions
from thresher.kernels.counts.text_counts import Rows, Work


class Batch(NamedTuple):
    """The texts of a batch and their words."""

    data: npt.NDArray[np.uint8]
    """The bytes of all texts."""
    starts: Rows
    """Where each text begins."""
    ends: Rows
    """Where it ends."""
    rows: Rows
    """The texts that are wanted."""
    first_word: Rows
    """The number of the first word of each text."""
    words: Rows
    """How many words each text has."""
    edges: npt.NDArray[np.int32]
    """Where words begin and end, relative to their texts."""


class Document(NamedTuple):
    """The words of one text."""

    data: npt.NDArray[np.uint8]
    """The bytes of all texts."""
    start: int
    """Where the text begins."""
    length: int
    """How many bytes it has."""
    edges: npt.NDArray[np.int32]
    """Where words begin and end, relative to their texts."""
    first: int
    """The number of its first word among all."""
    words: int
    """How many words it has."""


BATCH = types.NamedTuple((BYTES, INT64, INT64, INT64, INT64, INT64, INT32), Batch)
"""The type of a batch for kernels."""


def batch_of(work: Work, found: Positions, rows: Rows) -> Batch:
    """Return the arguments of a kernel for the texts of `rows`."""
    texts = work.texts
    arrays = (texts.data, texts.starts, texts.ends, rows, found.first_word, found.words, found.edges)
    return Batch(*(_only_read(array) for array in arrays))


def _only_read(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a read-only view: inside a tuple a kernel accepts only read-only arrays."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
