# SPDX-License-Identifier: Apache-2.0
"""Of a long text it is counted how much room its words and lines need; they are the same as those of a short one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.kernels.counts import positions as module
from thresher.kernels.counts.positions import positions
from thresher.kernels.counts.text_counts import Counts, SharedCounts, Texts
from thresher.stages.text.columns.text_column import _from_values

TEXTS = st.lists(
    st.text(st.sampled_from("ab \n\té\u3000\u2028\x85\u1680\U0001f600"), max_size=300), min_size=1, max_size=4
)


@settings(max_examples=80, deadline=None)
@given(TEXTS)
def test_words_and_lines_are_found_in_the_room_that_was_counted(values: list[str]) -> None:
    texts = _from_values(values).texts
    rows = np.arange(len(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_LONG", 7)
        found = positions(SharedCounts(texts), rows)
        counts = Counts(texts)
        counts.fill([("words", 0), ("word_characters", 0)], rows)
    assert found.words.tolist() == [len(value.split()) for value in values]
    assert found.line_feeds.tolist() == [value.count("\n") for value in values]
    assert counts["word_characters", 0].tolist() == [len("".join(value.split())) for value in values]


def test_a_long_text_of_long_words_takes_little_room() -> None:
    data = np.full(4 * module._LONG + 64, ord("x"), dtype=np.uint8)
    data[:: 2**10] = ord(" ")
    work = SharedCounts(Texts(data, np.array([0]), np.array([4 * module._LONG])))
    found = positions(work, np.array([0]))
    assert found.words.tolist() == [4 * 2**10]
    assert found.edges.nbytes + found.feeds.nbytes < 4 * module._LONG
