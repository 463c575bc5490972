# SPDX-License-Identifier: Apache-2.0
"""How much of a document is lines that come more than once."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import lines_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class RepeatedLinesByCharFilter(CountRule):
    """Drop documents that lines which come again and again are a large part of.

    The score is the length of all different lines divided by that of all lines: it falls as long lines repeat. A
    document is kept when it is at least `max_repeated_lines_char_ratio`. Only a line feed ends a line; blank lines do
    not count, lengths are code points, white space around a line included. A blank text has no lines and the score 0.0.
    """

    def __init__(self, max_repeated_lines_char_ratio: float = 0.8) -> None:
        """The bound is an allowed value."""
        self.max_repeated_lines_char_ratio = max_repeated_lines_char_ratio

    def score_document(self, text: str) -> float:
        """Code points in different lines, per code point in lines."""
        lines = lines_of(text)
        return share(sum(map(len, set(lines))), sum(map(len, lines)), 0.0)

    def counts(self) -> Needed:
        """Code points in lines, and in different ones."""
        return ("line_characters", 0), ("distinct_line_characters", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["distinct_line_characters", 0], counts["line_characters", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """Shares from the bound on."""
        return self.max_repeated_lines_char_ratio, math.inf
