# SPDX-License-Identifier: Apache-2.0
"""How much of a document is brackets."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

_BRACKETS = "{}[]()\u27e8\u27e9"


class ParenthesesFilter(CountRule):
    """Drop documents with too many brackets: `( ) [ ] { }` and the mathematical `⟨ ⟩`.

    What is inside of them does not count. An empty text has the score 1.0.
    """

    def __init__(self, max_parentheses_ratio: float = 0.1) -> None:
        """The bound is an allowed value."""
        self.max_parentheses_ratio = max_parentheses_ratio

    def score_document(self, text: str) -> float:
        """The share of brackets in all code points."""
        return share(sum(map(text.count, _BRACKETS)), len(text), 1.0)

    def counts(self) -> Needed:
        """Code points and brackets."""
        return ("code_points", 0), ("parentheses", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["parentheses", 0], counts["code_points", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_parentheses_ratio
