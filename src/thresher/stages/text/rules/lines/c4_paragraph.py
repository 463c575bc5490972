# SPDX-License-Identifier: Apache-2.0
"""Number of long paragraphs in a document, as in multilingual C4."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class C4ParagraphFilter(CountRule):
    """Keep documents with enough long paragraphs (mC4, datatrove).

    A paragraph is the text between two line feeds. The score is the number of paragraphs that are long enough.
    """

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

    def allowed(self) -> tuple[float, float]:
        """Allow scores of at least `min_paragraphs`."""
        return self.min_paragraphs, math.inf
