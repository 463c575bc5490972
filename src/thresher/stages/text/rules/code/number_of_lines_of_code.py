# SPDX-License-Identifier: Apache-2.0
"""Number of lines in a source file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class NumberOfLinesOfCodeFilter(CountRule):
    """Keep source files whose number of lines is within bounds.

    Blank lines count, and so does the text after the last line feed. An empty text has 1 line.
    """

    def __init__(self, min_lines: int = 10, max_lines: int = 20000) -> None:
        """Both bounds are inclusive."""
        self.min_lines = min_lines
        self.max_lines = max_lines

    def score_document(self, text: str) -> int:
        """Return the number of lines."""
        return text.count("\n") + 1

    def counts(self) -> Needed:
        """Request the count of line feeds."""
        return (("line_feeds", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same number from the counts."""
        return counts["line_feeds", 0] + 1

    def allowed(self) -> tuple[float, float]:
        """Allow scores within the bounds."""
        return self.min_lines, self.max_lines
