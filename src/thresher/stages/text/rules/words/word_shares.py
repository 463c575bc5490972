# SPDX-License-Identifier: Apache-2.0
"""Rules about the share of a class of words in a document."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import WordRule, share, shares
from thresher.stages.text.rules.characters.character_shares import alphabetic
from thresher.stages.text.rules.lines.line_marks import ELLIPSIS_MARKS

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


_HASHES = re.compile("#+")


def _is_symbol(word: str) -> bool:
    return word in ELLIPSIS_MARKS or ("#" in word and len(_HASHES.findall(word)) / len(word) > 0.5)


class SymbolsToWordsFilter(WordRule):
    """Drop documents with too many words that are ellipses or mostly `#`.

    A word counts if it is an ellipsis mark, or if the number of its runs of `#` is more than half its length: `#` and
    `#a#` count, `##` and `#a` do not. A blank text has no words and the score 1.0.
    """

    def __init__(self, max_symbol_to_word_ratio: float = 0.1, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.max_symbol_to_word_ratio = max_symbol_to_word_ratio
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the share of symbols in all words."""
        words = self._words(text)
        return share(sum(map(_is_symbol, words)), len(words), 1.0)

    def word_counts(self) -> Needed:
        """Request counts of words and symbols."""
        return ("words", 0), ("symbol_words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        return shares(counts["symbol_words", 0], counts["words", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Allow shares up to the bound."""
        return -math.inf, self.max_symbol_to_word_ratio


class WordsWithoutAlphabetsFilter(WordRule):
    """Keep documents in which enough words contain a letter.

    A letter is any character that Unicode defines as alphabetic, of any script. A blank text has no words and the score
    0.0.
    """

    def __init__(self, min_words_with_alphabets: float = 0.8, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.min_words_with_alphabets = min_words_with_alphabets
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the share of words with a letter in all words."""
        words, letter = self._words(text), alphabetic()
        return share(sum(letter.search(word) is not None for word in words), len(words), 0.0)

    def word_counts(self) -> Needed:
        """Request counts of words and of words with a letter."""
        return ("words", 0), ("alpha_words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        return shares(counts["alpha_words", 0], counts["words", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """Allow shares of at least the bound."""
        return self.min_words_with_alphabets, math.inf
