# SPDX-License-Identifier: Apache-2.0
"""Bins keep what was put into them, however often they are merged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.simulate.resources import Timeline


@given(st.lists(st.tuples(st.floats(0, 5000), st.floats(0, 500)), min_size=1, max_size=50))
def test_busy_time_is_kept(stretches: list[tuple[float, float]]) -> None:
    timeline = Timeline(2)
    for start_s, length_s in stretches:
        timeline.add(1, start_s, start_s + length_s)
    assert sum(timeline.busy[1]) == pytest.approx(sum(length_s for _, length_s in stretches), abs=1e-6)
    assert not any(timeline.busy[0])


def test_a_rate_is_the_number_that_was_busy_at_once() -> None:
    timeline = Timeline(1)
    for _ in range(3):
        timeline.add(0, 0.0, 60.0)
    assert timeline.rates(0, 60.0) == pytest.approx([3.0] * len(timeline.rates(0, 60.0)))


def test_the_highest_level_of_a_bin_is_kept() -> None:
    timeline = Timeline(1)
    for time_s, level in ((1.0, 5.0), (1.001, 3.0), (1000.0, 1.0)):
        timeline.reach(time_s, level)
    assert max(timeline.levels(1000.0)) == 5.0
