# SPDX-License-Identifier: Apache-2.0
"""Token ids of many texts stay the same ids from Arrow columns and to them, and as padded matrices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from thresher.models.token_lists import TokenLists

PAD = 9


def test_lists_are_read_from_columns_of_several_slices_and_types() -> None:
    one = pa.array([[1, 2], [], [3]], pa.list_(pa.uint16()))
    other = pa.array([[4], [5, 6, 7], [8]], pa.list_(pa.uint32()))
    columns = [pa.chunked_array([one.slice(1), one.slice(0, 1)]), pa.chunked_array([other.slice(1, 1)])]
    lists = TokenLists.joined([TokenLists.of_column(column) for column in columns])
    ids, mask = lists.padded(np.arange(4), PAD)
    assert ids.tolist() == [[PAD] * 3, [3, PAD, PAD], [1, 2, PAD], [5, 6, 7]]
    assert mask.sum(axis=1).tolist() == [0, 1, 2, 3]
    left, _ = lists.padded(np.array([2]), PAD, left=True)
    assert left.tolist() == [[1, 2]]
    assert len(TokenLists.joined([])) == 0


@given(st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6))
def test_an_end_follows_every_list(lists: list[list[int]]) -> None:
    made = TokenLists.of(lists, "int32").followed_by(99).to_arrow()
    assert made.type == pa.list_(pa.int32())
    assert made.to_pylist() == [[*ids, 99] for ids in lists]
