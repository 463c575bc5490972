# SPDX-License-Identifier: Apache-2.0
"""The repetition checks of the Gopher paper (https://arxiv.org/abs/2112.11446, table A1), named as in datatrove."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.errors import UsageError
from thresher.stages.text.formula import share, shares
from thresher.stages.text.rule_set import Check, RuleSet

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

TOP_N_GRAMS = ((2, 0.2), (3, 0.18), (4, 0.16))
DUPLICATE_N_GRAMS = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
_BETWEEN_LINES = re.compile("\n+")
_BETWEEN_PARAGRAPHS = re.compile("\n{2,}")


class GopherRepetitionFilter(RuleSet):
    """Drop documents whose lines, paragraphs or word n-grams come again and again (Gopher, datatrove).

    Words are what lies between white space. Shares of characters are code points of all of the text, white space
    included. An empty text is dropped as `empty`; a text with fewer than n words has no n-grams and the score 0.0.
    """

    def __init__(  # noqa: PLR0913 - the parameters that users of datatrove know
        self,
        dup_line_frac: float | None = 0.3,
        dup_para_frac: float | None = 0.3,
        dup_line_char_frac: float | None = 0.2,
        dup_para_char_frac: float | None = 0.2,
        top_n_grams: Sequence[Sequence[float]] = TOP_N_GRAMS,
        dup_n_grams: Sequence[Sequence[float]] = DUPLICATE_N_GRAMS,
        text_field: str = "text",
    ) -> None:
        """The largest shares that are kept; `None` or 0 turns a check of lines or paragraphs off. `top_n_grams` and
        `dup_n_grams` are pairs of n and the largest share."""
        self.dup_line_frac, self.dup_para_frac = dup_line_frac, dup_para_frac
        self.dup_line_char_frac, self.dup_para_char_frac = dup_line_char_frac, dup_para_char_frac
        self.top_n_grams, self.dup_n_grams = _pairs("top_n_grams", top_n_grams), _pairs("dup_n_grams", dup_n_grams)
        super().__init__(_checks(self), text_field)


def _checks(own: GopherRepetitionFilter) -> list[Check]:
    """Every check that is not turned off, in the order of datatrove."""
    pieces = [
        DuplicateParagraphs("dup_para_frac", "dup_para_frac", high=own.dup_para_frac),
        DuplicateParagraphCharacters("dup_para_char_frac", "dup_para_char_frac", high=own.dup_para_char_frac),
        DuplicateLines("dup_line_frac", "dup_line_frac", high=own.dup_line_frac),
        DuplicateLineCharacters("dup_line_char_frac", "dup_line_char_frac", high=own.dup_line_char_frac),
    ]
    return [
        TextLength("empty", "min_characters", low=1),
        *[check for check in pieces if check.high],
        *[TopNGram(f"top_{n}_gram", "top_n_grams", n, high) for n, high in own.top_n_grams],
        *[DuplicateNGrams(f"duplicated_{n}_n_grams", "dup_n_grams", n, high) for n, high in own.dup_n_grams],
    ]


def _pairs(parameter: str, given: Sequence[Sequence[float]]) -> tuple[tuple[int, float], ...]:
    pairs = []
    for pair in given:
        if len(pair) != 2 or not isinstance(pair[0], int) or pair[0] < 1:
            raise UsageError(
                f"GopherRepetitionFilter.{parameter}: {pair!r} is no pair of a number of words and a share;"
                " write it as [2, 0.2]"
            )
        pairs.append((pair[0], float(pair[1])))
    return tuple(pairs)


def duplicates(pieces: Sequence[str]) -> tuple[int, int]:
    """How many pieces were there before, and the code points in them."""
    seen: set[str] = set()
    number = characters = 0
    for piece in pieces:
        if piece in seen:
            number += 1
            characters += len(piece)
        seen.add(piece)
    return number, characters


def lines_of(text: str) -> list[str]:
    """What lies between line feeds; several in a row are one border. White space stays."""
    return _BETWEEN_LINES.split(text)


def paragraphs_of(text: str) -> list[str]:
    """What lies between two or more line feeds in a row, without white space at the ends of the text."""
    return _BETWEEN_PARAGRAPHS.split(text.strip())


class TextLength(Check):
    """How long the text is."""

    def score_document(self, text: str) -> int:
        """Code points."""
        return len(text)

    def counts(self) -> Needed:
        """Code points."""
        return (("code_points", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Code points."""
        return counts["code_points", 0]


