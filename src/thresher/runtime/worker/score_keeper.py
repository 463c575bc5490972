# SPDX-License-Identifier: Apache-2.0
"""Lend known scores to the stages that judge, and collect the scores that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.core.planning.plan import Plan
from thresher.core.records.record_task import RecordTask
from thresher.core.scores import JudgingStage, ScoreColumn, memo_key, scoring_groups
from thresher.core.tally import StageTally
from thresher.core.task import Task

if TYPE_CHECKING:
    from thresher.ledger.scores import ScoreRows
    from thresher.runtime.worker.settle import Outcome

_ROWS = ("score-rows", "")
"""Memo key under which a batch keeps the rows of its records in the sidecar."""
REUSED, MISSING = "scores_reused", "scores_missing"
"""Counts of the report, per stage: scores that were found in another run, and scores that were not."""


class ScoreKeeper:
    """The score columns that each stage is lent, and those that are kept."""

    def __init__(self, plan: Plan) -> None:
        """Let the first stage of each group of neighbours score for all of them if scores are kept."""
        assert plan.scores is not None, "made only for a plan that has to do with scores"
        self._lent: dict[int, list[ScoreColumn]] = {}
        self._kept: dict[int, list[ScoreColumn]] = {}
        self._known = None
        for number in {column.stage for column in plan.scores.columns}:
            self._lent[number] = plan.scores.of_stage(number)
        if plan.scores.keep:
            for op in plan.ops:
                for group in scoring_groups(plan.stages, [step.stage for step in op.steps]):
                    self._keep(plan, group)
        if plan.scores.known is not None:
            from thresher.ledger.scores import KnownScores

            self._known = KnownScores(plan.scores.known, plan.scores.columns)

    def _keep(self, plan: Plan, group: list[int]) -> None:
        assert plan.scores is not None
        first, *others = (plan.stages[number] for number in group)
        assert isinstance(first, JudgingStage)
        first.also_scores = tuple(stage for stage in others if isinstance(stage, JudgingStage))
        columns = [column for number in group for column in plan.scores.of_stage(number)]
        self._kept[group[0]] = self._lent[group[0]] = columns

    def lend(self, number: int, task: Task, tally: StageTally) -> None:
        """Give a batch the scores of another run that its next stage asks for."""
        if self._known is None or number not in self._lent or not isinstance(task, RecordTask) or task.ids is None:
            return
        wanted = [column for column in self._lent[number] if memo_key(column.name, column.text_field) not in task.memo]
        if not wanted:
            return
        unit = self._known.of_unit(task.task_id.partition("/")[0])
        rows = task.memo.get(_ROWS)
        if rows is None:
            rows = task.memo[_ROWS] = [unit.rows.get(name, -1) for name in task.ids.strings()]
        for column in wanted:
            scores = unit.columns.get(column.name)
            found = [None] * len(rows) if scores is None else [scores[row] if row >= 0 else None for row in rows]
            task.memo[memo_key(column.name, column.text_field)] = found
            missing = found.count(None)
            tally.counts[REUSED] = tally.counts.get(REUSED, 0) + len(found) - missing
            tally.counts[MISSING] = tally.counts.get(MISSING, 0) + missing

    def collect(self, number: int, outcome: Outcome) -> list[ScoreRows]:
        """Return the scores of all records of an outcome, whatever became of them."""
        columns = self._kept.get(number)
        if columns is None:
            return []
        from thresher.ledger.scores import pack_rows

        batches = [] if outcome.judged is None else [outcome.judged.batch]  # the first of a group scores all that came
        batches += [task for task in outcome.tasks if isinstance(task, RecordTask)]
        batches += [rows.batch for rows in outcome.dropped]
        batches += [rows.batch for rows in outcome.failed if rows.batch is not None]
        found = []
        for batch in batches:
            keys = {column.name: memo_key(column.name, column.text_field) for column in columns}
            scores = {name: batch.memo[key] for name, key in keys.items() if key in batch.memo}
            if scores and batch.ids is not None:
                found.append(pack_rows(batch.ids, scores))
        return [rows for rows in found if rows is not None]
