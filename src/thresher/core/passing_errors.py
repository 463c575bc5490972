# SPDX-License-Identifier: Apache-2.0
"""Errors that may be gone a little later: a service that is busy, a connection that broke."""

from __future__ import annotations

PASSING = frozenset(
    {
        "ConnectionError",  # of Python, and of requests
        "TimeoutError",
        "Timeout",  # requests
        "TransportError",  # httpx
        "APIConnectionError",  # clients of model endpoints
        "RateLimitError",
        "InternalServerError",
        "ServiceUnavailable",
        "BlockingIOError",
        "InterruptedError",
    }
)
"""Classes by name: the libraries that define them need not be there."""


def may_pass(error: BaseException) -> bool:
    """Whether the same call may work a little later, although nothing is changed."""
    return any(kind.__name__ in PASSING for kind in type(error).__mro__)
