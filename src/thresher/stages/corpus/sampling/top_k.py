# SPDX-License-Identifier: Apache-2.0
"""The best documents of the corpus: exactly so many, or a share of them, by the value of a column."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.corpus.sampling.by_rank import RankFilter
from thresher.stages.corpus.shuffle import BLOCKSIZE

if TYPE_CHECKING:
    from thresher.core.records.record_ids import Rows
    from thresher.stages.corpus.ranks import SortedCorpus


class TopK(RankFilter):
    """Keep the documents with the largest values in a column, in that order; of equal ones the first of the input."""

    def __init__(
        self,
        by: str,
        k: int | None = None,
        share: float | None = None,
        smallest: bool = False,
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`by`: the column; documents without a value come last.
        `k`: how many documents to keep. `share`: which share of them, in place of `k`, such as 0.1.
        `smallest`: keep the smallest values.
        `blocksize`: approximate size of the files before documents are left out.
        """
        if (k is None) == (share is None):
            raise UsageError("TopK: give either k or share")
        if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 0):
            raise UsageError(f"TopK.k: {k!r} is not a whole number of 0 or more")
        if share is not None and not 0 <= share <= 1:
            raise UsageError(f"TopK.share: {share!r} is not a share from 0 to 1")
        super().__init__(by, descending=not smallest, blocksize=blocksize)
        self.k, self.share, self.smallest = k, share, smallest

    def plan(self, corpus: SortedCorpus) -> int:
        """Return how many documents are kept."""
        documents = len(corpus)
        return min(documents, self.k) if self.k is not None else math.ceil(documents * (self.share or 0.0))

    def keeps(self, ranks: Rows, plan: Any) -> Any:
        """Return which documents are among the first."""
        return ranks < plan

    def limits(self, plan: Any) -> dict[str, Any]:
        """Return how many documents are kept."""
        return {"k": plan}
