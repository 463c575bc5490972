# SPDX-License-Identifier: Apache-2.0
"""How many words a document has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.stages.text.word_rule import WordRule

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class WordCountFilter(WordRule):
    """Keep documents with a number of words between two bounds.

    Words are what lies between white space (`str.split()`), or what the segmenter of `lang` finds. A blank text has 0.
    """

    def __init__(self, min_words: int = 50, max_words: int = 100000, lang: str = "en") -> None:
        """Both bounds are allowed values."""
        self.min_words = min_words
        self.max_words = max_words
        self._set_language(lang)

    def score_document(self, text: str) -> int:
        """The number of words."""
        return len(self._words(text))

    def word_counts(self) -> Needed:
        """Just that number."""
        return (("words", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """The same number."""
        return counts["words", 0]

    def allowed(self) -> tuple[float, float]:
        """What lies between the bounds."""
        return self.min_words, self.max_words
