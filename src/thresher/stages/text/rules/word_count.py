# SPDX-License-Identifier: Apache-2.0
"""How many words a document has."""

from __future__ import annotations

from thresher.stages.text.document_filter import TextRule
from thresher.stages.text.text_view import TextView


class WordCountFilter(TextRule):
    """Keep documents with a number of words between two bounds.

    Words are what lies between white space (`str.split()`). A blank text has 0.
    """

    def __init__(self, min_words: int = 50, max_words: int = 100000) -> None:
        """Both bounds are allowed values."""
        self.min_words = min_words
        self.max_words = max_words

    def score_view(self, view: TextView) -> int:
        """The number of words."""
        return view.words.number

    def keep_document(self, score: int) -> bool:
        """Whether the number lies between the bounds."""
        return self.min_words <= score <= self.max_words
