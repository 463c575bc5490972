# SPDX-License-Identifier: Apache-2.0
"""Rules about the share of a class of characters in a document."""

from __future__ import annotations

import functools
import re
import string
from typing import TYPE_CHECKING, Any

from thresher.stages.text.judging.rule import CountRule, Share, share, shares

if TYPE_CHECKING:
    from thresher.stages.text.judging.rule import Counted, Needed, Scores


@functools.cache
def alphabetic() -> Any:
    """Return a pattern that matches one letter as Unicode defines alphabetic, which differs from `str.isalpha`."""
    import regex

    return regex.compile("[[:alpha:]]")


class AlphaFilter(CountRule):
    """Keep documents with a large enough share of letters; tables and tensors stored as text are dropped.

    A letter is what Unicode calls alphabetic, of any script. An empty text has the score 0.0.
    """

    formula = Share("alpha_characters", "code_points")
    at_least = "min_alpha_ratio"

    def __init__(self, min_alpha_ratio: float = 0.25) -> None:
        """The bound is inclusive."""
        self.min_alpha_ratio = min_alpha_ratio

    def score_document(self, text: str) -> float:
        """Return the share of letters in all code points."""
        return share(len(alphabetic().findall(text)), len(text), 0.0)


_COMMON = (string.ascii_letters + string.digits + "\n?!,.").encode()


def common_characters(text: str) -> int:
    """Return the number of ASCII letters, digits, line feeds and `? ! , .` in a text."""
    # These are single bytes in UTF-8 and never part of a longer sequence, so bytes can be counted.
    data = text.encode("utf-8", "surrogatepass")
    return len(data) - len(data.translate(None, _COMMON))


class NonAlphaNumericFilter(CountRule):
    """Drop documents with too many characters other than ASCII letters, digits, line feeds and `? ! , .`.

    A space counts as such a character, and so does every letter outside ASCII. An empty text has the score 1.0.
    """

    at_most = "max_non_alpha_numeric_to_text_ratio"

    def __init__(self, max_non_alpha_numeric_to_text_ratio: float = 0.25) -> None:
        """The bound is inclusive."""
        self.max_non_alpha_numeric_to_text_ratio = max_non_alpha_numeric_to_text_ratio

    def score_document(self, text: str) -> float:
        """Return the share of other characters in all code points."""
        return share(len(text) - common_characters(text), len(text), 1.0)

    def counts(self) -> Needed:
        """Request counts of code points and common characters."""
        return ("code_points", 0), ("common", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """Compute the same share from the counts."""
        length = counts["code_points", 0]
        return shares(length - counts["common", 0], length, 1.0)


_DIGIT = re.compile("[0-9]")


class NumbersFilter(CountRule):
    """Drop documents with too large a share of digits.

    Only 0 to 9 count as digits. An empty text has the score 1.0.
    """

    formula = Share("digits", "code_points", of_nothing=1.0)
    at_most = "max_number_to_text_ratio"

    def __init__(self, max_number_to_text_ratio: float = 0.15) -> None:
        """The bound is inclusive."""
        self.max_number_to_text_ratio = max_number_to_text_ratio

    def score_document(self, text: str) -> float:
        """Return the share of digits in all code points."""
        return share(len(_DIGIT.findall(text)), len(text), 1.0)


_BRACKETS = "{}[]()\u27e8\u27e9"


class ParenthesesFilter(CountRule):
    """Drop documents with too many brackets: `( ) [ ] { }` and the mathematical `⟨ ⟩`.

    The text inside brackets does not count. An empty text has the score 1.0.
    """

    formula = Share("parentheses", "code_points", of_nothing=1.0)
    at_most = "max_parentheses_ratio"

    def __init__(self, max_parentheses_ratio: float = 0.1) -> None:
        """The bound is inclusive."""
        self.max_parentheses_ratio = max_parentheses_ratio

    def score_document(self, text: str) -> float:
        """Return the share of brackets in all code points."""
        return share(sum(map(text.count, _BRACKETS)), len(text), 1.0)


_WHITE_SPACE = "\t\n\r\b "


class WhiteSpaceFilter(CountRule):
    """Drop documents with too large a share of white space.

    White space here is a tab, line feed, carriage return, backspace or space; other rules split words at all Unicode
    white space. An empty text has the score 1.0.
    """

    formula = Share("white_space", "code_points", of_nothing=1.0)
    at_most = "max_white_space_ratio"

    def __init__(self, max_white_space_ratio: float = 0.25) -> None:
        """The bound is inclusive."""
        self.max_white_space_ratio = max_white_space_ratio

    def score_document(self, text: str) -> float:
        """Return the share of white space in all code points."""
        return share(sum(map(text.count, _WHITE_SPACE)), len(text), 1.0)
