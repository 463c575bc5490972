# SPDX-License-Identifier: Apache-2.0
"""Rules about the occurrence of a pattern or text in a document."""

from __future__ import annotations

import re
from collections.abc import Callable

from thresher.errors import UsageError
from thresher.stages.text.judging.rule import DocumentFilter


class RegexFilter(DocumentFilter):
    """Drop documents that a regular expression matches anywhere.

    The score is 1 for a match, else 0. Set `invert` on the stage to keep only those documents.
    """

    def __init__(self, regex_exp: str) -> None:
        """`regex_exp` is a pattern for Python's `re`; it may match anywhere in the text."""
        self.regex_exp = regex_exp
        try:
            self._pattern = re.compile(regex_exp)
        except re.error as error:
            raise UsageError(f"RegexFilter.regex_exp: {regex_exp!r} is not a regular expression: {error}") from error

    def score_document(self, text: str) -> int:
        """Return 1 if the pattern occurs, else 0."""
        return int(self._pattern.search(text) is not None)

    def keep_document(self, score: int) -> bool:
        """Return True if the pattern does not occur."""
        return score == 0


_POSITIONS: dict[str, Callable[[str, str], bool]] = {
    "prefix": str.startswith,
    "suffix": str.endswith,
    "any": str.__contains__,
}


class SubstringFilter(DocumentFilter):
    """Keep documents that start with, end with or contain a given text.

    The score is 1 if the substring occurs, else 0. An empty substring occurs in every text.
    """

    def __init__(self, substring: str, position: str) -> None:
        """`position` is `prefix`, `suffix` or `any`."""
        if not isinstance(substring, str):
            raise UsageError(f"SubstringFilter.substring: {substring!r} is not a text")
        if position not in _POSITIONS:
            raise UsageError(f"SubstringFilter.position: {position!r} is not one of {', '.join(_POSITIONS)}")
        self.substring = substring
        self.position = position

    def score_document(self, text: str) -> int:
        """Return 1 if the substring occurs, else 0."""
        return int(_POSITIONS[self.position](text, self.substring))

    def keep_document(self, score: int) -> bool:
        """Return True if the substring occurs."""
        return score == 1
