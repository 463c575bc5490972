# SPDX-License-Identifier: Apache-2.0
"""Charts of a report: how bars are counted, put in order and drawn."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from thresher import ProcessingStage
from thresher.core.tally import StageTally, context_of
from thresher.observe.charts import BARS_SHOWN, chart_lines


def tally_of(*bars: tuple[str | float, int, str]) -> StageTally:
    stage: ProcessingStage[Any, Any] = ProcessingStage()
    for bar, n, part in bars:
        stage.chart("sizes", bar, n, part)
    return context_of(stage).take_noted()


def test_bars_of_several_workers_add_up_and_numbers_come_in_order() -> None:
    tally = tally_of((16, 2, ""), (0.5, 1, ""))
    tally.add(tally_of((16, 3, ""), (4, 1, ""), ("no value", 1, "")))
    assert tally.charts() == {
        "sizes": [{"bar": 0.5, "n": 1}, {"bar": 4, "n": 1}, {"bar": 16, "n": 5}, {"bar": "no value", "n": 1}]
    }
    assert tally.own_counts() == {}


def test_a_whole_number_is_the_same_bar_as_an_integer_and_as_a_float() -> None:
    assert tally_of((10**8, 1, ""), (1e8, 2, ""), (0.0, 3, "kept"), (-0.0, 4, "kept")).charts() == {
        "sizes": [{"bar": 0, "n": 7, "parts": {"kept": 7}}, {"bar": 10**8, "n": 3}]
    }


def test_bars_with_names_come_by_size_and_say_their_parts() -> None:
    charts = tally_of(("a\n\u2028", 1, "kept"), ("b", 4, "kept"), ("b", 2, "dropped")).charts()
    assert charts["sizes"] == [
        {"bar": "b", "n": 6, "parts": {"dropped": 2, "kept": 4}},
        {"bar": "a\n\u2028", "n": 1, "parts": {"kept": 1}},
    ]


def test_a_bar_shows_what_was_kept_and_the_rate() -> None:
    bars = [
        {"bar": "de", "n": 30, "parts": {"kept": 10, "copied": 20}},
        {"bar": "en", "n": 10, "parts": {"dropped": 10}},
    ]
    german, english, legend = chart_lines(bars, 80)
    assert german.split() == ["de", "█" * 13 + "▓" * 27, "10", "→", "30", "x3.00"]
    assert english.split() == ["en", "░" * 13, "10", "→", "0", "x0.00"]
    assert legend.split() == ["█", "kept", "▓", "copied", "░", "dropped"]


def test_many_bars_are_summed_up() -> None:
    lines = chart_lines([{"bar": f"{n}", "n": 1} for n in range(100)], 80)
    assert len(lines) == BARS_SHOWN
    assert lines[-1].split()[:3] == ["and", "77", "more"]


def test_a_name_cannot_control_the_terminal() -> None:
    assert "\033" not in chart_lines([{"bar": "\033[31mred", "n": 1}], 80)[0]


@example([("", 1, ""), ("", 10**7, "copied"), (1e7, 1, "")], 56)
@example([("a" * 20, 10**8, "kept"), ("b", 10**8, "dropped")], 56)
@example([("a" * 20, 10**8, "kept"), ("b", 10**8, "dropped")], 60)
@example([("", 1, "copied"), ("", 1, "dropped"), ("", 1, "sent"), ("", 1, "x"), (1e9, 1, "kept")], 56)
@given(
    st.lists(
        st.tuples(
            st.one_of(st.text(max_size=40), st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 2**40)),
            st.integers(1, 10**12),
            st.sampled_from(["", "kept", "copied", "dropped", "sent", "x"]),
        ),
        max_size=40,
    ),
    st.integers(56, 200),
)
def test_every_chart_fits_the_terminal_and_shows_every_bar(bars: list[Any], width: int) -> None:
    for rows in tally_of(*bars).charts().values():
        lines = chart_lines(rows, width)
        assert all(len(line) <= width for line in lines)
        assert len(lines) >= min(len(rows), BARS_SHOWN)
