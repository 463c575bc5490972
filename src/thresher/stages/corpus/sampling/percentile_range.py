# SPDX-License-Identifier: Apache-2.0
"""Documents between two percentiles of a column, such as a score."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.corpus.global_sort import MISSING
from thresher.stages.corpus.sampling.by_rank import RankFilter
from thresher.stages.corpus.shuffle import BLOCKSIZE

if TYPE_CHECKING:
    from thresher.core.records.record_ids import Rows
    from thresher.stages.corpus.ranks import SortedCorpus


class PercentileRange(RankFilter):
    """Keep the documents between two percentiles of a column, sorted by it, the smallest first.

    Percentiles are exact: of equal values the first of the input have the lower ranks. Documents without a value are
    dropped, and do not count.
    """

    def __init__(self, by: str, low: float = 0.0, high: float = 100.0, blocksize: int | str = BLOCKSIZE) -> None:
        """`by`: the column.
        `low`, `high`: percentiles from 0 to 100: 20 and 95 drop the lowest fifth and the highest twentieth.
        `blocksize`: approximate size of the files before documents are left out.
        """
        for name, value in (("low", low), ("high", high)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
                raise UsageError(f"PercentileRange.{name}: {value!r} is not a percentile from 0 to 100")
        if low >= high:
            raise UsageError(f"PercentileRange.low: {low!r} is not below high, {high!r}")
        super().__init__(by, blocksize=blocksize)
        self.low, self.high = low, high

    def plan(self, corpus: SortedCorpus) -> list[int]:
        """Return the first rank that is kept, and the first one after those."""
        valued = corpus.before(MISSING)
        return [math.ceil(valued * share / 100) for share in (self.low, self.high)]

    def keeps(self, ranks: Rows, plan: Any) -> Any:
        """Return which documents are between the percentiles."""
        return (ranks >= plan[0]) & (ranks < plan[1])

    def limits(self, plan: Any) -> dict[str, Any]:
        """Return the percentiles."""
        return {"low": self.low, "high": self.high}
