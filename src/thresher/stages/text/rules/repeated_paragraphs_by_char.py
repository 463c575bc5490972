# SPDX-License-Identifier: Apache-2.0
"""How much of a document is paragraphs that come more than once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import paragraphs_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class RepeatedParagraphsByCharFilter(CountRule):
    """Drop documents that paragraphs which come again and again are a large part of.

    The score is the length of all different paragraphs divided by that of all paragraphs; a document is kept when it
    is at least `max_repeated_paragraphs_char_ratio`. Two line feeds in a row separate paragraphs; lengths are code
    points. A text of nothing but such separators has no characters in paragraphs and the score 0.0, as an empty one.
    """

    def __init__(self, max_repeated_paragraphs_char_ratio: float = 0.8) -> None:
        """The bound is an allowed value."""
        self.max_repeated_paragraphs_char_ratio = max_repeated_paragraphs_char_ratio

    def score_document(self, text: str) -> float:
        """Code points in different paragraphs, per code point in paragraphs."""
        paragraphs = paragraphs_of(text)
        return share(sum(map(len, set(paragraphs))), sum(map(len, paragraphs)), 0.0)

    def counts(self) -> Needed:
        """Code points in paragraphs, and in different ones."""
        return ("paragraph_characters", 0), ("distinct_paragraph_characters", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["distinct_paragraph_characters", 0], counts["paragraph_characters", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """Shares from the bound on."""
        return self.max_repeated_paragraphs_char_ratio, math.inf
