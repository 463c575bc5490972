# SPDX-License-Identifier: Apache-2.0
"""Score texts by the byte sequences that they contain: a naive Bayes model over the features that an automaton finds.

The automaton makes one move per byte. A state that ends a feature counts it, and each distinct feature of a text adds
its weights for all classes, times the logarithm of one plus its count. Sums have a fixed order and the precision of
32-bit floats, so they are equal on every machine.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from thresher.kernels.build.intrinsics import BYTES, INT64, get, integer, kernel, put
from thresher.kernels.build.signatures import types
from thresher.kernels.counts.text_counts import Rows, Texts

WEIGHT_UNIT = 2.0**-11
"""Value of a weight of 1."""
_KNOWN_LOGARITHMS = 4096
_LOG_2 = np.float32(math.log(2))


class ByteNgrams(NamedTuple):
    """A model. No index in it may lead out of its arrays, which have one dimension: the kernel does not check."""

    moves: npt.NDArray[np.uint32]
    """The next state for each byte, in rows of 256; states may share a row."""
    states: npt.NDArray[np.int32]
    """For each state the start of its row, and the feature that ends in it, or -1. The first one is the initial one."""
    weights: npt.NDArray[np.int16]
    """For each feature the weights of all classes, in units of `WEIGHT_UNIT`."""
    prior: npt.NDArray[np.float32]
    """For each class the score of a text without features."""


class Scored(NamedTuple):
    """Scores of some texts."""

    scores: npt.NDArray[np.float32]
    """A row of scores for each text: the logarithm of the probability of each class, up to a constant."""
    features: Rows
    """The number of distinct features in each text."""


_FLOATS = types.Array(types.float32, 1, "C", readonly=True)
_MODEL = (
    types.Array(types.uint32, 1, "C", readonly=True),
    types.Array(types.int32, 1, "C", readonly=True),
    types.Array(types.int16, 1, "C", readonly=True),
    _FLOATS,
)


@functools.cache
def _logarithms() -> npt.NDArray[np.float32]:
    """Return the weights of counts below `_KNOWN_LOGARITHMS`: the logarithm of one plus the count."""
    return np.array([math.log1p(count) for count in range(_KNOWN_LOGARITHMS)], dtype=np.float32)


def score(texts: Texts, rows: Rows, model: ByteNgrams) -> Scored:
    """Return the scores of some of the texts by each class."""
    classes = len(model.prior)
    found = Scored(np.empty((len(rows), classes), dtype=np.float32), np.empty(len(rows), dtype=np.int64))
    counts, touched = np.zeros((2, len(model.weights) // classes), dtype=np.int32)
    _score(*texts, rows, *model, _logarithms(), counts, touched, found.scores.reshape(-1), found.features)
    return found


@kernel(
    types.void(
        BYTES,
        INT64,
        INT64,
        INT64,
        *_MODEL,
        _FLOATS,
        types.int32[::1],
        types.int32[::1],
        types.float32[::1],
        types.int64[::1],
    )
)
def _score(
    data: Any,
    starts: Any,
    ends: Any,
    rows: Any,
    moves: Any,
    states: Any,
    weights: Any,
    prior: Any,
    logarithms: Any,
    counts: Any,
    touched: Any,
    scores: Any,
    features: Any,
) -> None:
    """Fill a row of `scores` and an item of `features` for each of `rows`. `counts` is zero before and after."""
    classes = len(prior)
    for n in range(len(rows)):
        row = get(rows, n)
        state = used = 0
        for position in range(get(starts, row), get(ends, row)):
            state = integer(get(moves, integer(get(states, 2 * state)) + integer(get(data, position))))
            feature = integer(get(states, 2 * state + 1))
            if feature >= 0:
                if get(counts, feature) == 0:
                    put(touched, used, feature)
                    used += 1
                put(counts, feature, get(counts, feature) + 1)
        first = n * classes
        for one in range(classes):
            put(scores, first + one, get(prior, one))
        for n_feature in range(used):
            feature = integer(get(touched, n_feature))
            count = integer(get(counts, feature))
            put(counts, feature, 0)
            factor = np.float32(0)
            while count >= len(logarithms):
                count >>= 1
                factor += _LOG_2
            factor = (factor + get(logarithms, count)) * np.float32(WEIGHT_UNIT)
            at = feature * classes
            for one in range(classes):
                put(scores, first + one, get(scores, first + one) + factor * np.float32(get(weights, at + one)))
        put(features, n, used)
