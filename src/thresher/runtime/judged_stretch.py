# SPDX-License-Identifier: Apache-2.0
"""Stages side by side that do nothing but judge, run in one go: counted as if each had been called, without the calls.

Whatever goes wrong in it is nobody's business here: what is left then goes on stage by stage, where it is tried again,
split and set aside as ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from thresher.core.batch import DocumentBatch, DroppedRows
from thresher.core.plan import Plan, Step
from thresher.core.scores import JudgingStage, RuleDrops, Verdict, score_list
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.runtime import isolation, memory_split
from thresher.runtime.attendant import call_stage
from thresher.runtime.death_notes import notes
from thresher.runtime.settle import Outcome
from thresher.runtime.stage_call import Failure

if TYPE_CHECKING:
    from thresher.core.records import Rows

Judge = JudgingStage[Any, Any]


class Book(NamedTuple):
    """Where it is counted what became of records."""

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
    """A batch behind some stages."""

    place: int
    """The step that comes next."""
    batch: DocumentBatch | None
    """What is left; `None`: nothing."""


def judge_stretch(
    plan: Plan, steps: Sequence[Step], place: int, task: Task, open_book: Callable[[], Book]
) -> Judged | None:
    """What the stages from step `place` on make of a task; `None` where they have to be called one by one."""
    first = plan.stages[steps[place].stage]
    if not isinstance(first, JudgingStage) or not first.beside or not isinstance(task, DocumentBatch):
        return None
    stages: list[Judge] = [first, *first.beside]
    numbers = [step.stage for step in steps[place : place + len(stages)]]
    if [plan.stages[number] for number in numbers] != stages or not _can_run(plan, stages, task):
        return None
    return _Stretch(stages, numbers, task, open_book()).run(place)


def _can_run(plan: Plan, stages: list[Judge], batch: DocumentBatch) -> bool:
    """Whether nothing asks for less than a whole batch at a time, and no score of another run is used."""
    if isolation.is_needed() or batch.ids is None or len(batch) < 2 or batch.raw_lines is None:
        return False
    if plan.scores is not None and plan.scores.known is not None:
        return False
    return all(stage.row_wise and memory_split.sizes_of(stage) is None for stage in stages)


class _Stretch:
    """One batch on its way through the stages."""

    def __init__(self, stages: list[Judge], numbers: list[int], batch: DocumentBatch, book: Book) -> None:
        raw = batch.raw_lines
        assert raw is not None, "looked at before"
        self._stages = stages
        self._numbers = numbers
        self._batch = batch
        self._book = book
        self._line_bytes = raw.ends - raw.starts
        self._rows: Rows | None = None
        """The records that are left; `None`: all."""
        self._left_bytes = batch.nbytes

    def run(self, place: int) -> Judged | None:
        """All stages; or as many as it goes well with."""
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
        except Failure:
            return None
        finally:
            notes().end()
        return verdict

    def _count(self, number: int, verdict: Verdict) -> None:
        tally = self._book.tally(self._numbers[number])
        came = len(self._batch) if self._rows is None else len(self._rows)
        tally.in_docs += came
        tally.in_bytes += self._left_bytes
        tally.tasks += 1
        for drops in verdict.drops:
            count = len(drops.rows)
            came -= count
            self._left_bytes -= int(self._line_bytes[drops.rows].sum())
            tally.dropped += count
            tally.reasons[drops.rule] = tally.reasons.get(drops.rule, 0) + count
            if self._book.keep_dropped is not None:
                self._book.keep_dropped(self._stages[number].name, _dropped_rows(self._batch, drops))
        assert came == len(verdict.left), f"{came} records should be left, {len(verdict.left)} are"
        tally.out_docs += came
        tally.out_bytes += self._left_bytes
        if not number:  # the first one scores for all of them, all that came
            self._book.keep_scores(self._numbers[0], Outcome([self._batch]))
        if verdict.drops:
            self._rows = verdict.left

    def _left(self) -> DocumentBatch:
        return self._batch if self._rows is None else self._batch.take(self._rows)


def _next_of(verdicts: Iterator[Verdict]) -> Verdict | None:
    return next(verdicts, None)


def _dropped_rows(batch: DocumentBatch, drops: RuleDrops) -> DroppedRows:
    return DroppedRows(batch._picked(drops.rows), drops.rule, score_list(drops.scores), drops.threshold)
