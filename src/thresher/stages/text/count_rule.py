# SPDX-License-Identifier: Apache-2.0
"""The form of a rule whose score is a formula over counts: the compiled kernels count, many documents at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from thresher.stages.text.document_filter import DocumentFilter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Count


class CountRule(DocumentFilter):
    """A rule with two definitions that agree: `score_document` in plain Python, `score_counts` over counts.

    The plain one is what the rule means. It never fails, whatever the text. The other one is how it is worked out.
    """

    def counts(self) -> tuple[Count, ...] | None:
        """What the formula needs; `None`: with these parameters the rule can only be worked out by `score_document`."""
        raise TypeError(f"{type(self).__name__} must define counts()")

    def score_counts(self, counts: Mapping[Count, npt.NDArray[np.int64]]) -> npt.NDArray[Any]:
        """The scores of many documents: one float64 or int64 for each, equal to what `score_document` gives."""
        raise TypeError(f"{type(self).__name__} must define score_counts(counts)")

    def allowed(self) -> tuple[float, float]:
        """The least and the largest score that is kept."""
        raise TypeError(f"{type(self).__name__} must define allowed()")

    def keep_document(self, score: Any) -> bool:
        """Whether the score lies between the bounds."""
        low, high = self.allowed()
        return bool(low <= score <= high)


def is_counted(judge: Any) -> bool:
    """Whether kernels may stand for the `score_document` of a rule: nobody has overridden it behind its formula."""
    if not isinstance(judge, CountRule) or "score_document" in vars(judge) or "score_counts" in vars(judge):
        return False
    order = type(judge).__mro__
    formula = next(place for place, cls in enumerate(order) if "score_counts" in vars(cls))
    plain = next(place for place, cls in enumerate(order) if "score_document" in vars(cls))
    return formula <= plain and judge.counts() is not None


def keeps_by_bounds(judge: Any) -> bool:
    """Whether `allowed` says all about what a rule keeps."""
    own = isinstance(judge, CountRule) and type(judge).keep_document is CountRule.keep_document
    return own and "keep_document" not in vars(judge)
