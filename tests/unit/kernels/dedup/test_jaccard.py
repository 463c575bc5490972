# SPDX-License-Identifier: Apache-2.0
"""The similarity of two texts is that of their sets of shingles."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.kernels.texts import as_texts
from thresher.kernels.dedup.jaccard import PairSimilarity
from thresher.kernels.dedup.shingles import CHARACTERS, WORDS

TEXTS = st.text(alphabet="ab é\n漢", max_size=40)


def plain(text: str, kind: int, n: int) -> set[object]:
    parts = text if kind == CHARACTERS else tuple(text.split())
    found = {parts[start : start + n] for start in range(len(parts) - n + 1)}
    return set(found) or ({text} if text else set())


def expected(one: str, other: str, kind: int, n: int) -> float:
    here, there = plain(one, kind, n), plain(other, kind, n)
    return len(here & there) / len(here | there) if here | there else 0.0


@settings(max_examples=150)
@given(TEXTS, TEXTS, st.sampled_from([CHARACTERS, WORDS]), st.integers(1, 4))
def test_it_is_the_jaccard_similarity(one: str, other: str, kind: int, n: int) -> None:
    texts = as_texts([one, other, one + other])
    similarity = PairSimilarity(kind, n)
    for row, text in ((0, one), (1, other), (2, one + other)):
        assert similarity.of(texts, 0, texts, row) == pytest.approx(expected(one, text, kind, n))


def test_texts_that_are_larger_than_the_table_are_compared_in_parts() -> None:
    random = Random(5)
    words = [f"w{random.randrange(20_000)}" for _ in range(12_000)]
    one, other = " ".join(words), " ".join(words[3000:] + words[:500])
    texts = as_texts([one, other])
    for kind, n in ((CHARACTERS, 24), (WORDS, 5)):
        assert PairSimilarity(kind, n, 4096).of(texts, 0, texts, 1) == pytest.approx(expected(one, other, kind, n))
