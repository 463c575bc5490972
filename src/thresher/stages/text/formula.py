# SPDX-License-Identifier: Apache-2.0
"""What the formulas of rules are made of, for one document and for many at a time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import TypeAlias

    import numpy as np
    import numpy.typing as npt

    from thresher.kernels.counts import Count

    Needed: TypeAlias = tuple[Count, ...]
    """The counts that a formula needs."""
    Counted: TypeAlias = Mapping[Count, npt.NDArray[np.int64]]
    """Counts of many documents."""
    Scores: TypeAlias = npt.NDArray[Any]
    """A score for each of them."""


def share(part: int, whole: int, of_nothing: float) -> float:
    """The part of a whole; `of_nothing` where there is no whole."""
    return part / whole if whole else of_nothing


def shares(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64], of_nothing: float) -> npt.NDArray[np.float64]:
    """The same for many documents, and equal to the last bit."""
    import numpy as np  # here, because the process that plans a run loads rules and does without

    if whole.all():
        return part / whole
    found = np.full(len(whole), of_nothing, dtype=np.float64)
    np.divide(part, whole, out=found, where=whole != 0)
    return found
