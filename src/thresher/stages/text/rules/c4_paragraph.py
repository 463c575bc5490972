# SPDX-License-Identifier: Apache-2.0
"""How many long paragraphs a document has, as multilingual C4 asks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class C4ParagraphFilter(CountRule):
    """Keep documents with enough long paragraphs (mC4, datatrove).

    A paragraph is a line, between line feeds. The score is the number of those that are long enough.
    """

    def __init__(self, min_paragraphs: int = 3, min_paragraph_len: int = 200) -> None:
        """Both are allowed values; lengths are code points."""
        self.min_paragraphs, self.min_paragraph_len = min_paragraphs, min_paragraph_len

    def score_document(self, text: str) -> int:
        """How many lines are long enough."""
        return sum(len(line) >= self.min_paragraph_len for line in text.split("\n"))

    def counts(self) -> Needed:
        """Such lines."""
        return (("long_lines", self.min_paragraph_len),)

    def score_counts(self, counts: Counted) -> Scores:
        """Their number."""
        return counts["long_lines", self.min_paragraph_len]

    def allowed(self) -> tuple[float, float]:
        """At least `min_paragraphs`."""
        return self.min_paragraphs, math.inf
