# SPDX-License-Identifier: Apache-2.0
"""The quality checks of the Gopher paper (https://arxiv.org/abs/2112.11446, A.1.1), with the names of datatrove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.kernels.punctuation import PUNCTUATION
from thresher.stages.text.formula import share, shares
from thresher.stages.text.rule_set import Check, RuleSet

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

STOP_WORDS = ("the", "be", "to", "of", "and", "that", "have", "with")
"""Words that English texts are full of."""
BULLETS = ("•", "-")
ELLIPSES = ("...", "…")


class GopherQualityFilter(RuleSet):
    """Keep documents that look like prose by length, words, symbols, bullets and stop words (Gopher, datatrove).

    Words are what lies between white space. A word of punctuation alone counts in shares but not in the number and the
    mean length of words. A blank text has no words: 0 of them, with a mean length of 0.0, and every share is 0.0.
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
        """`None` or 0 turns a check off. `max_non_alpha_words_ratio` is the least share of words with a letter (the
        name is datatrove's); `min_stop_words` counts different `stop_words`."""
        self.min_doc_words, self.max_doc_words = min_doc_words, max_doc_words
        self.min_avg_word_length, self.max_avg_word_length = min_avg_word_length, max_avg_word_length
        self.max_symbol_word_ratio = max_symbol_word_ratio
        self.max_bullet_lines_ratio = max_bullet_lines_ratio
        self.max_ellipsis_lines_ratio = max_ellipsis_lines_ratio
        self.max_non_alpha_words_ratio = max_non_alpha_words_ratio
        self.min_stop_words, self.stop_words = min_stop_words, stop_words
        super().__init__(_checks(self), text_field)


def _checks(own: GopherQualityFilter) -> list[Check]:
    """Every check that is not turned off, in the order of datatrove."""
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
    """The words that have a character other than punctuation."""
    return [word for word in text.split() if not PUNCTUATION.issuperset(word)]


class RealWords(Check):
    """How many words there are, words of punctuation alone left out."""

    def score_document(self, text: str) -> int:
        """Their number."""
        return len(real_words(text))

    def counts(self) -> Needed:
        """Words that are no punctuation."""
        return (("non_symbol_words", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Their number."""
        return counts["non_symbol_words", 0]


class RealWordLength(Check):
    """How long words are on average, words of punctuation alone left out."""

    def score_document(self, text: str) -> float:
        """Code points per word."""
        words = real_words(text)
        return share(sum(map(len, words)), len(words), 0.0)

    def counts(self) -> Needed:
        """Words that are no punctuation, and their code points."""
        return ("non_symbol_characters", 0), ("non_symbol_words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Code points per word."""
        return shares(counts["non_symbol_characters", 0], counts["non_symbol_words", 0], 0.0)


class HashesPerWord(Check):
    """How many hash signs there are per word."""

    def score_document(self, text: str) -> float:
        """Hash signs per word."""
        return share(text.count("#"), len(text.split()), 0.0)

    def counts(self) -> Needed:
        """Hash signs and words."""
        return ("hashes", 0), ("words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Hash signs per word."""
        return shares(counts["hashes", 0], counts["words", 0], 0.0)


class EllipsesPerWord(Check):
    """How many ellipses there are per word: three full stops, or the character for them."""

    def score_document(self, text: str) -> float:
        """Ellipses per word."""
        return share(text.count("...") + text.count("…"), len(text.split()), 0.0)

    def counts(self) -> Needed:
        """Both forms of an ellipsis, and words."""
        return ("dots3", 0), ("ellipses", 0), ("words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Ellipses per word."""
        return shares(counts["dots3", 0] + counts["ellipses", 0], counts["words", 0], 0.0)


class BulletLines(Check):
    """How many lines begin with a bullet or a hyphen; lines are those of `str.splitlines`, blank ones too."""

    def score_document(self, text: str) -> float:
        """Their share of all lines."""
        lines = text.splitlines()
        return share(sum(line.lstrip().startswith(BULLETS) for line in lines), len(lines), 0.0)

    def counts(self) -> Needed:
        """Such lines and all lines."""
        return ("gopher_bullet_lines", 0), ("split_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all lines."""
        return shares(counts["gopher_bullet_lines", 0], counts["split_lines", 0], 0.0)


class EllipsisLines(Check):
    """How many lines end with an ellipsis; lines are those of `str.splitlines`, blank ones too."""

    def score_document(self, text: str) -> float:
        """Their share of all lines."""
        lines = text.splitlines()
        return share(sum(line.rstrip().endswith(ELLIPSES) for line in lines), len(lines), 0.0)

    def counts(self) -> Needed:
        """Such lines and all lines."""
        return ("gopher_ellipsis_lines", 0), ("split_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all lines."""
        return shares(counts["gopher_ellipsis_lines", 0], counts["split_lines", 0], 0.0)


class WordsWithLetters(Check):
    """How many words have a letter (`str.isalpha`)."""

    def score_document(self, text: str) -> float:
        """Their share of all words."""
        words = text.split()
        return share(sum(any(map(str.isalpha, word)) for word in words), len(words), 0.0)

    def counts(self) -> Needed:
        """Such words and all words."""
        return ("isalpha_words", 0), ("words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all words."""
        return shares(counts["isalpha_words", 0], counts["words", 0], 0.0)


class StopWords(Check):
    """How many different stop words there are."""

    def __init__(
        self, reason: str, parameter: str, stop_words: Sequence[str] | None = None, *, low: float | None = None
    ) -> None:
        """`stop_words` are eight English ones unless they are given."""
        super().__init__(reason, parameter, low=low)
        self.stop_words = sorted(set(STOP_WORDS if stop_words is None else stop_words))

    def score_document(self, text: str) -> int:
        """Their number."""
        return len(set(self.stop_words).intersection(text.split()))

    def counts(self) -> Needed | None:
        """The kernel knows the usual ones."""
        return (("stop_words", 0),) if self.stop_words == sorted(STOP_WORDS) else None

    def score_counts(self, counts: Counted) -> Scores:
        """Their number."""
        return counts["stop_words", 0]
