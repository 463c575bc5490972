# SPDX-License-Identifier: Apache-2.0
"""How many paragraphs of a document come more than once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import paragraphs_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class RepeatedParagraphsFilter(CountRule):
    """Drop documents most of whose paragraphs come again and again.

    The score is the number of different paragraphs divided by the number of paragraphs; a document is kept when it is
    at least `max_repeated_paragraphs_ratio`. Two line feeds in a row separate paragraphs, and blank ones count. An
    empty text is one paragraph and has the score 1.0.
    """

    def __init__(self, max_repeated_paragraphs_ratio: float = 0.7) -> None:
        """The bound is an allowed value."""
        self.max_repeated_paragraphs_ratio = max_repeated_paragraphs_ratio

    def score_document(self, text: str) -> float:
        """Different paragraphs per paragraph."""
        paragraphs = paragraphs_of(text)
        return share(len(set(paragraphs)), len(paragraphs), 1.0)

    def counts(self) -> Needed:
        """Paragraphs, and different ones."""
        return ("paragraphs", 0), ("distinct_paragraphs", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["distinct_paragraphs", 0], counts["paragraphs", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares from the bound on."""
        return self.max_repeated_paragraphs_ratio, math.inf
