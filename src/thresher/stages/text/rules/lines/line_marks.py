# SPDX-License-Identifier: Apache-2.0
"""Rules about the share of lines that start or end with certain marks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule, Share, lines_of, share

if TYPE_CHECKING:
    pass


BULLETS = tuple("•‣⁃⁌⁍∙○●◘◦⦾⦿")


class BulletsFilter(CountRule):
    """Drop documents most of whose lines start with a bullet, one of `• ‣ ⁃ ⁌ ⁍ ∙ ○ ● ◘ ◦ ⦾ ⦿`.

    Leading white space is ignored; a dash or an asterisk is not a bullet. Only a line feed ends a line, and blank lines
    do not count. A blank text has no lines and the score 1.0.
    """

    formula = Share("bullet_lines", "lines", of_nothing=1.0)
    at_most = "max_bullet_lines_ratio"

    def __init__(self, max_bullet_lines_ratio: float = 0.9) -> None:
        """The bound is inclusive."""
        self.max_bullet_lines_ratio = max_bullet_lines_ratio

    def score_document(self, text: str) -> float:
        """Return the share of lines with a bullet in all lines."""
        lines = lines_of(text)
        return share(sum(line.lstrip().startswith(BULLETS) for line in lines), len(lines), 1.0)


ELLIPSIS_MARKS = ("...", "[...]", "…", "(...)", "[…]", "-»", "read more..", "read more")


class EllipsisFilter(CountRule):
    """Drop documents with too many lines that end with an ellipsis or with `read more`.

    The endings are `...`, `[...]`, `…`, `(...)`, `[…]`, `-»`, `read more` and `read more..`, in any case. Trailing
    white space is ignored. Only a line feed ends a line, and blank lines do not count. A blank text has no lines and
    the score 1.0.
    """

    formula = Share("ellipsis_lines", "lines", of_nothing=1.0)
    at_most = "max_num_lines_ending_with_ellipsis_ratio"

    def __init__(self, max_num_lines_ending_with_ellipsis_ratio: float = 0.3) -> None:
        """The bound is inclusive."""
        self.max_num_lines_ending_with_ellipsis_ratio = max_num_lines_ending_with_ellipsis_ratio

    def score_document(self, text: str) -> float:
        """Return the share of lines with such an ending in all lines."""
        lines = lines_of(text)
        return share(sum(line.rstrip().lower().endswith(ELLIPSIS_MARKS) for line in lines), len(lines), 1.0)


END_MARKS = (".", "?", "!", '"', "'")


class PunctuationFilter(CountRule):
    """Drop documents most of whose lines do not end with one of `. ? ! " '`.

    Trailing white space is ignored. Only a line feed ends a line, and blank lines do not count. A blank text has no
    lines and the score 1.0.
    """

    formula = Share("unpunctuated_lines", "lines", of_nothing=1.0)
    at_most = "max_num_sentences_without_endmark_ratio"

    def __init__(self, max_num_sentences_without_endmark_ratio: float = 0.85) -> None:
        """The bound is inclusive."""
        self.max_num_sentences_without_endmark_ratio = max_num_sentences_without_endmark_ratio

    def score_document(self, text: str) -> float:
        """Return the share of lines without an end mark in all lines."""
        lines = lines_of(text)
        return share(sum(not line.rstrip().endswith(END_MARKS) for line in lines), len(lines), 1.0)
