# SPDX-License-Identifier: Apache-2.0
"""How long the words of a document are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.formula import share, shares
from thresher.stages.text.word_rule import WordRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class MeanWordLengthFilter(WordRule):
    """Keep documents whose words have a usual length on average.

    Lengths are code points. A blank text has no words and the score 0.0.
    """

    def __init__(self, min_mean_word_length: float = 3, max_mean_word_length: float = 10, lang: str = "en") -> None:
        """Both bounds are allowed values."""
        self.min_mean_word_length = min_mean_word_length
        self.max_mean_word_length = max_mean_word_length
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Code points in words, per word."""
        words = self._words(text)
        return share(sum(map(len, words)), len(words), 0.0)

    def word_counts(self) -> Needed:
        """Words, and code points in them."""
        return ("words", 0), ("word_characters", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same mean."""
        return shares(counts["word_characters", 0], counts["words", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """What lies between the bounds."""
        return self.min_mean_word_length, self.max_mean_word_length
