# SPDX-License-Identifier: Apache-2.0
"""When a request may be sent, and when again after a failure: rates per minute, backoff, `Retry-After`.

Nothing here reads a clock or draws a random number: both are arguments.
"""

from __future__ import annotations

from email.utils import parsedate_to_datetime

BACKOFF_S = 0.5
"""Time before the first retry; doubled with each failure."""
MOST_BACKOFF_S = 60.0
LONGEST_WAIT_S = 900.0
"""A server that asks for a longer wait than this ends the run, which can be resumed then."""


def backoff_s(failures: int, jitter: float) -> float:
    """Return how long to wait after so many failures; `jitter` from 0 to 1 spreads requests that failed together."""
    longest = min(MOST_BACKOFF_S, BACKOFF_S * 2.0 ** (failures - 1))
    return longest * (0.5 + 0.5 * jitter)


def retry_after_s(header: str | None, now: float) -> float | None:
    """Return the seconds that a `Retry-After` header asks for, a number or a date; `None` if it says neither. `now`:
    seconds since the epoch."""
    if header is None:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (TypeError, ValueError):
        return None


class Pace:
    """A rate per minute. A second's worth may begin at once; what goes beyond is waited for.

    An amount that turns out larger or smaller than expected is settled later, so the rate holds on average.
    """

    def __init__(self, per_minute: float | None) -> None:
        """`per_minute`: the rate; `None` for none."""
        self._per_s = None if per_minute is None else per_minute / 60
        self._most = self._room = max(1.0, self._per_s or 0.0)
        self._seen: float | None = None

    def wait_s(self, now: float) -> float:
        """Return how long to wait until something may begin; 0 if it may now. `now`: seconds of any clock."""
        if self._per_s is None:
            return 0.0
        if self._seen is not None:
            self._room = min(self._most, self._room + (now - self._seen) * self._per_s)
        self._seen = now
        return max(0.0, (1.0 - self._room) / self._per_s)

    def take(self, amount: float) -> None:
        """Charge an amount; a negative one gives back what was charged too much."""
        self._room = min(self._most, self._room - amount)
