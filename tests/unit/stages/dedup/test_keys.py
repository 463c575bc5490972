# SPDX-License-Identifier: Apache-2.0
"""Documents that share a key are joined to the first of them."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from thresher.stages.dedup.files.keys import Keys, grouped


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(0, 9)), max_size=40), st.booleans())
def test_each_key_leads_to_its_first_document(given_keys: list[tuple[int, int, int]], wide: bool) -> None:
    numbers = np.array(given_keys, dtype=np.uint64).reshape(-1, 3)
    keys, edges = grouped(Keys(numbers[:, 0], numbers[:, 1] if wide else None, numbers[:, 2]))
    documents = defaultdict(set)
    for high, low, document in given_keys:
        documents[(high, low) if wide else (high,)].add(document)
    columns = [keys.hashes, *([] if keys.lows is None else [keys.lows])]
    assert dict(zip(zip(*(c.tolist() for c in columns), strict=True), keys.documents.tolist(), strict=True)) == {
        key: min(found) for key, found in documents.items()
    }
    expected = {(one, min(found)) for found in documents.values() for one in found if one != min(found)}
    assert sorted(expected) == [tuple(edge) for edge in edges.tolist()]
