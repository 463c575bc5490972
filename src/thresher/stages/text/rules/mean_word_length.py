# SPDX-License-Identifier: Apache-2.0
"""How long the words of a document are."""

from __future__ import annotations

from thresher.stages.text.document_filter import TextRule
from thresher.stages.text.text_view import TextView


class MeanWordLengthFilter(TextRule):
    """Keep documents whose words have a usual length on average.

    Lengths are code points. A blank text has no words and the score 0.0.
    """

    def __init__(self, min_mean_word_length: float = 3, max_mean_word_length: float = 10) -> None:
        """Both bounds are allowed values."""
        self.min_mean_word_length = min_mean_word_length
        self.max_mean_word_length = max_mean_word_length

    def score_view(self, view: TextView) -> float:
        """Code points in words, per word."""
        words = view.words
        return words.characters / words.number if words.number else 0.0

    def keep_document(self, score: float) -> bool:
        """Whether the mean lies between the bounds."""
        return self.min_mean_word_length <= score <= self.max_mean_word_length
