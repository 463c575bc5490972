# SPDX-License-Identifier: Apache-2.0
"""Rates, backoff and `Retry-After`, with time and chance as arguments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.models.endpoint.pacing import MOST_BACKOFF_S, Pace, backoff_s, retry_after_s

NOON = 1_700_000_000.0


@given(st.integers(1, 50), st.floats(0, 1))
def test_waits_grow_with_failures_are_spread_and_have_a_limit(failures: int, jitter: float) -> None:
    wait_s = backoff_s(failures, jitter)
    assert 0.25 <= wait_s <= MOST_BACKOFF_S
    assert backoff_s(failures, 0) <= wait_s <= backoff_s(failures, 1)
    assert backoff_s(failures + 1, jitter) >= wait_s


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2023 22:00:00 GMT", 0.0),
        ("soon", None),
        (None, None),
    ],
)
def test_a_server_may_say_when_in_seconds_or_by_a_date(header: str | None, wait_s: float | None) -> None:
    assert retry_after_s(header, NOON) == wait_s


@given(st.floats(1, 6000), st.lists(st.floats(0.1, 50), min_size=1, max_size=100))
def test_no_minute_has_more_than_the_rate_and_a_second_of_it(per_minute: float, amounts: list[float]) -> None:
    pace, now, begun = Pace(per_minute), 0.0, []
    for amount in amounts:
        now += pace.wait_s(now)
        assert pace.wait_s(now) < 1e-6
        pace.take(amount)
        begun.append((now, amount))
    for start, _ in begun:
        inside = [amount for at, amount in begun if start <= at < start + 60]
        assert sum(inside[:-1]) <= per_minute + max(1, per_minute / 60) + 1e-6 * len(begun)


def test_what_was_charged_too_much_is_given_back() -> None:
    pace = Pace(60)
    pace.wait_s(0)
    pace.take(10)
    assert pace.wait_s(0) == pytest.approx(10)
    pace.take(-9)
    assert pace.wait_s(0) == pytest.approx(1)


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(None)
    pace.take(1e9)
    assert pace.wait_s(0) == 0
