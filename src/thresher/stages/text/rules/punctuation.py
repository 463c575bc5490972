# SPDX-License-Identifier: Apache-2.0
"""How many lines of a document end like a sentence."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import lines_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

END_MARKS = (".", "?", "!", '"', "'")


class PunctuationFilter(CountRule):
    """Drop documents most of whose lines do not end with one of `. ? ! " '`.

    White space behind it does not matter. Only a line feed ends a line, and blank lines do not count. A blank text has
    no lines and the score 1.0.
    """

    def __init__(self, max_num_sentences_without_endmark_ratio: float = 0.85) -> None:
        """The bound is an allowed value."""
        self.max_num_sentences_without_endmark_ratio = max_num_sentences_without_endmark_ratio

    def score_document(self, text: str) -> float:
        """The share of lines without an end mark in all lines."""
        lines = lines_of(text)
        return share(sum(not line.rstrip().endswith(END_MARKS) for line in lines), len(lines), 1.0)

    def counts(self) -> Needed:
        """Lines, and those without an end mark."""
        return ("lines", 0), ("unpunctuated_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["unpunctuated_lines", 0], counts["lines", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_num_sentences_without_endmark_ratio
