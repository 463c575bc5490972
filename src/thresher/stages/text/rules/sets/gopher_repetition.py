# SPDX-License-Identifier: Apache-2.0
"""The repetition checks of the Gopher paper (https://arxiv.org/abs/2112.11446, table A1), named as in datatrove."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.errors import UsageError
from thresher.stages.text.judging.rule import Share, share, shares
from thresher.stages.text.judging.score_filter import Check, RuleSet

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores

TOP_N_GRAMS = ((2, 0.2), (3, 0.18), (4, 0.16))
DUPLICATE_N_GRAMS = ((5, 0.15), (6, 0.14), (7, 0.13), (8, 0.12), (9, 0.11), (10, 0.10))
_BETWEEN_LINES = re.compile("\n+")
_BETWEEN_PARAGRAPHS = re.compile("\n{2,}")


class GopherRepetitionFilter(RuleSet):
    """Drop documents with too many repeated lines, paragraphs or word n-grams (Gopher, datatrove).

    White space separates words. Shares of characters refer to all code points of the text, including white space. An
    empty text is dropped as `empty`; a text with fewer than n words has no n-grams and the score 0.0.
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
        """The largest allowed shares; `None` or 0 disables a check of lines or paragraphs. `top_n_grams` and
        `dup_n_grams` are pairs of n and the largest share."""
        self.dup_line_frac, self.dup_para_frac = dup_line_frac, dup_para_frac
        self.dup_line_char_frac, self.dup_para_char_frac = dup_line_char_frac, dup_para_char_frac
        self.top_n_grams, self.dup_n_grams = _pairs("top_n_grams", top_n_grams), _pairs("dup_n_grams", dup_n_grams)
        super().__init__(_checks(self), text_field)


def _checks(own: GopherRepetitionFilter) -> list[Check]:
    """Return the enabled checks, in the order of datatrove."""
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
                f"GopherRepetitionFilter.{parameter}: {pair!r} is not a pair of a number of words and a share;"
                " write it as [2, 0.2]"
            )
        pairs.append((pair[0], float(pair[1])))
    return tuple(pairs)


def duplicates(pieces: Sequence[str]) -> tuple[int, int]:
    """Return the number of repeated pieces, and the code points in them."""
    seen: set[str] = set()
    number = characters = 0
    for piece in pieces:
        if piece in seen:
            number += 1
            characters += len(piece)
        seen.add(piece)
    return number, characters


def lines_of(text: str) -> list[str]:
    """Return the text between line feeds; several in a row are one separator. White space is kept."""
    return _BETWEEN_LINES.split(text)


def paragraphs_of(text: str) -> list[str]:
    """Return the text between two or more consecutive line feeds, without white space at the ends of the text."""
    return _BETWEEN_PARAGRAPHS.split(text.strip())


class TextLength(Check):
    """Check the length of the text."""

    formula = Share("code_points")

    def score_document(self, text: str) -> int:
        """Return the number of code points."""
        return len(text)


class DuplicateParagraphs(Check):
    """Check the share of repeated paragraphs."""

    formula = Share("gopher_duplicate_paragraphs", "gopher_paragraphs")

    def score_document(self, text: str) -> float:
        """Return their share of all paragraphs."""
        paragraphs = paragraphs_of(text)
        return share(duplicates(paragraphs)[0], len(paragraphs), 0.0)


class DuplicateParagraphCharacters(Check):
    """Check the share of characters in repeated paragraphs."""

    formula = Share("gopher_duplicate_paragraph_characters", "code_points")

    def score_document(self, text: str) -> float:
        """Return their share of all code points."""
        return share(duplicates(paragraphs_of(text))[1], len(text), 0.0)


class DuplicateLines(Check):
    """Check the share of repeated lines."""

    formula = Share("gopher_duplicate_lines", "gopher_lines")

    def score_document(self, text: str) -> float:
        """Return their share of all lines."""
        lines = lines_of(text)
        return share(duplicates(lines)[0], len(lines), 0.0)


class DuplicateLineCharacters(Check):
    """Check the share of characters in repeated lines."""

    formula = Share("gopher_duplicate_line_characters", "code_points")

    def score_document(self, text: str) -> float:
        """Return their share of all code points."""
        return share(duplicates(lines_of(text))[1], len(text), 0.0)


class TopNGram(Check):
    """Check the share of the text that the most frequent n-gram makes up; on a tie the first n-gram wins."""

    def __init__(self, reason: str, parameter: str, n: int, high: float) -> None:
        """An n-gram has `n` words."""
        super().__init__(reason, parameter, high=high)
        self.n = n

    def score_document(self, text: str) -> float:
        """Return its code points (words joined by one space) times its occurrences, as a share of all code points."""
        words = text.split()
        grams = Counter(" ".join(words[at : at + self.n]) for at in range(len(words) - self.n + 1))
        if not grams:
            return 0.0
        top, times = grams.most_common(1)[0]
        return share(len(top) * times, len(text), 0.0)

    def counts(self) -> Needed:
        """Request counts of code points in the most frequent n-gram and in the text."""
        return ("gopher_top_characters", self.n), ("code_points", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Return its share of all code points."""
        return shares(counts["gopher_top_characters", self.n], counts["code_points", 0], 0.0)


class DuplicateNGrams(Check):
    """Check the share of characters in repeated n-grams; after a repeated n-gram the search continues n words later."""

    def __init__(self, reason: str, parameter: str, n: int, high: float) -> None:
        """An n-gram has `n` words, which are joined without a space."""
        super().__init__(reason, parameter, high=high)
        self.n = n

    def score_document(self, text: str) -> float:
        """Return their share of all code points."""
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
        """Request counts of code points in repeated n-grams and in the text."""
        return ("gopher_duplicate_characters", self.n), ("code_points", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Return their share of all code points."""
        return shares(counts["gopher_duplicate_characters", self.n], counts["code_points", 0], 0.0)
