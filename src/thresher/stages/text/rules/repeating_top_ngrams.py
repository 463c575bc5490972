# SPDX-License-Identifier: Apache-2.0
"""How much of a document is its most frequent phrase."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from thresher.kernels.tie_hash import phrase_hash
from thresher.stages.text.formula import share, shares
from thresher.stages.text.segmenters import is_segmented
from thresher.stages.text.word_rule import WordRule, checked_size

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class RepeatingTopNGramsFilter(WordRule):
    """Drop documents that their most frequent phrase of n words is a large part of.

    The score is the share of code points that go when the phrase, its words joined by single spaces, is taken out of
    the text wherever it stands, also inside longer words. Of phrases that come equally often the one with the smallest
    fixed hash counts, so the score is the same on every run and no place in a document is favoured. In a language that
    is written without spaces the words are joined by nothing, and the phrase is taken out of the text without its
    white space. A text with fewer than n words has the score 1.0.
    """

    def __init__(self, n: int = 2, max_repeating_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        """The bound is an allowed value."""
        self.n = checked_size("RepeatingTopNGramsFilter", n)
        self.max_repeating_ngram_ratio = max_repeating_ngram_ratio
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """The share of the phrase in all code points."""
        words = self._words(text)
        if len(words) < self.n:
            return 1.0
        phrase = _most_frequent(words, self.n)
        between, body = ("", "".join(words)) if is_segmented(self.lang) else (" ", text)
        return share(len(body) - len(body.replace(between.join(phrase), "")), len(text), 1.0)

    def word_counts(self) -> Needed:
        """Code points, words, and the code points that go."""
        return ("code_points", 0), ("words", 0), ("top_ngram_characters", self.n)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        found = shares(counts["top_ngram_characters", self.n], counts["code_points", 0], 1.0)
        found[counts["words", 0] < self.n] = 1.0
        return found

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_repeating_ngram_ratio


def _most_frequent(words: list[str], n: int) -> tuple[str, ...]:
    occurrences = Counter(zip(*(words[first:] for first in range(n)), strict=False))
    most = max(occurrences.values())
    return min((phrase for phrase, number in occurrences.items() if number == most), key=phrase_hash)
