# SPDX-License-Identifier: Apache-2.0
"""How much of a document is phrases that came before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.formula import share, shares
from thresher.stages.text.word_rule import WordRule, checked_size

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class RepeatingDuplicateNGramsFilter(WordRule):
    """Drop documents with too much text in phrases of n words that came before in the document.

    Every occurrence of a phrase but its first counts, with one space between two words; words that two such
    occurrences share count once. A text with fewer than n words has the score 1.0.
    """

    def __init__(self, n: int = 2, max_repeating_duplicate_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        """The bound is an allowed value."""
        self.n = checked_size("RepeatingDuplicateNGramsFilter", n)
        self.max_repeating_duplicate_ngram_ratio = max_repeating_duplicate_ngram_ratio
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """The share of code points in such phrases."""
        words = self._words(text)
        if len(words) < self.n:
            return 1.0
        return share(_repeated_characters(words, self.n), len(text), 1.0)

    def word_counts(self) -> Needed:
        """Code points, words, and the code points in such phrases."""
        return ("code_points", 0), ("words", 0), ("duplicate_ngram_characters", self.n)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        found = shares(counts["duplicate_ngram_characters", self.n], counts["code_points", 0], 1.0)
        found[counts["words", 0] < self.n] = 1.0
        return found

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_repeating_duplicate_ngram_ratio


def _repeated_characters(words: list[str], n: int) -> int:
    seen: set[tuple[str, ...]] = set()
    characters = 0
    counted_to = 0  # words before this one are in the count, where the phrase at hand reaches back to them
    for place, phrase in enumerate(zip(*(words[first:] for first in range(n)), strict=False)):
        if phrase in seen:
            new = phrase[max(counted_to - place, 0) :]
            characters += sum(map(len, new)) + min(len(new), n - 1)
            counted_to = place + n
        seen.add(phrase)
    return characters