class DuplicateParagraphs(Check):
    """How many paragraphs were there before."""

    def score_document(self, text: str) -> float:
        """Their share of all paragraphs."""
        paragraphs = paragraphs_of(text)
        return share(duplicates(paragraphs)[0], len(paragraphs), 0.0)

    def counts(self) -> Needed:
        """Such paragraphs and all paragraphs."""
        return ("gopher_duplicate_paragraphs", 0), ("gopher_paragraphs", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all paragraphs."""
        return shares(counts["gopher_duplicate_paragraphs", 0], counts["gopher_paragraphs", 0], 0.0)


class DuplicateParagraphCharacters(Check):
    """How much of the text is in paragraphs that were there before."""

    def score_document(self, text: str) -> float:
        """Their share of all code points."""
        return share(duplicates(paragraphs_of(text))[1], len(text), 0.0)

    def counts(self) -> Needed:
        """Code points of such paragraphs and of the text."""
        return ("gopher_duplicate_paragraph_characters", 0), ("code_points", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all code points."""
        return shares(counts["gopher_duplicate_paragraph_characters", 0], counts["code_points", 0], 0.0)


class DuplicateLines(Check):
    """How many lines were there before."""

    def score_document(self, text: str) -> float:
        """Their share of all lines."""
        lines = lines_of(text)
        return share(duplicates(lines)[0], len(lines), 0.0)

    def counts(self) -> Needed:
        """Such lines and all lines."""
        return ("gopher_duplicate_lines", 0), ("gopher_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all lines."""
        return shares(counts["gopher_duplicate_lines", 0], counts["gopher_lines", 0], 0.0)


class DuplicateLineCharacters(Check):
    """How much of the text is in lines that were there before."""

    def score_document(self, text: str) -> float:
        """Their share of all code points."""
        return share(duplicates(lines_of(text))[1], len(text), 0.0)

    def counts(self) -> Needed:
        """Code points of such lines and of the text."""
        return ("gopher_duplicate_line_characters", 0), ("code_points", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all code points."""
        return shares(counts["gopher_duplicate_line_characters", 0], counts["code_points", 0], 0.0)


class TopNGram(Check):
    """How much of the text the most frequent n-gram makes up; of several the one that comes first."""

    def __init__(self, reason: str, parameter: str, n: int, high: float) -> None:
        """`n` words make an n-gram."""
        super().__init__(reason, parameter, high=high)
        self.n = n

    def score_document(self, text: str) -> float:
        """Its code points (words joined by one space) times its occurrences, as a share of all code points."""
        words = text.split()
        grams = Counter(" ".join(words[at : at + self.n]) for at in range(len(words) - self.n + 1))
        if not grams:
            return 0.0
        top, times = grams.most_common(1)[0]
        return share(len(top) * times, len(text), 0.0)

    def counts(self) -> Needed:
        """What the most frequent n-gram covers, and the code points of the text."""
        return ("gopher_top_characters", self.n), ("code_points", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Its share of all code points."""
        return shares(counts["gopher_top_characters", self.n], counts["code_points", 0], 0.0)


class DuplicateNGrams(Check):
    """How much of the text is in n-grams that were there before; behind a hit the search goes on n words later."""

    def __init__(self, reason: str, parameter: str, n: int, high: float) -> None:
        """`n` words make an n-gram; they are joined without a space."""
        super().__init__(reason, parameter, high=high)
        self.n = n

    def score_document(self, text: str) -> float:
        """Their share of all code points."""
        words = text.split()
        seen: set[str] = set()
        characters = at = 0
        while at <= len(words) - self.n:
            gram = "".join(words[at : at + self.n])
            if gram in seen:
                characters += len(gram)
                at += self.n
            else:
                seen.add(gram)
                at += 1
        return share(characters, len(text), 0.0)

    def counts(self) -> Needed:
        """Code points of such n-grams and of the text."""
        return ("gopher_duplicate_characters", self.n), ("code_points", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all code points."""
        return shares(counts["gopher_duplicate_characters", self.n], counts["code_points", 0], 0.0)
