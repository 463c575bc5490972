# SPDX-License-Identifier: Apache-2.0
"""Scores of byte sequences are those of the definition in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernels.texts import as_texts
from thresher.kernels.language.byte_ngrams import _KNOWN_LOGARITHMS, WEIGHT_UNIT, ByteNgrams, score

# The automaton finds `a` (feature 0), `ab` (1) and `\xc3` (2): states are nothing, a, ab, \xc3.
STATES = 4
FEATURES = [-1, 0, 1, 2]
WEIGHTS = [[100, -200, 0], [5000, 17, -3], [-1, 30_000, -30_000]]
PRIOR = [-1.5, 0.25, 0.0]


def next_state(state: int, byte: int) -> int:
    if byte == ord("a"):
        return 1
    if byte == 0xC3:
        return 3
    return 2 if state == 1 and byte == ord("b") else 0


def model() -> ByteNgrams:
    moves = np.array([[next_state(state, byte) for byte in range(256)] for state in range(STATES)], dtype=np.uint32)
    states = np.array([[256 * state, FEATURES[state]] for state in range(STATES)], dtype=np.int32)
    weights, prior = np.array(WEIGHTS, dtype=np.int16), np.array(PRIOR, dtype=np.float32)
    return ByteNgrams(moves.reshape(-1), states.reshape(-1), weights.reshape(-1), prior)


def defined(text: str) -> tuple[list[float], int]:
    state, counts = 0, [0, 0, 0]
    for byte in text.encode("utf-8", "surrogatepass"):
        state = next_state(state, byte)
        if FEATURES[state] >= 0:
            counts[FEATURES[state]] += 1
    scores = [
        prior + sum(math.log1p(count) * WEIGHTS[f][n] * WEIGHT_UNIT for f, count in enumerate(counts))
        for n, prior in enumerate(PRIOR)
    ]
    return scores, sum(count > 0 for count in counts)


@given(st.lists(st.text(st.sampled_from("ab éà\ud800中"), max_size=60), max_size=8))
def test_scores_and_numbers_of_features_are_those_of_the_definition(texts: list[str]) -> None:
    rows = np.arange(len(texts), dtype=np.int64)[::-1].copy()
    found = score(as_texts(texts), rows, model())
    for n, row in enumerate(rows.tolist()):
        expected, features = defined(texts[row])
        assert found.scores[n].tolist() == pytest.approx(expected, abs=1e-3)
        assert found.features[n] == features


@pytest.mark.parametrize("times", [_KNOWN_LOGARITHMS - 1, _KNOWN_LOGARITHMS, 3 * _KNOWN_LOGARITHMS + 1, 100_000])
def test_a_feature_may_occur_more_often_than_logarithms_are_known(times: int) -> None:
    text = "a " * times
    assert score(as_texts([text]), np.zeros(1, dtype=np.int64), model()).scores[0].tolist() == pytest.approx(
        defined(text)[0], rel=1e-3
    )


def test_what_a_text_is_scored_does_not_depend_on_the_texts_beside_it() -> None:
    texts = ["ab" * n + "é" for n in range(40)]
    whole = score(as_texts(texts), np.arange(40), model()).scores
    for n, text in enumerate(texts):
        assert score(as_texts([text]), np.zeros(1, dtype=np.int64), model()).scores[0].tolist() == whole[n].tolist()
