# SPDX-License-Identifier: Apache-2.0
"""Samples by quality: a score is cut into buckets, and of each so many documents are kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError
from thresher.stages.corpus.global_sort import MISSING
from thresher.stages.corpus.sampling.by_rank import RankFilter
from thresher.stages.corpus.sampling.quota import check_quota, quota_of
from thresher.stages.corpus.shuffle import BLOCKSIZE

if TYPE_CHECKING:
    from thresher.core.records.record_ids import Rows
    from thresher.stages.corpus.ranks import SortedCorpus


class BucketSample(RankFilter):
    """Cut a column of numbers into buckets and keep a random share, or number, of the documents of each.

    Documents come sorted by the column, the smallest first. Those without a value are dropped.
    """

    def __init__(  # noqa: PLR0913 - a recipe names them
        self,
        by: str,
        edges: Sequence[float] | None = None,
        quantiles: Sequence[float] | None = None,
        shares: Sequence[float] | None = None,
        numbers: Sequence[int] | None = None,
        seed: int = 0,
        blocksize: int | str = BLOCKSIZE,
    ) -> None:
        """`by`: the column, such as a score.
        `edges`: values between buckets, growing; a value that is equal to one belongs above it.
        `quantiles`: in place of `edges`, the shares of the documents below: `[0.25, 0.5, 0.75]` makes four equal parts.
        `shares`: the share that is kept of each bucket, the lowest first: one more than there are edges. `numbers`: how
        many documents, in place of `shares`; a smaller bucket is kept whole.
        `seed`: another seed selects other documents.
        `blocksize`: approximate size of the files before documents are left out.
        """
        if (edges is None) == (quantiles is None):
            raise UsageError("BucketSample: give either edges or quantiles")
        if (shares is None) == (numbers is None):
            raise UsageError("BucketSample: give either shares or numbers")
        name, cuts = ("edges", edges) if edges is not None else ("quantiles", quantiles)
        self.edges, self.quantiles = (None if given is None else list(given) for given in (edges, quantiles))
        self.shares = None if shares is None else list(shares)
        self.numbers = None if numbers is None else list(numbers)
        cuts = list(cuts or ())
        if not all(_is_number(cut) for cut in cuts) or any(a >= b for a, b in itertools.pairwise(cuts)):
            raise UsageError(f"BucketSample.{name}: {cuts!r} is not a list of growing numbers")
        if quantiles is not None and not all(0 < cut < 1 for cut in cuts):
            raise UsageError(f"BucketSample.quantiles: {cuts!r} are not all between 0 and 1")
        kept: list[Any] = self.shares if self.shares is not None else self.numbers or []
        if len(kept) != len(cuts) + 1:
            which = "shares" if self.shares is not None else "numbers"
            raise UsageError(f"BucketSample.{which}: {kept!r} has {len(kept)} entries for {len(cuts) + 1} buckets")
        for one in kept:
            check_quota("BucketSample", *((one, None) if self.shares is None else (None, one)))
        super().__init__(by, blocksize=blocksize)
        self.seed = seed

    def plan(self, corpus: SortedCorpus) -> list[list[int]]:
        """Return the first rank of each bucket and the end of the last one, and how many of each are kept."""
        valued = corpus.before(MISSING)
        if self.quantiles is not None:
            cuts = [math.ceil(valued * share) for share in self.quantiles]
        else:
            cuts = [min(valued, corpus.before(self.place_of(edge))) for edge in self.edges or ()]
        bounds = [0, *cuts, valued]
        sizes = [end - start for start, end in itertools.pairwise(bounds)]
        if self.shares is not None:
            return [bounds, [quota_of(size, None, share) for size, share in zip(sizes, self.shares, strict=True)]]
        return [bounds, [quota_of(size, n, None) for size, n in zip(sizes, self.numbers or (), strict=True)]]

    def limits(self, plan: Any) -> dict[str, Any]:
        """Return how many documents of each bucket are kept."""
        return {"kept of each bucket": plan[1]}

    def keeps(self, ranks: Rows, plan: Any) -> Any:
        """Return which documents are drawn from their buckets."""
        import numpy as np

        from thresher.stages.corpus.sampling.permutation import drawn

        bounds, kept = plan
        found = np.zeros(len(ranks), dtype=bool)
        for bucket, (start, end) in enumerate(itertools.pairwise(bounds)):
            inside = (ranks >= start) & (ranks < end)
            found[inside] = drawn(ranks[inside] - start, end - start, kept[bucket], self.seed + bucket)
        return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
