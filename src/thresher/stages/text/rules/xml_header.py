# SPDX-License-Identifier: Apache-2.0
"""Whether a source file is XML under another name."""

from __future__ import annotations

from thresher.stages.text.document_filter import DocumentFilter


class XMLHeaderFilter(DocumentFilter):
    """Drop source files that have `<?xml version=` near their beginning, whatever their name says.

    The score is 1 for such a file and 0 for every other; an empty text has 0 and is kept.
    """

    def __init__(self, char_prefix_search_length: int = 100) -> None:
        """So many code points from the beginning are looked at; the header must be there as a whole."""
        self.char_prefix_search_length = char_prefix_search_length

    def score_document(self, text: str) -> int:
        """1 if the header is there."""
        return int("<?xml version=" in text[: self.char_prefix_search_length])

    def keep_document(self, score: int) -> bool:
        """Whether it was not."""
        return score != 1
