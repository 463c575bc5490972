# SPDX-License-Identifier: Apache-2.0
"""How many lines of a document break off."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import lines_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

ELLIPSIS_MARKS = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")


class EllipsisFilter(CountRule):
    """Drop documents with too many lines that end with an ellipsis or with `read more`.

    The ends are `...`, `[...]`, `…`, `(...)`, `[…]`, `-»`, `read more` and `read more..`, in small letters or capitals.
    White space behind them does not matter. Only a line feed ends a line, and blank lines do not count. A blank text
    has no lines and the score 1.0.
    """

    def __init__(self, max_num_lines_ending_with_ellipsis_ratio: float = 0.3) -> None:
        """The bound is an allowed value."""
        self.max_num_lines_ending_with_ellipsis_ratio = max_num_lines_ending_with_ellipsis_ratio

    def score_document(self, text: str) -> float:
        """The share of lines that break off in all lines."""
        lines = lines_of(text)
        return share(sum(line.rstrip().lower().endswith(ELLIPSIS_MARKS) for line in lines), len(lines), 1.0)

    def counts(self) -> Needed:
        """Lines, and those that break off."""
        return ("lines", 0), ("ellipsis_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["ellipsis_lines", 0], counts["lines", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_num_lines_ending_with_ellipsis_ratio
