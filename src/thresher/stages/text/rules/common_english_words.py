# SPDX-License-Identifier: Apache-2.0
"""How many of the most common English words a document has."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

COMMON_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})


class CommonEnglishWordsFilter(CountRule):
    """Keep documents with at least some of the words the, be, to, of, and, that, have, with, in small letters.

    Every occurrence counts. A blank text has 0.
    """

    def __init__(self, min_num_common_words: int = 2, stop_at_false: bool = True) -> None:
        """The bound is an allowed value. `stop_at_false` counts up to the bound and no further: no score is larger."""
        self.min_num_common_words = min_num_common_words
        self.stop_at_false = stop_at_false

    def score_document(self, text: str) -> int:
        """How many there are."""
        found = sum(word in COMMON_WORDS for word in text.split())
        return min(found, self._enough()) if self.stop_at_false else found

    def counts(self) -> Needed:
        """Just that number."""
        return (("common_words", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """The same number."""
        found = counts["common_words", 0]
        return found.clip(max=self._enough()) if self.stop_at_false else found

    def _enough(self) -> int:
        return max(math.ceil(self.min_num_common_words), 0)

    def allowed(self) -> tuple[float, float]:
        """Numbers from the bound on."""
        return self.min_num_common_words, math.inf
