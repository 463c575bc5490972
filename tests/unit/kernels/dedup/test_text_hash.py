# SPDX-License-Identifier: Apache-2.0
"""Hashes of texts agree with the reference implementation of XXH64."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernels.texts import as_texts
from thresher.kernels.dedup.text_hash import _SEEDS, hash_texts

xxhash = pytest.importorskip("xxhash")


@given(st.lists(st.text(max_size=200), max_size=20))
def test_hashes_are_those_of_the_reference(texts: list[str]) -> None:
    made = hash_texts(as_texts(texts))
    for row, text in enumerate(texts):
        content = text.encode("utf-8", "surrogatepass")
        assert made[row].tolist() == [xxhash.xxh64_intdigest(content, seed=int(seed)) for seed in _SEEDS]


@pytest.mark.parametrize("length", [0, 1, 3, 4, 7, 8, 31, 32, 33, 63, 64, 1000])
def test_every_way_to_the_end_of_a_text(length: int) -> None:
    text = "".join(chr(33 + n % 90) for n in range(length))
    assert int(hash_texts(as_texts([text]))[0, 0]) == xxhash.xxh64_intdigest(text.encode())
