# SPDX-License-Identifier: Apache-2.0
"""Calls of adjacent stages that only judge: all of them decide on the rows of one batch, and none makes a batch.

If a stage fails, the records that are left go on stage by stage, where they are tried again, split and quarantined.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from thresher.core.records.record_task import RecordTask
from thresher.core.scores import JudgingStage, Verdict
from thresher.core.tally import StageContext
from thresher.runtime.crashes import crash_notes, isolation
from thresher.runtime.crashes.evidence import KNOWN
from thresher.runtime.worker.call import StageCall, call, end_note
from thresher.runtime.worker.count import Sized
from thresher.runtime.worker.settle import FusedResult, Outcome

if TYPE_CHECKING:
    from thresher.core.records.record_ids import Rows

Contexts = Sequence[StageContext]


def begin_fused(contexts: Contexts, given: Sized) -> FusedCall | None:
    """Return the fused call of some stages for a task; `None` if they must be called one by one."""
    batch = given.task
    if not isinstance(batch, RecordTask) or batch.ids is None or given.items < 2 or KNOWN.charges:
        return None
    if any(context.sizes is not None for context in contexts):
        return None
    sizes = batch.record_sizes()
    return None if sizes is None else FusedCall(contexts, batch, given, sizes)


class FusedCall:
    """A batch on its way through the stages."""

    def __init__(self, contexts: Contexts, batch: RecordTask, given: Sized, sizes: Rows) -> None:
        """`sizes`: the bytes of each record."""
        first = contexts[0].stage
        assert isinstance(first, JudgingStage)
        self.contexts = contexts
        """The stages, in order."""
        self._batch = batch
        self._given = given
        self._record_bytes = sizes
        self._rows: Rows | None = None
        """The records that are left; `None`: all."""
        self._left_bytes = given.nbytes
        self._verdicts: Iterator[Verdict] = first.verdicts(batch)

    def judge(self, context: StageContext) -> Outcome | None:
        """Return the outcome of the next stage; `None` if it failed or must be called."""
        note = None
        if crash_notes.keeper is not None:
            note = isolation.note_of_rows(context.stage, self._batch, self._rows)
        one = StageCall(context, [self._batch], _next_of, self._verdicts, note)
        call(one)
        if note is not None:
            end_note()
        verdict: Verdict | None = one.made
        return None if verdict is None else Outcome(judged=self._settled(verdict))

    def _settled(self, verdict: Verdict) -> FusedResult:
        came = self._given.items if self._rows is None else len(self._rows)
        for drops in verdict.drops:
            came -= len(drops.rows)
            self._left_bytes -= int(self._record_bytes[drops.rows].sum())
        assert came == len(verdict.left), f"{came} records should be left, {len(verdict.left)} are"
        if verdict.drops:
            self._rows = verdict.left
        return FusedResult(self._batch, verdict.left, self._left_bytes, verdict.drops)

    def left(self) -> Sized:
        """Return the records that all stages so far have kept."""
        next(self._verdicts, None)  # so that what follows the last verdict runs
        if self._rows is None:
            return self._given
        return Sized(self._batch.take(self._rows), len(self._rows), self._left_bytes)


def _next_of(verdicts: Iterator[Verdict]) -> Verdict | None:
    return next(verdicts, None)
