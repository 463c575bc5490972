# SPDX-License-Identifier: Apache-2.0
"""Rules about paragraphs: how many are long, and how many are boilerplate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.kernels.edits.policy_phrases import PLACEHOLDER, POLICY_PHRASES
from thresher.stages.text.judging.rule import CountRule, paragraphs_of, share, shares

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class C4ParagraphFilter(CountRule):
    """Keep documents with enough long paragraphs (mC4, datatrove).

    A paragraph is the text between two line feeds. The score is the number of paragraphs that are long enough.
    """

    at_least = "min_paragraphs"

    def __init__(self, min_paragraphs: int = 3, min_paragraph_len: int = 200) -> None:
        """Both bounds are inclusive; lengths are code points."""
        self.min_paragraphs, self.min_paragraph_len = min_paragraphs, min_paragraph_len

    def score_document(self, text: str) -> int:
        """Return the number of lines that are long enough."""
        return sum(len(line) >= self.min_paragraph_len for line in text.split("\n"))

    def counts(self) -> Needed:
        """Request the count of long lines."""
        return (("long_lines", self.min_paragraph_len),)

    def score_counts(self, counts: Counted) -> Scores:
        """Return the count of long lines."""
        return counts["long_lines", self.min_paragraph_len]


class BoilerPlateStringFilter(CountRule):
    """Drop documents with too many paragraphs about cookies, privacy or terms of use.

    Case is ignored. Two consecutive line feeds separate paragraphs, and blank paragraphs count. A text that contains
    `lorem ipsum` has the score 1.0. An empty text is one paragraph and has the score 0.0, so it is kept.
    """

    at_most = "max_boilerplate_string_ratio"

    def __init__(self, remove_if_at_top_or_bottom: bool = True, max_boilerplate_string_ratio: float = 0.4) -> None:
        """The bound is inclusive. `remove_if_at_top_or_bottom` is accepted and has no effect."""
        self.remove_if_at_top_or_bottom = remove_if_at_top_or_bottom
        self.max_boilerplate_string_ratio = max_boilerplate_string_ratio

    def score_document(self, text: str) -> float:
        """Return the share of boilerplate paragraphs in all paragraphs."""
        lowered = text.lower()
        if PLACEHOLDER in lowered:
            return 1.0
        paragraphs = paragraphs_of(lowered)
        return share(
            sum(any(phrase in paragraph for phrase in POLICY_PHRASES) for paragraph in paragraphs), len(paragraphs), 0.0
        )

    def counts(self) -> Needed:
        """Request counts of paragraphs, boilerplate paragraphs and occurrences of placeholder text."""
        return ("paragraphs", 0), ("boilerplate_paragraphs", 0), ("lorem_ipsum", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        found = shares(counts["boilerplate_paragraphs", 0], counts["paragraphs", 0], 0.0)
        found[counts["lorem_ipsum", 0] > 0] = 1.0
        return found
