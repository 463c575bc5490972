# SPDX-License-Identifier: Apache-2.0
"""How much of a document is white space."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

_WHITE_SPACE = "\t\n\r\b "


class WhiteSpaceFilter(CountRule):
    """Drop documents that are white space for a large part.

    White space is a tab, line feed, carriage return, backspace or space, here alone: words of other rules are separated
    by all that Unicode calls white space. An empty text has the score 1.0.
    """

    def __init__(self, max_white_space_ratio: float = 0.25) -> None:
        """The bound is an allowed value."""
        self.max_white_space_ratio = max_white_space_ratio

    def score_document(self, text: str) -> float:
        """The share of white space in all code points."""
        return share(sum(map(text.count, _WHITE_SPACE)), len(text), 1.0)

    def counts(self) -> Needed:
        """Code points and white space."""
        return ("code_points", 0), ("white_space", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["white_space", 0], counts["code_points", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_white_space_ratio
