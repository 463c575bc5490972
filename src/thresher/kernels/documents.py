# SPDX-License-Identifier: Apache-2.0
"""How kernels that go through the words of one document after the other are told about texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.counts import Rows, Work
from thresher.kernels.intrinsics import BYTES, INT32, INT64
from thresher.kernels.places import Places
from thresher.kernels.signatures import types


class Batch(NamedTuple):
    """The texts to look at."""

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


def tuple_type(kinds: Sequence[Any], named: type) -> Any:
    """The type of a named tuple for kernels."""
    return types.NamedTuple(kinds, named)


BATCH = tuple_type((BYTES, INT64, INT64, INT64, INT64, INT64, INT32), Batch)
"""The type of a batch for kernels."""


def batch_of(work: Work, found: Places, rows: Rows) -> Batch:
    """What a kernel is told about the texts of `rows`."""
    texts = work.texts
    arrays = (texts.data, texts.starts, texts.ends, rows, found.first_word, found.words, found.edges)
    return Batch(*(_only_read(array) for array in arrays))


def _only_read(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same array as one that may not be written: inside a tuple the kernel takes only such."""
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view
