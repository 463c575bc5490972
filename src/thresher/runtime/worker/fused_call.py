# SPDX-License-Identifier: Apache-2.0
"""Run adjacent stages that only judge in one fused call, and count as if each had been called.

If a stage fails, the records that are left go on stage by stage, where they are tried again, split and quarantined.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from thresher.core.planning.plan import Plan, Step
from thresher.core.records.record_task import DroppedRows, RecordTask
from thresher.core.scores import JudgingStage, RuleDrops, Verdict, score_list
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.runtime.crashes import isolation
from thresher.runtime.crashes.crash_notes import notes
from thresher.runtime.memory import split as memory_split
from thresher.runtime.overlap.helper_thread import call_stage
from thresher.runtime.worker.settle import Outcome
from thresher.stage_errors import ControlSignal

if TYPE_CHECKING:
    from thresher.core.records.record_ids import Rows

Judge = JudgingStage[Any, Any]


class Book(NamedTuple):
    """The functions that count and keep what became of records."""

    tally: Callable[[int], StageTally]
    """The counts of a stage."""
    at_step: Callable[[int], None]
    """Called before each step of the op; waits where there is no room for what it works on."""
    spent: Callable[[int, float], None]
    """Counts the time since a moment to a stage."""
    keep_dropped: Callable[[str, DroppedRows], None] | None
    """Writes down what the stage of that name dropped; `None`: that is not wanted."""
    keep_scores: Callable[[int, Outcome], None]
    """Keeps the scores of what left a stage, where that is wanted."""


class Judged(NamedTuple):
    """A batch after some fused stages."""

    place: int
    """The step that comes next."""
    batch: RecordTask | None
    """What is left; `None`: nothing."""


def judge_stretch(
    plan: Plan, steps: Sequence[Step], place: int, task: Task, open_book: Callable[[], Book]
) -> Judged | None:
    """Return what the stages from step `place` on make of a task; `None` if they must be called one by one."""
    first = plan.stages[steps[place].stage]
    if not isinstance(first, JudgingStage) or not first.beside or not isinstance(task, RecordTask):
        return None
    stages: list[Judge] = [first, *first.beside]
    numbers = [step.stage for step in steps[place : place + len(stages)]]
    if [plan.stages[number] for number in numbers] != stages or not _can_run(plan, stages, task):
        return None
    sizes = task.record_sizes()
    return None if sizes is None else _Stretch(stages, numbers, task, sizes, open_book()).run(place)


def _can_run(plan: Plan, stages: list[Judge], batch: RecordTask) -> bool:
    """Return True if whole batches are allowed and no score of another run is used."""
    if isolation.is_needed() or batch.ids is None or batch.num_items < 2:
        return False
    if plan.scores is not None and plan.scores.known is not None:
        return False
    return all(stage.row_wise and memory_split.sizes_of(stage) is None for stage in stages)


class _Stretch:
    """One batch on its way through the stages."""

    def __init__(self, stages: list[Judge], numbers: list[int], batch: RecordTask, sizes: Rows, book: Book) -> None:
        self._stages = stages
        self._numbers = numbers
        self._batch = batch
        self._book = book
        self._record_bytes = sizes
        self._rows: Rows | None = None
        """The records that are left; `None`: all."""
        self._left_bytes = batch.nbytes

    def run(self, place: int) -> Judged | None:
        """Run all stages, or those before the first that fails."""
        verdicts: Iterator[Verdict] = self._stages[0].verdicts(self._batch)
        for number in range(len(self._stages)):
            self._book.at_step(place + number)
            started = time.perf_counter()
            verdict = self._next(number, verdicts)
            if verdict is None:
                return Judged(place + number, self._left()) if number else None
            self._count(number, verdict)
            self._book.spent(self._numbers[number], started)
            if not len(verdict.left):
                return Judged(place + number + 1, None)
        next(verdicts, None)
        return Judged(place + len(self._stages), self._left())

    def _next(self, number: int, verdicts: Iterator[Verdict]) -> Verdict | None:
        stage = self._stages[number]
        notes().begin(isolation.note_of_rows(stage, self._batch, self._rows), stage.timeout_s)
        try:
            verdict: Verdict | None = call_stage(_next_of, verdicts)
        except ControlSignal:
            raise
        except BaseException:  # a rule's own code may raise anything
            return None
        finally:
            notes().end()
        return verdict

    def _count(self, number: int, verdict: Verdict) -> None:
        tally = self._book.tally(self._numbers[number])
        came = self._batch.num_items if self._rows is None else len(self._rows)
        tally.count_in(came, self._left_bytes)
        for drops in verdict.drops:
            count = len(drops.rows)
            came -= count
            self._left_bytes -= int(self._record_bytes[drops.rows].sum())
            tally.count_dropped(drops.rule, count)
            if self._book.keep_dropped is not None:
                self._book.keep_dropped(self._stages[number].name, _dropped_rows(self._batch, drops))
        assert came == len(verdict.left), f"{came} records should be left, {len(verdict.left)} are"
        tally.count_out(came, self._left_bytes)
        if not number:  # the first one scores for all of them, all that came
            self._book.keep_scores(self._numbers[0], Outcome([self._batch]))
        if verdict.drops:
            self._rows = verdict.left

    def _left(self) -> RecordTask:
        return self._batch if self._rows is None else self._batch.take(self._rows)


def _next_of(verdicts: Iterator[Verdict]) -> Verdict | None:
    return next(verdicts, None)


def _dropped_rows(batch: RecordTask, drops: RuleDrops) -> DroppedRows:
    return DroppedRows(batch.pick(drops.rows), drops.rule, score_list(drops.scores), drops.threshold)
