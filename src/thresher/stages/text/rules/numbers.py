# SPDX-License-Identifier: Apache-2.0
"""How much of a document is digits."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores

_DIGIT = re.compile("[0-9]")


class NumbersFilter(CountRule):
    """Drop documents that are digits for a large part.

    Digits are 0 to 9; those of other scripts are not. An empty text has the score 1.0.
    """

    def __init__(self, max_number_to_text_ratio: float = 0.15) -> None:
        """The bound is an allowed value."""
        self.max_number_to_text_ratio = max_number_to_text_ratio

    def score_document(self, text: str) -> float:
        """The share of digits in all code points."""
        return share(len(_DIGIT.findall(text)), len(text), 1.0)

    def counts(self) -> Needed:
        """Code points and digits."""
        return ("code_points", 0), ("digits", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["digits", 0], counts["code_points", 0], 1.0)

    def allowed(self) -> tuple[float, float]:
        """Shares up to the bound."""
        return -math.inf, self.max_number_to_text_ratio
