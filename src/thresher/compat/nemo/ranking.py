# SPDX-License-Identifier: Apache-2.0
"""Which document of a cluster stays, as scripts for NeMo Curator say it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thresher.errors import UsageError

_DISTANCES = ("cosine_dist_to_cent", "l2_dist_to_cent")


@dataclass
class RankingStrategy:
    """Order of the documents of a cluster: the first one stays."""

    metadata_cols: list[str]
    ascending: list[bool] | bool = True
    strategy: str = "sort"
    random_seed: int = 42

    def as_arguments(self) -> dict[str, Any]:
        """Return the arguments of `SemanticDeduplicationWorkflow` that say the same."""
        if self.strategy == "random":
            return {"which_to_keep": "random", "random_state": self.random_seed}
        first = self.metadata_cols[0] if self.metadata_cols else ""
        rising = self.ascending if isinstance(self.ascending, bool) else self.ascending[0]
        if first in _DISTANCES:
            return {"which_to_keep": "easy" if rising else "hard"}
        if len(self.metadata_cols) == 1 and not rising:
            return {"which_to_keep": "best", "keep_by": first}
        raise UsageError(
            f"ranking_strategy: metadata_cols={self.metadata_cols!r}, ascending={self.ascending!r} cannot be said "
            "here; rank by a distance to the centroid, or by one column whose largest value stays"
        )
