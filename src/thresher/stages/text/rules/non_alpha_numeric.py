# SPDX-License-Identifier: Apache-2.0
"""How much of a document is neither letter, digit nor common punctuation."""

from __future__ import annotations

import string

from thresher.stages.text.document_filter import TextRule
from thresher.stages.text.text_view import TextView

_COMMON = (string.ascii_letters + string.digits + "\n?!,.").encode()


class NonAlphaNumericFilter(TextRule):
    """Drop documents with too many characters that are no ASCII letter, digit, line feed or one of `? ! , .`.

    A space counts as such a character, and so does every letter outside ASCII. An empty text has the score 1.0.
    """

    def __init__(self, max_non_alpha_numeric_to_text_ratio: float = 0.25) -> None:
        """The bound is an allowed value."""
        self.max_non_alpha_numeric_to_text_ratio = max_non_alpha_numeric_to_text_ratio

    def score_view(self, view: TextView) -> float:
        """The share of other characters in all code points."""
        length = len(view.text)
        if not length:
            return 1.0
        data = view.utf8
        # The common characters are single bytes in UTF-8 and no part of a longer one, so bytes can be counted.
        common = len(data) - len(data.translate(None, _COMMON))
        return (length - common) / length

    def keep_document(self, score: float) -> bool:
        """Whether the share is small enough."""
        return score <= self.max_non_alpha_numeric_to_text_ratio
