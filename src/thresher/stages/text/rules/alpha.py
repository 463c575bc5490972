# SPDX-License-Identifier: Apache-2.0
"""How much of a document is letters."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

from thresher.stages.text.count_rule import CountRule
from thresher.stages.text.formula import share, shares

if TYPE_CHECKING:
    from thresher.stages.text.formula import Counted, Needed, Scores


@functools.cache
def alphabetic() -> Any:
    """A pattern of one letter: what Unicode calls alphabetic, which `str.isalpha` does not tell."""
    import regex

    return regex.compile("[[:alpha:]]")


class AlphaFilter(CountRule):
    """Keep documents that are letters for a sufficient part; drops tables and tensors that are stored as text.

    A letter is what Unicode calls alphabetic, of any script. An empty text has the score 0.0.
    """

    def __init__(self, min_alpha_ratio: float = 0.25) -> None:
        """The bound is an allowed value."""
        self.min_alpha_ratio = min_alpha_ratio

    def score_document(self, text: str) -> float:
        """The share of letters in all code points."""
        return share(len(alphabetic().findall(text)), len(text), 0.0)

    def counts(self) -> Needed:
        """Code points and letters."""
        return ("code_points", 0), ("alpha_characters", 0)

    def score_counts(self, counts: Counted) -> Scores:
        """The same share."""
        return shares(counts["alpha_characters", 0], counts["code_points", 0], 0.0)

    def allowed(self) -> tuple[float, float]:
        """Shares from the bound on."""
        return self.min_alpha_ratio, math.inf
