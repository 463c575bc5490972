# SPDX-License-Identifier: Apache-2.0
"""Rules about the share of lines that start or end with certain marks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule, lines_of, share, shares

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")


class BulletsFilter(CountRule):
    """Drop documents most of whose lines start with a bullet, one of `• ‣ ⁃ ⁌ ⁍ ∙ ○ ● ◘ ◦ ⦾ ⦿`.

    Leading white space is ignored; a dash or an asterisk is not a bullet. Only a line feed ends a line, and blank lines
    do not count. A blank text has no lines and the score 1.0.
    """

    def __init__(self, max_bullet_lines_ratio: float = 0.9) -> None:
        """The bound is inclusive."""
        self.max_bullet_lines_ratio = max_bullet_lines_ratio

    def score_document(self, text: str) -> float:
        """Return the share of lines with a bullet in all lines."""
        lines = lines_of(text)
        return share(sum(line.lstrip().startswith(BULLETS) for line in lines), len(lines), 1.0)

    def counts(self) -> Needed:
        """Request counts of lines and bullet lines."""
        return ("lines", 0), ("bullet_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        return shares(counts["bullet_lines", 0], counts["lines", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Allow shares up to the bound."""
        return -math.inf, self.max_bullet_lines_ratio


ELLIPSIS_MARKS = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")


class EllipsisFilter(CountRule):
    """Drop documents with too many lines that end with an ellipsis or with `read more`.

    The endings are `...`, `[...]`, `…`, `(...)`, `[…]`, `-»`, `read more` and `read more..`, in any case. Trailing
    white space is ignored. Only a line feed ends a line, and blank lines do not count. A blank text has no lines and
    the score 1.0.
    """

    def __init__(self, max_num_lines_ending_with_ellipsis_ratio: float = 0.3) -> None:
        """The bound is inclusive."""
        self.max_num_lines_ending_with_ellipsis_ratio = max_num_lines_ending_with_ellipsis_ratio

    def score_document(self, text: str) -> float:
        """Return the share of lines with such an ending in all lines."""
        lines = lines_of(text)
        return share(sum(line.rstrip().lower().endswith(ELLIPSIS_MARKS) for line in lines), len(lines), 1.0)

    def counts(self) -> Needed:
        """Request counts of lines and of lines with such an ending."""
        return ("lines", 0), ("ellipsis_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        return shares(counts["ellipsis_lines", 0], counts["lines", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Allow shares up to the bound."""
        return -math.inf, self.max_num_lines_ending_with_ellipsis_ratio


END_MARKS = (".", "?", "!", '"', "'")


class PunctuationFilter(CountRule):
    """Drop documents most of whose lines do not end with one of `. ? ! " '`.

    Trailing white space is ignored. Only a line feed ends a line, and blank lines do not count. A blank text has no
    lines and the score 1.0.
    """

    def __init__(self, max_num_sentences_without_endmark_ratio: float = 0.85) -> None:
        """The bound is inclusive."""
        self.max_num_sentences_without_endmark_ratio = max_num_sentences_without_endmark_ratio

    def score_document(self, text: str) -> float:
        """Return the share of lines without an end mark in all lines."""
        lines = lines_of(text)
        return share(sum(not line.rstrip().endswith(END_MARKS) for line in lines), len(lines), 1.0)

    def counts(self) -> Needed:
        """Request counts of lines and of lines without an end mark."""
        return ("lines", 0), ("unpunctuated_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        return shares(counts["unpunctuated_lines", 0], counts["lines", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Allow shares up to the bound."""
        return -math.inf, self.max_num_sentences_without_endmark_ratio
