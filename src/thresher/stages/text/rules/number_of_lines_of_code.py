# SPDX-License-Identifier: Apache-2.0
"""How many lines a source file has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class NumberOfLinesOfCodeFilter(CountRule):
    """Keep source files with a number of lines between two bounds.

    Blank lines count, and so does what is behind the last line feed. An empty text has 1.
    """

    def __init__(self, min_lines: int = 10, max_lines: int = 20000) -> None:
        """Both bounds are allowed values."""
        self.min_lines = min_lines
        self.max_lines = max_lines

    def score_document(self, text: str) -> int:
        """The number of lines."""
        return text.count("\n") + 1

    def counts(self) -> Needed:
        """Line feeds."""
        return (("line_feeds", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """The same number."""
        return counts["line_feeds", 0] + 1

    def allowed(self) -> tuple[float, float]:
        """What lies between the bounds."""
        return self.min_lines, self.max_lines
