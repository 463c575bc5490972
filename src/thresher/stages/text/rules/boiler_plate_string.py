# SPDX-License-Identifier: Apache-2.0
"""How much of a document is notices about cookies, privacy and terms of use."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.kernels.policy_phrases import PLACEHOLDER, POLICY_PHRASES
from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares
from thresher.stages.text.passages import paragraphs_of

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class BoilerPlateStringFilter(CountRule):
    """Drop documents with too many paragraphs that hold a notice about cookies, privacy or terms of use.

    Small letters and capitals are the same. Two line feeds in a row separate paragraphs, and blank ones count. A text
    with `lorem ipsum` in it has the score 1.0. An empty text is one paragraph and has the score 0.0, which is kept.
    """

    def __init__(self, remove_if_at_top_or_bottom: bool = True, max_boilerplate_string_ratio: float = 0.4) -> None:
        """The bound is an allowed value. The other parameter is one that users know; it changes nothing."""
        self.remove_if_at_top_or_bottom = remove_if_at_top_or_bottom
        self.max_boilerplate_string_ratio = max_boilerplate_string_ratio

    def score_document(self, text: str) -> float:
        """The share of paragraphs with a notice in all paragraphs."""
        lowered = text.lower()
        if PLACEHOLDER in lowered:
            return 1.0
        paragraphs = paragraphs_of(lowered)
        return share(
            sum(any(phrase in paragraph for phrase in POLICY_PHRASES) for paragraph in paragraphs), len(paragraphs), 0.0
        )

    def counts(self) -> Needed:
        """Paragraphs, those with a notice, and whether there is placeholder text."""
        return ("paragraphs", 0), ("boilerplate_paragraphs", 0), ("lorem_ipsum", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        found = shares(counts["boilerplate_paragraphs", 0], counts["paragraphs", 0], 0.0)
        found[counts["lorem_ipsum", 0] > 0] = 1.0
        return found

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_boilerplate_string_ratio
