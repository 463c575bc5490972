# SPDX-License-Identifier: Apache-2.0
"""The quality checks of the Gopher paper (https://arxiv.org/abs/2112.11446, A.1.1), with the names of datatrove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.kernels.bytes.punctuation import PUNCTUATION
from thresher.stages.text.judging.rule import Share, share, shares
from thresher.stages.text.judging.score_filter import Check, RuleSet

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Frequent English words."""
BULLETS = ("•", "-")
ELLIPSES = ("...", "…")


class GopherQualityFilter(RuleSet):
    """Keep documents that look like prose, by length, words, symbols, bullets and stop words (Gopher, datatrove).

    White space separates words. Words that consist only of punctuation count in shares, but not in the number and mean
    length of words. A blank text has 0 words with a mean length of 0.0, and every share is 0.0.
    """

    def __init__(  # noqa: PLR0913 - the parameters that users of datatrove know
        self,
        min_doc_words: int | None = 50,
        max_doc_words: int | None = 100000,
        min_avg_word_length: float | None = 3,
        max_avg_word_length: float | None = 10,
        max_symbol_word_ratio: float | None = 0.1,
        max_bullet_lines_ratio: float | None = 0.9,
        max_ellipsis_lines_ratio: float | None = 0.3,
        max_non_alpha_words_ratio: float | None = 0.8,
        min_stop_words: int | None = 2,
        stop_words: list[str] | None = None,
        text_field: str = "text",
    ) -> None:
        """`None` or 0 disables a check. `max_non_alpha_words_ratio` is the least share of words with a letter (the name
        is datatrove's); `min_stop_words` counts distinct `stop_words`."""
        self.min_doc_words, self.max_doc_words = min_doc_words, max_doc_words
        self.min_avg_word_length, self.max_avg_word_length = min_avg_word_length, max_avg_word_length
        self.max_symbol_word_ratio = max_symbol_word_ratio
        self.max_bullet_lines_ratio = max_bullet_lines_ratio
        self.max_ellipsis_lines_ratio = max_ellipsis_lines_ratio
        self.max_non_alpha_words_ratio = max_non_alpha_words_ratio
        self.min_stop_words, self.stop_words = min_stop_words, stop_words
        super().__init__(_checks(self), text_field)


def _checks(own: GopherQualityFilter) -> list[Check]:
    """Return the enabled checks, in the order of datatrove."""
    chain = [
        RealWords("gopher_short_doc", "min_doc_words", low=own.min_doc_words),
        RealWords("gopher_long_doc", "max_doc_words", high=own.max_doc_words),
        RealWordLength("gopher_below_avg_threshold", "min_avg_word_length", low=own.min_avg_word_length),
        RealWordLength("gopher_above_avg_threshold", "max_avg_word_length", high=own.max_avg_word_length),
        HashesPerWord("gopher_too_many_hashes", "max_symbol_word_ratio", high=own.max_symbol_word_ratio),
        EllipsesPerWord("gopher_too_many_ellipsis", "max_symbol_word_ratio", high=own.max_symbol_word_ratio),
        BulletLines("gopher_too_many_bullets", "max_bullet_lines_ratio", high=own.max_bullet_lines_ratio),
        EllipsisLines("gopher_too_many_end_ellipsis", "max_ellipsis_lines_ratio", high=own.max_ellipsis_lines_ratio),
        WordsWithLetters(
            "gopher_below_alpha_threshold", "max_non_alpha_words_ratio", low=own.max_non_alpha_words_ratio
        ),
        StopWords("gopher_enough_stop_words", "min_stop_words", own.stop_words, low=own.min_stop_words),
    ]
    return [check for check in chain if check.low or check.high]


def real_words(text: str) -> list[str]:
    """Return the words that contain a character other than punctuation."""
    return [word for word in text.split() if not PUNCTUATION.issuperset(word)]


class RealWords(Check):
    """Check the number of words, excluding words that consist only of punctuation."""

    formula = Share("non_symbol_words")

    def score_document(self, text: str) -> int:
        """Return their number."""
        return len(real_words(text))


class RealWordLength(Check):
    """Check the mean word length, excluding words that consist only of punctuation."""

    formula = Share("non_symbol_characters", "non_symbol_words")

    def score_document(self, text: str) -> float:
        """Return the number of code points per word."""
        words = real_words(text)
        return share(sum(map(len, words)), len(words), 0.0)


class HashesPerWord(Check):
    """Check the number of hash signs per word."""

    formula = Share("hashes", "words")

    def score_document(self, text: str) -> float:
        """Return the number of hash signs per word."""
        return share(text.count("#"), len(text.split()), 0.0)


class EllipsesPerWord(Check):
    """Check the number of ellipses (three full stops, or the ellipsis character) per word."""

    def score_document(self, text: str) -> float:
        """Return the number of ellipses per word."""
        return share(text.count("...") + text.count("…"), len(text.split()), 0.0)

    def counts(self) -> Needed:
        """Request counts of both forms of an ellipsis, and of words."""
        return ("dots3", 0), ("ellipses", 0), ("words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Return the number of ellipses per word."""
        return shares(counts["dots3", 0] + counts["ellipses", 0], counts["words", 0], 0.0)


class BulletLines(Check):
    """Check the share of lines that start with a bullet or a hyphen; lines are those of `str.splitlines`, including
    blank ones."""

    formula = Share("gopher_bullet_lines", "split_lines")

    def score_document(self, text: str) -> float:
        """Return their share of all lines."""
        lines = text.splitlines()
        return share(sum(line.lstrip().startswith(BULLETS) for line in lines), len(lines), 0.0)


class EllipsisLines(Check):
    """Check the share of lines that end with an ellipsis; lines are those of `str.splitlines`, including blank ones."""

    formula = Share("gopher_ellipsis_lines", "split_lines")

    def score_document(self, text: str) -> float:
        """Return their share of all lines."""
        lines = text.splitlines()
        return share(sum(line.rstrip().endswith(ELLIPSES) for line in lines), len(lines), 0.0)


class WordsWithLetters(Check):
    """Check the share of words that contain a letter (`str.isalpha`)."""

    formula = Share("isalpha_words", "words")

    def score_document(self, text: str) -> float:
        """Return their share of all words."""
        words = text.split()
        return share(sum(any(map(str.isalpha, word)) for word in words), len(words), 0.0)


class StopWords(Check):
    """Check the number of distinct stop words."""

    formula = Share("stop_words")

    def __init__(
        self, reason: str, parameter: str, stop_words: Sequence[str] | None = None, *, low: float | None = None
    ) -> None:
        """`stop_words` defaults to eight English ones."""
        super().__init__(reason, parameter, low=low)
        self.stop_words = sorted(set(STOP_WORDS if stop_words is None else stop_words))

    def score_document(self, text: str) -> int:
        """Return their number."""
        return len(set(self.stop_words).intersection(text.split()))

    def counts(self) -> Needed | None:
        """Request the count from the kernel, which knows only the default stop words."""
        return super().counts() if self.stop_words == sorted(STOP_WORDS) else None
