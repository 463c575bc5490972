# SPDX-License-Identifier: Apache-2.0
"""The quality checks of FineWeb (https://arxiv.org/abs/2406.17557), with the names of datatrove."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.kernels.bytes.punctuation import TERMINAL_PUNCTUATION
from thresher.stages.text.judging.rule import Share, lines_of, share, shares
from thresher.stages.text.judging.score_filter import Check, RuleSet
from thresher.stages.text.rules.sets.gopher_repetition import duplicates

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


class FineWebQualityFilter(RuleSet):
    """Drop documents that look like lists or menus, by how their lines end, repeat and how long they are (FineWeb).

    Line feeds separate lines; blank lines do not count, and white space at the ends of the others is kept. White space
    separates words. A blank text is dropped as `empty`.
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
        """At least `line_punct_thr` of the lines must end with one of `stop_chars` (by default sentence-ending
        punctuation of any script; with `line_punct_exclude_zero` a text without any such line passes). At most
        `short_line_thr` of the lines may have `short_line_length` code points or fewer, at most `char_duplicates_ratio`
        of the code points may be in repeated lines, and at most `new_line_ratio` line feeds per word are allowed."""
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


class FilledLines(Check):
    """Check the number of lines that are not blank."""

    formula = Share("fineweb_lines")

    def score_document(self, text: str) -> int:
        """Return their number."""
        return len(lines_of(text))


class EndedLines(Check):
    """Check the share of lines that end with a stop character."""

    def __init__(self, reason: str, low: float, stop_chars: Sequence[str] | None, exclude_zero: bool) -> None:
        """With `exclude_zero` a text without any such line has the score 1.0."""
        super().__init__(reason, "line_punct_thr", low=low)
        self.stop_chars = None if stop_chars is None else tuple(stop_chars)
        self.exclude_zero = exclude_zero

    def score_document(self, text: str) -> float:
        """Return their share of all lines that are not blank."""
        lines = lines_of(text)
        ends = tuple(TERMINAL_PUNCTUATION) if self.stop_chars is None else self.stop_chars
        ended = sum(line.endswith(ends) for line in lines)
        return 1.0 if self.exclude_zero and not ended else share(ended, len(lines), 0.0)

    def counts(self) -> Needed | None:
        """Request counts from the kernel, which knows only the default stop characters."""
        return (("ended_lines", 0), ("fineweb_lines", 0)) if self.stop_chars is None else None

    def score_counts(self, counts: Counted) -> Scores:
        """Return their share of all lines that are not blank."""
        ended = counts["ended_lines", 0]
        scores = shares(ended, counts["fineweb_lines", 0], 0.0)
        if self.exclude_zero:
            scores[ended == 0] = 1.0
        return scores


class ShortLines(Check):
    """Check the share of short lines."""

    def __init__(self, reason: str, high: float, length: int) -> None:
        """Lines of up to `length` code points are short."""
        super().__init__(reason, "short_line_thr", high=high)
        self.length = length

    def score_document(self, text: str) -> float:
        """Return their share of all lines that are not blank."""
        lines = lines_of(text)
        return share(sum(len(line) <= self.length for line in lines), len(lines), 0.0)

    def counts(self) -> Needed:
        """Request counts of short lines and of all lines that are not blank."""
        return ("short_lines", self.length), ("fineweb_lines", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Return their share of all lines that are not blank."""
        return shares(counts["short_lines", self.length], counts["fineweb_lines", 0], 0.0)


class RepeatedLineCharacters(Check):
    """Check the share of characters in repeated lines."""

    def score_document(self, text: str) -> float:
        """Return their share of all code points except line feeds."""
        return share(duplicates(lines_of(text))[1], len(text) - text.count("\n"), 0.0)

    def counts(self) -> Needed:
        """Request counts of code points in repeated lines and in the text."""
        return ("fineweb_duplicate_characters", 0), ("code_points", 0), ("line_feeds", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Return their share of all code points except line feeds."""
        return shares(
            counts["fineweb_duplicate_characters", 0], counts["code_points", 0] - counts["line_feeds", 0], 0.0
        )


class LineFeedsPerWord(Check):
    """Check the number of line feeds per word."""

    formula = Share("line_feeds", "words")

    def score_document(self, text: str) -> float:
        """Return the number of line feeds per word."""
        return share(text.count("\n"), len(text.split()), 0.0)
