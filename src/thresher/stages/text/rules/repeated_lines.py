# SPDX-License-Identifier: Apache-2.0
"""How many lines of a document come more than once."""

from __future__ import annotations

from thresher.stages.text.document_filter import TextRule
from thresher.stages.text.text_view import TextView


class RepeatedLinesFilter(TextRule):
    """Drop documents most of whose lines come again and again.

    The score is the number of different lines divided by the number of lines: it falls as lines repeat. A document is
    kept when it is at least `max_repeated_line_fraction` (the name is the one that users of other curators know). Only
    a line feed ends a line; blank lines do not count, and lines that differ in white space are different. A blank text
    has no lines and the score 0.0.
    """

    def __init__(self, max_repeated_line_fraction: float = 0.7) -> None:
        """The bound is an allowed value."""
        self.max_repeated_line_fraction = max_repeated_line_fraction

    def score_view(self, view: TextView) -> float:
        """Different lines per line."""
        lines = view.lines
        return lines.distinct / lines.number if lines.number else 0.0

    def keep_document(self, score: float) -> bool:
        """Whether enough lines are different."""
        return score >= self.max_repeated_line_fraction
