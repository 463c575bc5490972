# SPDX-License-Identifier: Apache-2.0
"""How much of a document is neither letter, digit nor common punctuation."""

from __future__ import annotations

import math
import string
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

_COMMON = (string.ascii_letters + string.digits + "\n?!,.").encode()


def common_characters(text: str) -> int:
    """How many characters are an ASCII letter, a digit, a line feed or one of `? ! , .`."""
    # They are single bytes in UTF-8 and no part of a longer one, so bytes can be counted.
    data = text.encode("utf-8", "surrogatepass")
    return len(data) - len(data.translate(None, _COMMON))


class NonAlphaNumericFilter(CountRule):
    """Drop documents with too many characters that are no ASCII letter, digit, line feed or one of `? ! , .`.

    A space counts as such a character, and so does every letter outside ASCII. An empty text has the score 1.0.
    """

    def __init__(self, max_non_alpha_numeric_to_text_ratio: float = 0.25) -> None:
        """The bound is an allowed value."""
        self.max_non_alpha_numeric_to_text_ratio = max_non_alpha_numeric_to_text_ratio

    def score_document(self, text: str) -> float:
        """The share of other characters in all code points."""
        return share(len(text) - common_characters(text), len(text), 1.0)

    def counts(self) -> Needed:
        """Code points, and the common ones."""
        return ("code_points", 0), ("common", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        length = counts["code_points", 0]
        return shares(length - counts["common", 0], length, 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_non_alpha_numeric_to_text_ratio
