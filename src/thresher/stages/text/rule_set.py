# SPDX-License-Identifier: Apache-2.0
"""Several checks under one name: a stage of which every check is a rule of its own, so that a report names the check.

GopherQualityFilter()       drops under GopherQualityFilter/gopher_short_doc, GopherQualityFilter/gopher_long_doc, …
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.score_filter import ScoreFilter


class Check(CountRule):
    """One check of a set: a score and the bounds of what is kept. A subclass says how the score is found."""

    def __init__(self, reason: str, parameter: str, *, low: float | None = None, high: float | None = None) -> None:
        """`reason` is what reports call the check, `parameter` the parameter of the set that holds its bound."""
        self.name, self.parameter, self.low, self.high = reason, parameter, low, high

    def allowed(self) -> tuple[float, float]:
        """Both bounds are allowed values."""
        return -math.inf if self.low is None else self.low, math.inf if self.high is None else self.high

    def thresholds(self) -> dict[str, Any]:
        """The bound, under the name that the set gives it."""
        bound = self.low if self.low is not None else self.high
        return {} if bound is None else {self.parameter: bound}


class RuleSet(ScoreFilter):
    """A stage that judges by a list of checks, in order; the first one that fails a document is its reason."""

    def __init__(self, checks: Sequence[CountRule], text_field: str = "text") -> None:
        """`checks` are made of the parameters of the set; a check that is turned off is not among them."""
        super().__init__(list(checks), text_field)
