# SPDX-License-Identifier: Apache-2.0
"""Whether a pattern occurs in a document."""

from __future__ import annotations

import re

from thresher.errors import UsageError
from thresher.stages.text.document_filter import DocumentFilter


class RegexFilter(DocumentFilter):
    """Drop documents in which a regular expression finds something.

    The score is 1 where it does, else 0. `invert` of the stage keeps just those instead.
    """

    def __init__(self, regex_exp: str) -> None:
        """`regex_exp` is a pattern of Python's `re`; it may match anywhere in the text."""
        self.regex_exp = regex_exp
        try:
            self._pattern = re.compile(regex_exp)
        except re.error as error:
            raise UsageError(f"RegexFilter.regex_exp: {regex_exp!r} is no regular expression: {error}") from error

    def score_document(self, text: str) -> int:
        """1 where the pattern occurs."""
        return int(self._pattern.search(text) is not None)

    def keep_document(self, score: int) -> bool:
        """Whether the pattern does not occur."""
        return score == 0
