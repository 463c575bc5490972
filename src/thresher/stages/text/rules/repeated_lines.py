# SPDX-License-Identifier: Apache-2.0
"""How many lines of a document come more than once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import lines_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class RepeatedLinesFilter(CountRule):
    """Drop documents most of whose lines come again and again.

    The score is the number of different lines divided by the number of lines: it falls as lines repeat. A document is
    kept when it is at least `max_repeated_line_fraction` (the name is the one that users of other curators know). Only
    a line feed ends a line; blank lines do not count, and lines that differ in white space are different. A blank text
    has no lines and the score 0.0.
    """

    def __init__(self, max_repeated_line_fraction: float = 0.7) -> None:
        """The bound is an allowed value."""
        self.max_repeated_line_fraction = max_repeated_line_fraction

    def score_document(self, text: str) -> float:
        """Different lines per line."""
        lines = lines_of(text)
        return share(len(set(lines)), len(lines), 0.0)

    def counts(self) -> Needed:
        """Lines, and different ones."""
        return ("lines", 0), ("distinct_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["distinct_lines", 0], counts["lines", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """Shares from the bound on."""
        return self.max_repeated_line_fraction, math.inf
