# SPDX-License-Identifier: Apache-2.0
"""Equal stretches have equal anchors, every stretch has one, and hashes of stretches are equal where bytes are."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thresher.kernels.dedup import substrings as kernel
from thresher.stages.text.columns.text_column import as_texts

contents = st.lists(st.one_of(st.binary(max_size=60), st.text("ab", max_size=60).map(str.encode)), max_size=4)
sizes = st.tuples(st.integers(1, 12), st.integers(0, 12)).map(lambda pair: (sum(pair), pair[0]))


@given(contents, sizes)
def test_stretches_that_occur_twice_have_anchors_that_are_listed_twice(
    documents: list[bytes], size: tuple[int, int]
) -> None:
    length, gram = size
    texts = as_texts(documents)
    anchors = kernel.find_anchors(texts, length, gram)
    keys = [tuple(key) for key in anchors.keys.tolist()]
    times = Counter(keys)
    covered: dict[int, int] = {}
    for number, (row, anchor, first, end) in enumerate(anchors.found.tolist()):
        for start in range(first, end):
            assert covered.setdefault(start, number) == number, "each stretch has one anchor"
            assert texts.starts[row] <= start <= anchor <= start + length - gram <= texts.ends[row] - gram
    stretches = [
        start
        for begin, end in zip(texts.starts.tolist(), texts.ends.tolist(), strict=True)
        for start in range(begin, end - length + 1)
    ]
    assert sorted(covered) == stretches
    occurs = Counter(texts.data[start : start + length].tobytes() for start in stretches)
    for start in stretches:
        if occurs[texts.data[start : start + length].tobytes()] > 1:
            assert times[keys[covered[start]]] > 1


def test_a_periodic_text_has_few_anchors() -> None:
    for text in (b"x" * 20_000, b"abc" * 7_000):
        assert len(kernel.find_anchors(as_texts([text]), 200, 66).found) < 1000


@given(contents, sizes)
def test_anchors_have_equal_keys_where_their_bytes_are_equal(documents: list[bytes], size: tuple[int, int]) -> None:
    length, gram = size
    texts = as_texts(documents)
    anchors = kernel.find_anchors(texts, length, gram)
    content = [texts.data[start : start + gram].tobytes() for start in anchors.found[:, kernel.ANCHOR].tolist()]
    keys = [tuple(key) for key in anchors.keys.tolist()]
    assert len(set(content)) == len(set(keys)) == len(set(zip(content, keys, strict=True)))


@given(contents, st.integers(1, 24), st.integers(0, 5))
def test_stretches_have_equal_hashes_where_their_bytes_are_equal(documents: list[bytes], length: int, gap: int) -> None:
    texts = as_texts(documents)
    ranges = []
    for start, end in zip(texts.starts.tolist(), texts.ends.tolist(), strict=True):
        middle = start + gap
        ranges += [(a, b) for a, b in ((start, middle), (middle, end - length + 1)) if a < b <= end - length + 1]
    starts = [first for a, b in ranges for first in range(a, b)]
    keys = kernel.hash_stretches(texts.data, np.array(ranges, dtype=np.int64).reshape(-1, 2), length)
    content = [texts.data[first : first + length].tobytes() for first in starts]
    assert len(keys) == len(content)
    for column in (0, 1):
        pairs = set(zip(content, keys[:, column].tolist(), strict=True))
        assert len(set(content)) == len(set(keys[:, column].tolist())) == len(pairs)


def test_the_hash_is_the_polynomial() -> None:
    data = bytes(range(1, 250))
    texts = as_texts([data])
    keys = kernel.hash_stretches(texts.data, np.array([[0, 50]], dtype=np.int64), 200)
    for column, base in enumerate(kernel._BASES):
        for first in (0, 1, 49):
            value = 0
            for byte in data[first : first + 200]:
                value = (value * int(base) + byte) % (2**61 - 1)
            assert int(keys[first, column]) == value
