# SPDX-License-Identifier: Apache-2.0
"""Quota of a group: the number of its documents that are kept, or their share."""

from __future__ import annotations

import math
from typing import Any

from thresher.errors import UsageError


def check_quota(stage: str, number: Any, share: Any) -> None:
    """Refuse a number below 0 and a share outside 0 to 1; one of them is given."""
    if share is not None and (isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1):
        raise UsageError(f"{stage}: {share!r} is not a share from 0 to 1")
    if share is None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
        raise UsageError(f"{stage}: {number!r} is not a whole number of 0 or more")


def quota_of(documents: int, number: int | None, share: float | None) -> int:
    """Return how many of so many documents are kept; a share is rounded to whole documents."""
    if share is not None:
        return min(documents, math.floor(documents * share + 0.5))
    return min(documents, number or 0)
