# SPDX-License-Identifier: Apache-2.0
"""Buckets of quality: the name of the part of a scale that a score belongs to."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from thresher.core.arguments.options import field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.corpus.quality.score_columns import check_numbers, numbers_of, without_numbers

LABELS = ("low", "medium", "high")


class QualityBuckets(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Write into a column in which bucket of a score a document is, such as low, medium or high."""

    looks_at_inputs_only = True

    def __init__(
        self,
        edges: Sequence[float],
        by: str = "quality_score",
        bucket_field: str = "quality",
        labels: Sequence[str] = LABELS,
    ) -> None:
        """`edges`: the values between buckets, growing; a score that is equal to one belongs above it.
        `by`: the column with the score.
        `bucket_field`: the column for the name of the bucket.
        `labels`: the names, the lowest first: one more than there are edges.
        """
        self.edges = check_numbers("QualityBuckets.edges", edges, 1)
        if any(low >= high for low, high in itertools.pairwise(self.edges)):
            raise UsageError(f"QualityBuckets.edges: {self.edges} do not grow")
        if isinstance(labels, str) or not isinstance(labels, Sequence):
            raise UsageError(f"QualityBuckets.labels: {labels!r} is not a list of names")
        self.labels = [str(label) for label in labels]
        if len(self.labels) != len(self.edges) + 1 or len(set(self.labels)) != len(self.labels):
            raise UsageError(
                f"QualityBuckets.labels: {self.labels} are not {len(self.edges) + 1} different names: one more "
                "than there are edges"
            )
        self.by = field_name("QualityBuckets", "by", by)
        self.bucket_field = field_name("QualityBuckets", "bucket_field", bucket_field)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the column with the score."""
        return ["data"], [self.by]

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column for the name."""
        return ["data"], [self.bucket_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Find the buckets of a batch."""
        import numpy as np
        import pyarrow as pa

        scores = numbers_of(task, self.by)
        missing = np.isnan(scores)
        task = without_numbers(task, [self.by], np.flatnonzero(missing))
        which = np.searchsorted(self.edges, scores[~missing], side="right")
        for label, n in zip(self.labels, np.bincount(which, minlength=len(self.labels)).tolist(), strict=True):
            self.chart("documents by bucket", label, n)
        names = pa.array(self.labels, type=pa.large_string())
        return task.replace(self.bucket_field, names.take(pa.array(which)))
