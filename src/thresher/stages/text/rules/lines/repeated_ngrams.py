# SPDX-License-Identifier: Apache-2.0
"""Rules about repeated n-grams."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from thresher.kernels.bytes.tie_hash import phrase_hash
from thresher.stages.text.columns.segmenters import is_segmented
from thresher.stages.text.judging.rule import WordRule, checked_size, share, shares

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class RepeatingDuplicateNGramsFilter(WordRule):
    """Drop documents whose repeated n-grams make up too much of the text.

    Every occurrence of an n-gram after its first counts, with one space between words; words that overlapping
    occurrences share count once. A text with fewer than n words has the score 1.0.
    """

    at_most = "max_repeating_duplicate_ngram_ratio"

    def __init__(self, n: int = 2, max_repeating_duplicate_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.n = checked_size("RepeatingDuplicateNGramsFilter", n)
        self.max_repeating_duplicate_ngram_ratio = max_repeating_duplicate_ngram_ratio
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the share of code points in repeated n-grams."""
        words = self._words(text)
        if len(words) < self.n:
            return 1.0
        return share(_repeated_characters(words, self.n), len(text), 1.0)

    def word_counts(self) -> Needed:
        """Request counts of code points, words and code points in repeated n-grams."""
        return ("code_points", 0), ("words", 0), ("duplicate_ngram_characters", self.n)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        found = shares(counts["duplicate_ngram_characters", self.n], counts["code_points", 0], 1.0)
        found[counts["words", 0] < self.n] = 1.0
        return found


def _repeated_characters(words: list[str], n: int) -> int:
    seen: set[tuple[str, ...]] = set()
    characters = 0
    counted_to = 0  # words before this index are already counted; an overlapping n-gram must not count them again
    for index, phrase in enumerate(zip(*(words[first:] for first in range(n)), strict=False)):
        if phrase in seen:
            new = phrase[max(counted_to - index, 0) :]
            characters += sum(map(len, new)) + min(len(new), n - 1)
            counted_to = index + n
        seen.add(phrase)
    return characters


class RepeatingTopNGramsFilter(WordRule):
    """Drop documents whose most frequent n-gram makes up too much of the text.

    The score is the share of code points that disappear if every occurrence of the n-gram, its words joined by single
    spaces, is removed from the text, also inside longer words. Among equally frequent n-grams the one with the smallest
    fixed hash is used, so that the score is the same on every run and does not favour a position in the document. In a
    language that is written without spaces the words are joined without a space, and the n-gram is removed from the
    text without its white space. A text with fewer than n words has the score 1.0.
    """

    at_most = "max_repeating_ngram_ratio"

    def __init__(self, n: int = 2, max_repeating_ngram_ratio: float = 0.2, lang: str = "en") -> None:
        """The bound is inclusive."""
        self.n = checked_size("RepeatingTopNGramsFilter", n)
        self.max_repeating_ngram_ratio = max_repeating_ngram_ratio
        self._set_language(lang)

    def score_document(self, text: str) -> float:
        """Return the share of the n-gram in all code points."""
        words = self._words(text)
        if len(words) < self.n:
            return 1.0
        phrase = _most_frequent(words, self.n)
        between, body = ("", "".join(words)) if is_segmented(self.lang) else (" ", text)
        return share(len(body) - len(body.replace(between.join(phrase), "")), len(text), 1.0)

    def word_counts(self) -> Needed:
        """Request counts of code points, words and removed code points."""
        return ("code_points", 0), ("words", 0), ("top_ngram_characters", self.n)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        found = shares(counts["top_ngram_characters", self.n], counts["code_points", 0], 1.0)
        found[counts["words", 0] < self.n] = 1.0
        return found


def _most_frequent(words: list[str], n: int) -> tuple[str, ...]:
    occurrences = Counter(zip(*(words[first:] for first in range(n)), strict=False))
    most = max(occurrences.values())
    return min((phrase for phrase, number in occurrences.items() if number == most), key=phrase_hash)
