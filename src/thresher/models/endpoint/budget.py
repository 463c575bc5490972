# SPDX-License-Identifier: Apache-2.0
"""Budgets in tokens and in money, and what was used of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from thresher.errors import RunFailedError, UsageError

MILLION = 1_000_000


class BudgetSpentError(RunFailedError):
    """The budget of a stage does not suffice for another request. A run with a larger one continues."""


class EndpointError(RunFailedError):
    """An endpoint that refuses every request, or does not answer. The same command resumes."""


class Usage(msgspec.Struct):
    """Numbers of requests, tokens and money."""

    requests: int = 0
    """Requests that were answered and paid."""
    retries: int = 0
    """Requests that were sent again after a failure."""
    asked_again: int = 0
    """Requests that were made because an answer did not fit its schema."""
    cached: int = 0
    """Answers that were there already."""
    input_tokens: int = 0
    """Tokens of paid requests."""
    output_tokens: int = 0
    """Tokens of paid answers."""
    cost: int = 0
    """Cost in millionths of the currency of the prices."""


@dataclass(frozen=True)
class Budget:
    """The most that a run may use, earlier attempts included."""

    max_cost: float | None = None
    """Money, in the currency of the prices; `None` for no limit."""
    max_total_tokens: int | None = None
    """Tokens of requests and answers; `None` for no limit."""

    def __post_init__(self) -> None:
        for name, kinds in (("max_cost", int | float), ("max_total_tokens", int)):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or not value > 0):
                what = "number" if name == "max_cost" else "whole number"
                raise UsageError(f"{name}: {value!r} is not a {what} above 0; leave it out for no limit")

    @property
    def is_limited(self) -> bool:
        """Return True if there is a limit."""
        return self.max_cost is not None or self.max_total_tokens is not None

    def has_room(self, tokens: int, cost: int) -> bool:
        """Return True if so much in all is within the budget; `cost` in millionths."""
        too_many = self.max_total_tokens is not None and tokens > self.max_total_tokens
        return not too_many and (self.max_cost is None or cost <= self.max_cost * MILLION)

    def spent_error(self, name: str, tokens: int, cost: int) -> BudgetSpentError:
        """Return the error for a request that does not fit, after so much was used."""
        used = []
        if self.max_cost is not None:
            used.append(f"{cost / MILLION:.4f} of max_cost={self.max_cost:g}")
        if self.max_total_tokens is not None:
            used.append(f"{tokens:,} of max_total_tokens={self.max_total_tokens:,}")
        return BudgetSpentError(
            f"the budget of {name} is spent: {', '.join(used)}; the next request might go beyond. Answers so far are "
            f"kept. Raise the limit and run the same command again, and it goes on from here"
        )
