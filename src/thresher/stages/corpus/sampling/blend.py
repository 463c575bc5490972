# SPDX-License-Identifier: Apache-2.0
"""Blend data sets by weight: documents of some are left out at random, those of others are repeated."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError

REASON = "weight"


class Blend(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Repeat or leave out documents by the weight of their group: 2 gives each twice, 0.5 every second one at random.

    A weight of 2.5 gives each document twice and every second one a third time. What happens to a document depends on
    its id and the seed alone.
    """

    def __init__(self, by: str, weights: Mapping[str, float], other: float = 1.0, seed: int = 0) -> None:
        """`by`: the column that says which group a document belongs to, such as a source or a bucket of quality.
        `weights`: the weight of each of its values; numbers are written as texts.
        `other`: weight of all other documents.
        `seed`: another seed selects other documents.
        """
        if not isinstance(by, str) or not by:
            raise UsageError(f"Blend.by: {by!r} is not the name of a column")
        for name, weight in {**weights, "other": other}.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise UsageError(f"Blend.weights: {weight!r} for {name!r} is not a number of 0 or more")
        self.by, self.weights, self.other, self.seed = by, {str(k): float(v) for k, v in weights.items()}, other, seed

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column."""
        return ["data"], [self.by]

    def process(self, task: DocumentBatch) -> DocumentBatch | list[DocumentBatch]:
        """Return the documents that stay, and further copies of some, which have ids of their own."""
        import numpy as np

        from thresher.stages.corpus.hashing import hash_ids

        assert task.ids is not None, "documents of a run have ids"
        weights = np.array([self._weight(value) for value in task.values(self.by)])
        draws = hash_ids(task.ids, self.seed) / 2.0**63
        counts = np.floor(weights).astype(np.int64) + (draws < weights % 1.0)
        self._chart_groups(task.values(self.by), counts)
        copies = self._copies(task, np.maximum(counts - 1, 0))
        kept = task.drop(np.flatnonzero(counts == 0), REASON) if (counts == 0).any() else task
        return kept if copies is None else [kept, copies]

    def _chart_groups(self, values: Sequence[Any], counts: Any) -> None:
        """Add to the chart of groups what became of some documents; each is given so many times."""
        groups: dict[str, list[int]] = {}
        for value, count in zip(values, counts.tolist(), strict=True):
            name = str(value) if value is not None and str(value) in self.weights else "others"
            parts = groups.setdefault(name, [0, 0, 0])
            parts[0] += count > 0
            parts[1] += max(0, count - 1)
            parts[2] += not count
        for name, parts in groups.items():
            for part, n in zip(("kept", "copied", "dropped"), parts, strict=True):
                self.chart(f"documents by {self.by}", name, n, part)

    def _weight(self, value: Any) -> float:
        return self.other if value is None else self.weights.get(str(value), self.other)

    def _copies(self, batch: DocumentBatch, counts: Any) -> DocumentBatch | None:
        """Return `counts` further copies of each document."""
        import numpy as np

        from thresher.core.records.record_ids import RecordIds

        if not counts.any():
            return None
        rows = np.repeat(np.arange(len(batch)), counts)
        copies = batch.pick(rows)
        ids = copies.ids
        assert ids is not None, "documents of a run have ids"
        before = ids.suffixes or ("",) * len(rows)
        numbers = (number for count in counts.tolist() for number in range(1, count + 1))
        suffixes = tuple(f"{suffix}/copy-{number}" for suffix, number in zip(before, numbers, strict=True))
        made = copies.with_ids(RecordIds(ids.sources, ids.positions, ids.which, suffixes))
        made._has_own_ids = True
        return made
