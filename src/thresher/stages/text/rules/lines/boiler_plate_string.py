# SPDX-License-Identifier: Apache-2.0
"""Share of paragraphs about cookies, privacy and terms of use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.kernels.edits.policy_phrases import PLACEHOLDER, POLICY_PHRASES
from thresher.stages.text.judging.rule import CountRule, paragraphs_of, share, shares

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class BoilerPlateStringFilter(CountRule):
    """Drop documents with too many paragraphs about cookies, privacy or terms of use.

    Case is ignored. Two consecutive line feeds separate paragraphs, and blank paragraphs count. A text that contains
    `lorem ipsum` has the score 1.0. An empty text is one paragraph and has the score 0.0, so it is kept.
    """

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

    def allowed(self) -> tuple[float, float]:
        """Allow shares up to the bound."""
        return -math.inf, self.max_boilerplate_string_ratio
