# SPDX-License-Identifier: Apache-2.0
"""One score of several: a weighted mean, the largest, the smallest, or a quantile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from thresher.core.arguments.options import check_choice, check_flag, field_name
from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError
from thresher.stages.corpus.quality.score_columns import check_numbers, numbers_of, without_numbers

METHODS = ("mean", "max", "min", "quantile")


class ScoreEnsemble(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Make one score of the scores in several columns, such as those of different classifiers."""

    looks_at_inputs_only = True

    def __init__(
        self,
        scores: Sequence[str] | Mapping[str, float],
        method: str = "mean",
        score_field: str = "quality_score",
        ranges: Mapping[str, Sequence[float]] | None = None,
        quantile: float = 0.5,
        allow_missing: bool = False,
    ) -> None:
        """`scores`: the columns, or the weight of each in a mean, such as `{edu_score: 2, fluency: 1}`.
        `method`: `mean`, `max`, `min` or `quantile`.
        `score_field`: the column for the result.
        `ranges`: by column, the lowest and the highest value of its scale, which become 0 and 1; values beyond are cut.
        The highest value first turns a scale around. Columns that are not named stay as they are.
        `quantile`: for the method of that name; 0.5 is the median.
        `allow_missing`: use the scores that are there; otherwise a document that lacks one is quarantined.
        """
        if isinstance(scores, str) or not isinstance(scores, Sequence | Mapping) or not scores:
            raise UsageError(f"ScoreEnsemble.scores: {scores!r} is not a list of columns; name one or more")
        self.columns = [field_name("ScoreEnsemble", "scores", name) for name in scores]
        self.method = check_choice("ScoreEnsemble.method", method, METHODS)
        weights: list[float] = list(scores.values()) if isinstance(scores, Mapping) else [1.0] * len(scores)
        if isinstance(scores, Mapping) and method != "mean":
            raise UsageError(f"ScoreEnsemble.scores: weights belong to the method mean, not to {method}; give a list")
        self.weights = check_numbers("ScoreEnsemble.scores", weights)
        if min(self.weights) < 0 or not sum(self.weights):
            raise UsageError(f"ScoreEnsemble.scores: the weights {self.weights} are not all 0 or more, and one above 0")
        self.score_field = field_name("ScoreEnsemble", "score_field", score_field)
        if ranges is not None and not isinstance(ranges, Mapping):
            raise UsageError(f"ScoreEnsemble.ranges: {ranges!r} is not a mapping such as {{edu_score: [0, 5]}}")
        self.ranges = {name: _checked_range(name, given, self.columns) for name, given in (ranges or {}).items()}
        if isinstance(quantile, bool) or not isinstance(quantile, int | float) or not 0 <= quantile <= 1:
            raise UsageError(f"ScoreEnsemble.quantile: {quantile!r} is not between 0 and 1")
        self.quantile = quantile
        self.allow_missing = check_flag("ScoreEnsemble.allow_missing", allow_missing)

    def inputs(self) -> tuple[list[str], list[str]]:
        """Return the columns of scores."""
        return ["data"], self.columns

    def outputs(self) -> tuple[list[str], list[str]]:
        """Return the column for the result."""
        return ["data"], [self.score_field]

    def process(self, task: DocumentBatch) -> DocumentBatch:
        """Compute the scores of a batch."""
        import numpy as np

        table = np.stack([self._scaled(name, numbers_of(task, name)) for name in self.columns], axis=1)
        missing = np.isnan(table)
        gone = missing.all(axis=1) if self.allow_missing else missing.any(axis=1)
        task = without_numbers(task, self.columns, np.flatnonzero(gone))
        return task.replace(self.score_field, self._combined(table[~gone]))

    def _scaled(self, column: str, values: Any) -> Any:
        if column not in self.ranges:
            return values
        low, high = self.ranges[column]
        return ((values - low) / (high - low)).clip(0, 1)

    def _combined(self, table: Any) -> Any:
        import numpy as np

        if not len(table):
            return np.zeros(0)
        if self.method == "mean":
            weights = np.where(np.isnan(table), 0.0, np.array(self.weights, dtype=np.float64))
            total = weights.sum(axis=1)
            # Without a weight, such as where only scores of weight 0 are there, they count alike.
            weights = np.where(total[:, None] > 0, weights, ~np.isnan(table))
            return (np.nan_to_num(table) * weights).sum(axis=1) / weights.sum(axis=1)
        if self.method == "quantile":
            return np.nanquantile(table, self.quantile, axis=1)
        chosen: dict[str, Callable[..., Any]] = {"max": np.nanmax, "min": np.nanmin}
        return chosen[self.method](table, axis=1)


def _checked_range(name: str, given: Any, columns: Sequence[str]) -> tuple[float, float]:
    if name not in columns:
        raise UsageError(f"ScoreEnsemble.ranges: {name!r} is not one of the columns {', '.join(columns)}")
    low_high = check_numbers(f"ScoreEnsemble.ranges.{name}", given, 2)
    if len(low_high) != 2 or low_high[0] == low_high[1]:
        raise UsageError(f"ScoreEnsemble.ranges.{name}: {given!r} is not a lowest and a highest value, such as [0, 5]")
    return low_high[0], low_high[1]
