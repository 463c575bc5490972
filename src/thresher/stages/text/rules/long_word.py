# SPDX-License-Identifier: Apache-2.0
"""How long the longest word of a document is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.word_rule import WordRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class LongWordFilter(WordRule):
    """Drop documents with a very long word, such as minified code and encoded data.

    Lengths are code points. A blank text has no words and the score 0, which is kept.
    """

    def __init__(self, max_word_length: int = 1000, lang: str = "en") -> None:
        """The bound is an allowed value."""
        self.max_word_length = max_word_length
        self._set_language(lang)

    def score_document(self, text: str) -> int:
        """The length of the longest word."""
        return max(map(len, self._words(text)), default=0)

    def word_counts(self) -> Needed:
        """Just that length."""
        return (("longest_word", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """The same length."""
        return counts["longest_word", 0]

    def allowed(self) -> tuple[float, float]:
        """Lengths up to the bound."""
        return -math.inf, self.max_word_length
