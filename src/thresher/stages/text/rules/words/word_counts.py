# SPDX-License-Identifier: Apache-2.0
"""Rules about words: their number, length and kind."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from thresher.stages.text.judging.rule import CountRule, Share, WordRule, share
from thresher.stages.text.rules.characters.character_shares import alphabetic
from thresher.stages.text.rules.lines.line_marks import ELLIPSIS_MARKS

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class WordCountFilter(WordRule):
    """Keep documents whose number of words is within bounds.

    Words are separated by white space (`str.split()`), or found by the segmenter of `lang`. A blank text has 0 words.
    """

    formula = Share("words")
    at_least, at_most = "min_words", "max_words"

    def __init__(self, min_words: int = 50, max_words: int = 100000, lang: str = "en") -> None:
        """Both bounds are inclusive."""
        self.min_words = min_words
        self.max_words = max_words
        self._set_language(lang)

    def score_document(self, text: str) -> int:
        """Return the number of words."""
        return len(self._words(text))


class MeanWordLengthFilter(WordRule):
    """Keep documents whose mean word length is within bounds.

    Lengths are code points. A blank text has no words and the score 0.0.
    """

    formula = Share("word_characters", "words")
    at_least, at_most = "min_mean_word_length", "max_mean_word_length"

    def __init__(self, min_mean_word_length: float = 3, max_mean_word_length: float = 10, lang: str = "en") -> None:
        """Both bounds are inclusive."""
        self.min_mean_word_length = min_mean_word_length
        self.max_mean_word_length = max_mean_word_length
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the mean number of code points per word."""
        words = self._words(text)
        return share(sum(map(len, words)), len(words), 0.0)


class LongWordFilter(WordRule):
    """Drop documents with a very long word, such as minified code and encoded data.

    Lengths are code points. A blank text has no words and the score 0, which is kept.
    """

    formula = Share("longest_word")
    at_most = "max_word_length"

    def __init__(self, max_word_length: int = 1000, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.max_word_length = max_word_length
        self._set_language(lang)

    def score_document(self, text: str) -> int:
        """Return the length of the longest word."""
        return max(map(len, self._words(text)), default=0)


COMMON_WORDS = frozenset({"the", "be", "to", "of", "and", "that", "have", "with"})


class CommonEnglishWordsFilter(CountRule):
    """Keep documents that contain enough of the words the, be, to, of, and, that, have, with (in lower case).

    Every occurrence counts. A blank text has the score 0.
    """

    at_least = "min_num_common_words"

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


_HASHES = re.compile("#+")


def _is_symbol(word: str) -> bool:
    return word in ELLIPSIS_MARKS or ("#" in word and len(_HASHES.findall(word)) / len(word) > 0.5)


class SymbolsToWordsFilter(WordRule):
    """Drop documents with too many words that are ellipses or mostly `#`.

    A word counts if it is an ellipsis mark, or if the number of its runs of `#` is more than half its length: `#` and
    `#a#` count, `##` and `#a` do not. A blank text has no words and the score 1.0.
    """

    formula = Share("symbol_words", "words", of_nothing=1.0)
    at_most = "max_symbol_to_word_ratio"

    def __init__(self, max_symbol_to_word_ratio: float = 0.1, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.max_symbol_to_word_ratio = max_symbol_to_word_ratio
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the share of symbols in all words."""
        words = self._words(text)
        return share(sum(map(_is_symbol, words)), len(words), 1.0)


class WordsWithoutAlphabetsFilter(WordRule):
    """Keep documents in which enough words contain a letter.

    A letter is any character that Unicode defines as alphabetic, of any script. A blank text has no words and the score
    0.0.
    """

    formula = Share("alpha_words", "words")
    at_least = "min_words_with_alphabets"

    def __init__(self, min_words_with_alphabets: float = 0.8, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.min_words_with_alphabets = min_words_with_alphabets
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the share of words with a letter in all words."""
        words, letter = self._words(text), alphabetic()
        return share(sum(letter.search(word) is not None for word in words), len(words), 0.0)
