# SPDX-License-Identifier: Apache-2.0
"""Evaluation of several stages over one batch at once: the verdict of each about the records that the ones before it
kept.

Called one by one, each stage builds a batch for the next one. That costs more than the rules themselves if these are
formulas over counts, so here only the indices of the records are passed on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.core.documents.batch import MOST_REMEMBERED, DocumentBatch
from thresher.core.scores import RuleDrops, Verdict, memo_key
from thresher.kernels.counts.text_counts import Count
from thresher.stages.text.columns.text_column import NO_TEXT, Rows, TextColumn, text_column
from thresher.stages.text.judging.evaluate import score_all
from thresher.stages.text.judging.link import Link
from thresher.stages.text.judging.rule import CountRule


def can_compute_verdicts(batch: DocumentBatch, chains: Sequence[Sequence[Link]]) -> bool:
    """Return True if the rules of all stages are formulas with bounds that do not change records, and the batch
    consists of lines without cached scores."""
    if batch.raw_lines is None or batch._before is not None or batch.nbytes > MOST_REMEMBERED:
        return False
    return all(
        link.counted is not None
        and link.bounded is not None
        and link.score_field is None
        and memo_key(link.column, link.text_field) not in batch._memo
        for chain in chains
        for link in chain
    )


def verdicts(batch: DocumentBatch, chains: Sequence[Sequence[Link]], scores_kept: bool) -> Iterator[Verdict]:
    """Yield a verdict for each chain, computed on demand; none if a record has no text. `scores_kept`: the batch caches
    the scores of all records from the first verdict to the last."""
    links = [link for chain in chains for link in chain]
    columns = {field: text_column(batch, field) for field in dict.fromkeys(link.text_field for link in links)}
    if any((column.rows == NO_TEXT).any() for column in columns.values()):
        return
    for field, column in columns.items():
        column.counts.expect(need for link in links if link.text_field == field for need in link.needs)
    if scores_kept:
        score_all(batch, links)
    filled: set[tuple[str, Count]] = set()
    rules = [[_Rule(link, columns[link.text_field], batch, filled) for link in chain] for chain in chains]
    left: Rows = np.arange(len(batch), dtype=np.int64)
    for stage in rules:
        drops = []
        for rule in stage:
            if not len(left):
                break
            scores = rule.scores(left)
            failed = rule.failed(scores)
            if failed.any():
                drops.append(RuleDrops(rule.link.rule, left[failed], scores[failed], rule.link.threshold))
                left = left[~failed]
        yield Verdict(left, drops)
    for link in links:
        batch._memo.pop(memo_key(link.column, link.text_field), None)


class _Rule:
    """A rule that scores records of one batch. Each rule is evaluated on a subset of the records of the one before, so
    a count that one of them has filled is known to all later ones."""

    __slots__ = ("_column", "_counted", "_filled", "_known", "_needs", "link")

    def __init__(self, link: Link, column: TextColumn, batch: DocumentBatch, filled: set[tuple[str, Count]]) -> None:
        """`filled`: known counts by column, shared by all rules."""
        assert link.counted is not None, "only such rules are taken"
        self.link = link
        self._column = column
        self._counted: CountRule = link.counted
        self._needs = link.needs
        self._filled = filled
        self._known: npt.NDArray[Any] | None = batch._memo.get(memo_key(link.column, link.text_field))

    def scores(self, records: Rows) -> npt.NDArray[Any]:
        """Return one score for each of the records."""
        if self._known is not None:
            return self._known[records]
        rows, counts = self._column.rows[records], self._column.counts
        missing = [count for count in self._needs if (self.link.text_field, count) not in self._filled]
        if missing:
            counts.fill(missing, rows)
            self._filled.update((self.link.text_field, count) for count in missing)
        return self._counted.score_counts({count: counts[count][rows] for count in self._needs})

    def failed(self, scores: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return a mask of the scores outside the bounds, or inside them if the rule is inverted."""
        assert self.link.bounded is not None, "only such rules are taken"
        low, high = self.link.bounded.allowed()
        kept: npt.NDArray[np.bool_] = scores <= high  # also False for NaN, which is within no bounds
        if low != -math.inf:
            kept &= scores >= low
        return kept if self.link.invert else ~kept
