# SPDX-License-Identifier: Apache-2.0
"""The quality checks of FineWeb (https://arxiv.org/abs/2406.17557), with the names of datatrove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.kernels.punctuation import TERMINAL_PUNCTUATION
from thresher.stages.text.formula import share, shares
from thresher.stages.text.rule_set import Check, RuleSet
from thresher.stages.text.rules.gopher_repetition import duplicates

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


class FineWebQualityFilter(RuleSet):
    """Drop documents that are lists, menus or repeated lines by the ends, lengths and number of lines (FineWeb).

    Lines lie between line feeds; blank ones do not count, and white space at the ends of the others stays. Words are
    what lies between white space. A blank text is dropped as `empty`.
    """

    def __init__(  # noqa: PLR0913 - the parameters that users of datatrove know
        self,
        line_punct_thr: float = 0.12,
        line_punct_exclude_zero: bool = False,
        stop_chars: list[str] | None = None,
        short_line_thr: float = 0.67,
        short_line_length: int = 30,
        char_duplicates_ratio: float = 0.01,
        new_line_ratio: float = 0.3,
        text_field: str = "text",
    ) -> None:
        """At least `line_punct_thr` of the lines must end with one of `stop_chars` (by default what ends a sentence in
        any script; with `line_punct_exclude_zero` none at all will do), at most `short_line_thr` may have
        `short_line_length` code points or fewer, `char_duplicates_ratio` of the code points may be in repeated lines,
        and there may be `new_line_ratio` line feeds per word."""
        self.line_punct_thr, self.line_punct_exclude_zero = line_punct_thr, line_punct_exclude_zero
        self.stop_chars = stop_chars
        self.short_line_thr, self.short_line_length = short_line_thr, short_line_length
        self.char_duplicates_ratio, self.new_line_ratio = char_duplicates_ratio, new_line_ratio
        checks = [
            FilledLines("empty", "min_lines", low=1),
            EndedLines("line_punct_ratio", line_punct_thr, stop_chars, line_punct_exclude_zero),
            ShortLines("short_line_ratio", short_line_thr, short_line_length),
            RepeatedLineCharacters("char_dup_ratio", "char_duplicates_ratio", high=char_duplicates_ratio),
            LineFeedsPerWord("list_ratio", "new_line_ratio", high=new_line_ratio),
        ]
        super().__init__(checks, text_field)


def filled_lines(text: str) -> list[str]:
    """The lines that are not blank, as they are."""
    return [line for line in text.split("\n") if line and not line.isspace()]


class FilledLines(Check):
    """How many lines are not blank."""

    def score_document(self, text: str) -> int:
        """Their number."""
        return len(filled_lines(text))

    def counts(self) -> Needed:
        """Such lines."""
        return (("fineweb_lines", 0),)

    def score_counts(self, counts: Counted) -> Scores:
        """Their number."""
        return counts["fineweb_lines", 0]


class EndedLines(Check):
    """How many lines end like a sentence."""

    def __init__(self, reason: str, low: float, stop_chars: Sequence[str] | None, exclude_zero: bool) -> None:
        """With `exclude_zero` a text without any such line has the score 1.0."""
        super().__init__(reason, "line_punct_thr", low=low)
        self.stop_chars = None if stop_chars is None else tuple(stop_chars)
        self.exclude_zero = exclude_zero

    def score_document(self, text: str) -> float:
        """Their share of all lines that are not blank."""
        lines = filled_lines(text)
        ends = tuple(TERMINAL_PUNCTUATION) if self.stop_chars is None else self.stop_chars
        ended = sum(line.endswith(ends) for line in lines)
        return 1.0 if self.exclude_zero and not ended else share(ended, len(lines), 0.0)

    def counts(self) -> Needed | None:
        """The kernel knows the usual ends."""
        return (("ended_lines", 0), ("fineweb_lines", 0)) if self.stop_chars is None else None

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all lines that are not blank."""
        ended = counts["ended_lines", 0]
        scores = shares(ended, counts["fineweb_lines", 0], 0.0)
        if self.exclude_zero:
            scores[ended == 0] = 1.0
        return scores


class ShortLines(Check):
    """How many lines are short."""

    def __init__(self, reason: str, high: float, length: int) -> None:
        """Lines of up to `length` code points are short."""
        super().__init__(reason, "short_line_thr", high=high)
        self.length = length

    def score_document(self, text: str) -> float:
        """Their share of all lines that are not blank."""
        lines = filled_lines(text)
        return share(sum(len(line) <= self.length for line in lines), len(lines), 0.0)

    def counts(self) -> Needed:
        """Such lines and all lines that are not blank."""
        return ("short_lines", self.length), ("fineweb_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all lines that are not blank."""
        return shares(counts["short_lines", self.length], counts["fineweb_lines", 0], 0.0)


class RepeatedLineCharacters(Check):
    """How much of the text is in lines that were there before."""

    def score_document(self, text: str) -> float:
        """Their share of all code points but line feeds."""
        return share(duplicates(filled_lines(text))[1], len(text) - text.count("\n"), 0.0)

    def counts(self) -> Needed:
        """Code points of such lines, and of the text."""
        return ("fineweb_duplicate_characters", 0), ("code_points", 0), ("line_feeds", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Their share of all code points but line feeds."""
        return shares(
            counts["fineweb_duplicate_characters", 0], counts["code_points", 0] - counts["line_feeds", 0], 0.0
        )


class LineFeedsPerWord(Check):
    """How many line feeds there are per word."""

    def score_document(self, text: str) -> float:
        """Line feeds per word."""
        return share(text.count("\n"), len(text.split()), 0.0)

    def counts(self) -> Needed:
        """Line feeds and words."""
        return ("line_feeds", 0), ("words", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Line feeds per word."""
        return shares(counts["line_feeds", 0], counts["words", 0], 0.0)
