# SPDX-License-Identifier: Apache-2.0
"""Rules about repeated lines and paragraphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule, Share, lines_of, paragraphs_of, share

if TYPE_CHECKING:
    pass


class RepeatedLinesFilter(CountRule):
    """Drop documents with too many repeated lines.

    The score is the number of distinct lines divided by the number of lines: it falls as lines repeat. A document is
    kept if the score is at least `max_repeated_line_fraction` (the name matches other curation tools). Only a line feed
    ends a line; blank lines do not count, and lines that differ in white space are distinct. A blank text has no lines
    and the score 0.0.
    """

    formula = Share("distinct_lines", "lines")
    at_least = "max_repeated_line_fraction"

    def __init__(self, max_repeated_line_fraction: float = 0.7) -> None:
        """The bound is inclusive."""
        self.max_repeated_line_fraction = max_repeated_line_fraction

    def score_document(self, text: str) -> float:
        """Return the number of distinct lines divided by the number of lines."""
        lines = lines_of(text)
        return share(len(set(lines)), len(lines), 0.0)


class RepeatedLinesByCharFilter(CountRule):
    """Drop documents whose repeated lines make up too much of the text.

    The score is the length of all distinct lines divided by the length of all lines: it falls as long lines repeat. A
    document is kept if the score is at least `max_repeated_lines_char_ratio`. Only a line feed ends a line; blank lines
    do not count. Lengths are code points and include white space around a line. A blank text has no lines and the score
    0.0.
    """

    formula = Share("distinct_line_characters", "line_characters")
    at_least = "max_repeated_lines_char_ratio"

    def __init__(self, max_repeated_lines_char_ratio: float = 0.8) -> None:
        """The bound is inclusive."""
        self.max_repeated_lines_char_ratio = max_repeated_lines_char_ratio

    def score_document(self, text: str) -> float:
        """Return the code points in distinct lines divided by those in all lines."""
        lines = lines_of(text)
        return share(sum(map(len, set(lines))), sum(map(len, lines)), 0.0)


class RepeatedParagraphsFilter(CountRule):
    """Drop documents with too many repeated paragraphs.

    The score is the number of distinct paragraphs divided by the number of paragraphs; a document is kept if the score
    is at least `max_repeated_paragraphs_ratio`. Two consecutive line feeds separate paragraphs, and blank paragraphs
    count. An empty text is one paragraph and has the score 1.0.
    """

    formula = Share("distinct_paragraphs", "paragraphs", of_nothing=1.0)
    at_least = "max_repeated_paragraphs_ratio"

    def __init__(self, max_repeated_paragraphs_ratio: float = 0.7) -> None:
        """The bound is inclusive."""
        self.max_repeated_paragraphs_ratio = max_repeated_paragraphs_ratio

    def score_document(self, text: str) -> float:
        """Return the number of distinct paragraphs divided by the number of paragraphs."""
        paragraphs = paragraphs_of(text)
        return share(len(set(paragraphs)), len(paragraphs), 1.0)


class RepeatedParagraphsByCharFilter(CountRule):
    """Drop documents whose repeated paragraphs make up too much of the text.

    The score is the length of all distinct paragraphs divided by the length of all paragraphs; a document is kept if
    the score is at least `max_repeated_paragraphs_char_ratio`. Two consecutive line feeds separate paragraphs; lengths
    are code points. A text that consists only of separators has no characters in paragraphs and the score 0.0, like an
    empty text.
    """

    formula = Share("distinct_paragraph_characters", "paragraph_characters")
    at_least = "max_repeated_paragraphs_char_ratio"

    def __init__(self, max_repeated_paragraphs_char_ratio: float = 0.8) -> None:
        """The bound is inclusive."""
        self.max_repeated_paragraphs_char_ratio = max_repeated_paragraphs_char_ratio

    def score_document(self, text: str) -> float:
        """Return the code points in distinct paragraphs divided by those in all paragraphs."""
        paragraphs = paragraphs_of(text)
        return share(sum(map(len, set(paragraphs))), sum(map(len, paragraphs)), 0.0)
