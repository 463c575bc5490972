# SPDX-License-Identifier: Apache-2.0
"""How many words of a document are symbols."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from thresher.stages.text.formula import share, shares
from thresher.stages.text.rules.ellipsis import ELLIPSIS_MARKS
from thresher.stages.text.word_rule import WordRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

_HASHES = re.compile("#+")


def _is_symbol(word: str) -> bool:
    return word in ELLIPSIS_MARKS or ("#" in word and len(_HASHES.findall(word)) / len(word) > 0.5)


class SymbolsToWordsFilter(WordRule):
    """Drop documents with too many words that are an ellipsis or mostly `#`.

    A word counts if it is an ellipsis mark, or if it has more runs of `#` than half of its code points: `#` and `#a#`
    do, `##` and `#a` do not. A blank text has no words and the score 1.0.
    """

    def __init__(self, max_symbol_to_word_ratio: float = 0.1, lang: str = "en") -> None:
        """The bound is an allowed value."""
        self.max_symbol_to_word_ratio = max_symbol_to_word_ratio
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """The share of symbols in all words."""
        words = self._words(text)
        return share(sum(map(_is_symbol, words)), len(words), 1.0)

    def word_counts(self) -> Needed:
        """Words, and those that are symbols."""
        return ("words", 0), ("symbol_words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["symbol_words", 0], counts["words", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_symbol_to_word_ratio
