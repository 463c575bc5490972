# SPDX-License-Identifier: Apache-2.0
"""How many lines of a document are items of a list."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import lines_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")


class BulletsFilter(CountRule):
    """Drop documents most of whose lines start with a bullet, one of `• ‣ ⁃ ⁌ ⁍ ∙ ○ ● ◘ ◦ ⦾ ⦿`.

    White space before it does not matter; a dash or an asterisk is no bullet. Only a line feed ends a line, and blank
    lines do not count. A blank text has no lines and the score 1.0.
    """

    def __init__(self, max_bullet_lines_ratio: float = 0.9) -> None:
        """The bound is an allowed value."""
        self.max_bullet_lines_ratio = max_bullet_lines_ratio

    def score_document(self, text: str) -> float:
        """The share of lines with a bullet in all lines."""
        lines = lines_of(text)
        return share(sum(line.lstrip().startswith(BULLETS) for line in lines), len(lines), 1.0)

    def counts(self) -> Needed:
        """Lines, and those with a bullet."""
        return ("lines", 0), ("bullet_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["bullet_lines", 0], counts["lines", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_bullet_lines_ratio
