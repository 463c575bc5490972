# SPDX-License-Identifier: Apache-2.0
"""How many words of a document have a letter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.formula import share, shares
from thresher.stages.text.rules.alpha import alphabetic
from thresher.stages.text.word_rule import WordRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class WordsWithoutAlphabetsFilter(WordRule):
    """Keep documents most of whose words have at least one letter.

    A letter is what Unicode calls alphabetic, of any script. A blank text has no words and the score 0.0.
    """

    def __init__(self, min_words_with_alphabets: float = 0.8, lang: str = "en") -> None:
        """The bound is an allowed value."""
        self.min_words_with_alphabets = min_words_with_alphabets
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """The share of words with a letter in all words."""
        words, letter = self._words(text), alphabetic()
        return share(sum(letter.search(word) is not None for word in words), len(words), 0.0)

    def word_counts(self) -> Needed:
        """Words, and those with a letter."""
        return ("words", 0), ("alpha_words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["alpha_words", 0], counts["words", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """Shares from the bound on."""
        return self.min_words_with_alphabets, math.inf
