# SPDX-License-Identifier: Apache-2.0
"""Detection of XML in source files."""

from __future__ import annotations

from thresher.stages.text.judging.rule import DocumentFilter


class XMLHeaderFilter(DocumentFilter):
    """Drop source files that have `<?xml version=` near the beginning, whatever their extension.

    The score is 1 for such a file, else 0; an empty text has the score 0 and is kept.
    """

    def __init__(self, char_prefix_search_length: int = 100) -> None:
        """Only the first `char_prefix_search_length` code points are searched; they must contain the whole header."""
        self.char_prefix_search_length = char_prefix_search_length

    def score_document(self, text: str) -> int:
        """Return 1 if the header is present, else 0."""
        return int("<?xml version=" in text[: self.char_prefix_search_length])

    def keep_document(self, score: int) -> bool:
        """Return True if the header is absent."""
        return score != 1
