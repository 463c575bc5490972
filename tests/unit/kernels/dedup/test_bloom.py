# SPDX-License-Identifier: Apache-2.0
"""The filter knows everything that was added, and wrongly claims to know no more than it promises."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.kernels.dedup.bloom import WORDS, BloomFilter, blocks_for


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)), max_size=50), st.integers(1, 60))
def test_what_was_added_is_known_however_it_is_divided(pairs: list[tuple[int, int]], part: int) -> None:
    hashes = np.array(pairs * 2, dtype=np.uint64).reshape(-1, 2)
    whole = BloomFilter(100, 1e-6).add(hashes)
    assert whole[len(pairs) :].all()
    filter_ = BloomFilter(100, 1e-6)
    parts = [filter_.add(hashes[start : start + part]) for start in range(0, len(hashes), part)]
    assert np.concatenate([np.zeros(0, dtype=np.bool_), *parts]).tolist() == whole.tolist()


@pytest.mark.parametrize("rate", [0.5, 0.1, 0.01, 1e-3, 1e-4])
def test_a_full_filter_keeps_to_its_rate(rate: float) -> None:
    random = np.random.default_rng(1)
    filter_ = BloomFilter(20_000, rate)
    filter_.add(random.integers(0, 2**64, (20_000, 2), dtype=np.uint64))
    tested = random.integers(0, 2**64, (5_000, 2), dtype=np.uint64)
    wrong = sum(int(filter_.add(tested[n : n + 100]).sum()) for n in range(0, 500, 100))
    assert wrong <= 500 * rate * 1.2 + 10, "the test itself adds 500 hashes to the filter"


def test_the_size_of_a_filter() -> None:
    bits, blocks = blocks_for(1_000_000, 1e-6)
    assert 8 <= bits <= 16
    assert 28.8 < blocks * WORDS * 64 / 1_000_000 < 45, "bits per hash: at least those of an ideal filter"
    assert blocks_for(0, 0.5)[1] == 1
