# SPDX-License-Identifier: Apache-2.0
"""Rules about the number and length of words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule, WordRule, share, shares

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class WordCountFilter(WordRule):
    """Keep documents whose number of words is within bounds.

    Words are separated by white space (`str.split()`), or found by the segmenter of `lang`. A blank text has 0 words.
    """

    def __init__(self, min_words: int = 50, max_words: int = 100000, lang: str = "en") -> None:
        """Both bounds are inclusive."""
        self.min_words = min_words
        self.max_words = max_words
        self._set_language(lang)

    def score_document(self, text: str) -> int:
        """Return the number of words."""
        return len(self._words(text))

    def word_counts(self) -> Needed:
        """Request the count of words."""
        return (("words", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same number from the counts."""
        return counts["words", 0]

    def allowed(self) -> tuple[float, float]:
        """Allow scores within the bounds."""
        return self.min_words, self.max_words


class MeanWordLengthFilter(WordRule):
    """Keep documents whose mean word length is within bounds.

    Lengths are code points. A blank text has no words and the score 0.0.
    """

    def __init__(self, min_mean_word_length: float = 3, max_mean_word_length: float = 10, lang: str = "en") -> None:
        """Both bounds are inclusive."""
        self.min_mean_word_length = min_mean_word_length
        self.max_mean_word_length = max_mean_word_length
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the mean number of code points per word."""
        words = self._words(text)
        return share(sum(map(len, words)), len(words), 0.0)

    def word_counts(self) -> Needed:
        """Request counts of words and of code points in them."""
        return ("words", 0), ("word_characters", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same mean from the counts."""
        return shares(counts["word_characters", 0], counts["words", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """Allow scores within the bounds."""
        return self.min_mean_word_length, self.max_mean_word_length


class LongWordFilter(WordRule):
    """Drop documents with a very long word, such as minified code and encoded data.

    Lengths are code points. A blank text has no words and the score 0, which is kept.
    """

    def __init__(self, max_word_length: int = 1000, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.max_word_length = max_word_length
        self._set_language(lang)

    def score_document(self, text: str) -> int:
        """Return the length of the longest word."""
        return max(map(len, self._words(text)), default=0)

    def word_counts(self) -> Needed:
        """Request the length of the longest word."""
        return (("longest_word", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same length from the counts."""
        return counts["longest_word", 0]

    def allowed(self) -> tuple[float, float]:
        """Allow lengths up to the bound."""
        return -math.inf, self.max_word_length


COMMON_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})


class CommonEnglishWordsFilter(CountRule):
    """Keep documents that contain enough of the words the, be, to, of, and, that, have, with (in lower case).

    Every occurrence counts. A blank text has the score 0.
    """

    def __init__(self, min_num_common_words: int = 2, stop_at_false: bool = True) -> None:
        """The bound is inclusive. `stop_at_false` stops counting at the bound, so that no score is larger."""
        self.min_num_common_words = min_num_common_words
        self.stop_at_false = stop_at_false

    def score_document(self, text: str) -> int:
        """Return the number of common words."""
        found = sum(word in COMMON_WORDS for word in text.split())
        return min(found, self._enough()) if self.stop_at_false else found

    def counts(self) -> Needed:
        """Request the count of common words."""
        return (("common_words", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same number from the counts."""
        found = counts["common_words", 0]
        return found.clip(max=self._enough()) if self.stop_at_false else found

    def _enough(self) -> int:
        return max(math.ceil(self.min_num_common_words), 0)

    def allowed(self) -> tuple[float, float]:
        """Allow numbers of at least the bound."""
        return self.min_num_common_words, math.inf
