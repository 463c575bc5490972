# SPDX-License-Identifier: Apache-2.0
"""Stages that send documents to outlets of the pipeline: by the value of a column, a random share, or copies of all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.records.record_task import DroppedRows
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError


class Route(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Send documents to outlets by the value of a column; the others go on."""

    def __init__(self, by: str, outlets: Mapping[Any, str] | list[str]) -> None:
        """`by`: the column.
        `outlets`: outlet of each value, or a list of values that are names of outlets themselves. Values are compared
        as texts: `"3"` stands for the number, too.
        """
        if not isinstance(by, str) or not by:
            raise UsageError(f"Route.by: {by!r} is not the name of a column")
        self.by = by
        pairs = outlets.items() if isinstance(outlets, Mapping) else [(name, name) for name in outlets]
        self.outlets = {str(value): outlet for value, outlet in pairs}

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column."""
        return ["data"], [self.by]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Send each document to the outlet of its value."""
        rows: dict[str, list[int]] = {}
        for row, value in enumerate(task.values(self.by)):
            outlet = None if value is None else self.outlets.get(str(value))
            if outlet is not None:
                rows.setdefault(outlet, []).append(row)
        return sent(self, task, rows)


class Split(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Send a random share of the documents to an outlet, such as a validation set; every run sends the same ones."""

    def __init__(self, outlet: str, share: float, by: str | None = None, seed: int = 0) -> None:
        """`outlet`: the outlet that gets the share.
        `share`: from 0 to 1.
        `by`: a column: documents with the same value stay together, so that nothing leaks from one side to the other.
        Without it, or without a value, each document is drawn alone.
        `seed`: another seed selects other documents.
        """
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise UsageError(f"Split.share: {share!r} is not a share from 0 to 1")
        self.outlet, self.share, self.by, self.seed = outlet, share, by, seed

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column, if there is one."""
        return ["data"], [] if self.by is None else [self.by]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Send the documents whose number is below the share."""
        import numpy as np

        from thresher.stages.corpus.hashing import hash_ids, hash_texts

        assert task.ids is not None, "documents of a run have ids"
        numbers = hash_ids(task.ids, self.seed)
        if self.by is not None:
            values = task.values(self.by)
            of_values = hash_texts([f"{self.seed}\n{value!r}" for value in values])
            numbers = np.where([value is None for value in values], numbers, of_values)
        return sent(self, task, {self.outlet: np.flatnonzero(numbers < self.share * 2.0**63).tolist()})


class Copy(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Send a copy of every document to an outlet, for statistics or another version of the corpus; all go on."""

    def __init__(self, outlet: str) -> None:
        """`outlet`: the outlet that gets the copies."""
        self.outlet = outlet

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Note the copies."""
        task._dropped.append(DroppedRows(task.pick(range(len(task))), "", outlet=self.outlet, copied=True))
        return task


def sent(stage: ProcessingStage[Any, Any], batch: DocumentBatch, rows: Mapping[str, list[int]]) -> DocumentBatch:
    """Return a batch without the rows that go to outlets, and chart where documents go."""
    left = list(range(len(batch)))
    stage.chart("documents by outlet", "not sent", len(batch) - sum(map(len, rows.values())))
    for outlet, some in rows.items():
        stage.chart("documents by outlet", outlet, len(some))
        gone = set(some)
        if gone:
            batch = batch.to(outlet, [place for place, row in enumerate(left) if row in gone])
            left = [row for row in left if row not in gone]
    return batch
