# SPDX-License-Identifier: Apache-2.0
"""Figures are short, of bounded width, and never say more than is true."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.observe.figures import cut, duration, megabytes, percent, short, shorten, whole


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (2, "2"), (2.0, "2.0"), (999, "999"), (999.6, "1.00k"), (12_345, "12.3k"), (4_560_000, "4.56M")],
)
def test_short(number: float, text: str) -> None:
    assert short(number) == text


@given(st.floats(0, 9e14))
def test_short_figures_fit_five_characters(number: float) -> None:
    assert len(short(number)) <= 5


@given(st.integers(0, 10**14), st.integers(5, 12))
def test_whole_numbers_fit_their_column(number: int, width: int) -> None:
    assert len(whole(number, width)) <= width


@given(st.floats(0, 1))
def test_percentages_fit_five_characters_and_reach_the_ends_only_when_it_is_so(ratio: float) -> None:
    text = percent(ratio)
    assert len(text) <= 5
    assert (text == "100%") == (ratio == 1.0)
    assert (text == "0%") == (ratio == 0.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1:00"),
        (187, "3:07"),
        (3723, "1:02:03"),
        (183_600, "2 d 03 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(("nbytes", "text"), [(0, "0.00"), (9_994_000, "9.99"), (52_340_000, "52.3"), (2e9, "2,000")])
def test_megabytes(nbytes: float, text: str) -> None:
    assert megabytes(nbytes) == text


@given(st.floats(0, 1e20))
def test_megabytes_fit_six_characters(nbytes: float) -> None:
    assert len(megabytes(nbytes)) <= 6


@given(st.text(max_size=60), st.integers(1, 40))
def test_shortened_text_fits(text: str, width: int) -> None:
    assert len(shorten(text, width)) <= width
    assert len(cut(text, width)) <= width
    assert len(text) > width or shorten(text, width) == cut(text, width) == text


def test_a_shortened_name_keeps_both_ends() -> None:
    assert shorten("NonAlphaNumericFilter-2", 14) == "NonAlph…lter-2"
