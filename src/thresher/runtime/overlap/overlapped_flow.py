# SPDX-License-Identifier: Apache-2.0
"""A flow whose call of a stage is made apart from what comes before and after it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from thresher.core.records.record_task import RecordTask
from thresher.core.stage import OrderedStage
from thresher.core.tally import StageContext, StageTally
from thresher.core.task import Task
from thresher.ledger.quarantine import enters_at
from thresher.runtime.crashes.crash_notes import encode_text
from thresher.runtime.orders import Produced
from thresher.runtime.worker.call import StageCall, is_generator, prepare, settle
from thresher.runtime.worker.flow import Flow
from thresher.runtime.worker.settle import Outcome
from thresher.runtime.worker.stage_call import after_group, go_on, run_group, run_stage


class OverlappedFlow(Flow):
    """A flow through an op of one stage. `ready` does what comes before the call, `rest` what comes after it; anything
    out of the ordinary runs as in any flow."""

    _ready: StageCall | None = None

    def ready(self) -> StageCall | None:
        """Do everything that comes before the call; return `None`, with nothing done, if the flow must run as a
        whole."""
        (first, *others), tasks = self._op.steps, self._tasks
        context = self._contexts[first.stage]
        if others or first.kind != "process" or isinstance(context.stage, OrderedStage) or self._buffered:
            return None
        if not tasks or not all(self._is_ordinary(first.stage, task) for task in tasks):
            return None
        self._group_in(first.stage)
        self._ready = one = prepare(context, tasks)
        if one.note is not None:
            one.note_text = encode_text(one.note)
        return one

    def _is_ordinary(self, stage: int, task: Task) -> bool:
        """Return True if a task goes to the stage as it is, and at once."""
        if isinstance(task, RecordTask) and not task.num_items:
            return False
        if task.metadata and stage < enters_at(task.metadata):
            return False
        return self._large is None or task.nbytes <= self._large.large_bytes

    def rest(self, one: StageCall) -> Iterator[Produced]:
        """Yield everything that leaves the op after the call; if the call was not made, make it here."""
        number = self._op.steps[0].stage
        tally = self._tally_of(number)
        if one.noted is not None:
            tally.add(one.noted)
        tally.busy_s += one.seconds
        self._report.busy_s += one.seconds
        if len(one.tasks) > 1:
            started = time.perf_counter()
            outcomes = after_group(one) if one.is_made else run_group(one.context, one.tasks)
            self._spent(number, started)
            yield from self._group_out(number, outcomes)
        else:
            yield from self._task_out(number, one)

    def _task_out(self, number: int, one: StageCall) -> Iterator[Produced]:
        started = time.perf_counter()
        for outcome in _outcomes_of_task(one):
            self._spent(number, started)
            for made in self._count_out(number, outcome):
                yield Produced(self._loaded(made.task))
            started = time.perf_counter()
        self._spent(number, started)
        for left in self._leftover(one.tasks[0]):
            yield Produced(left)

    def _count_noted(self, context: StageContext, tally: StageTally) -> None:
        """Leave what the stage has counted since the call ended to its next call."""
        if self._ready is None or self._ready.outcomes is None:
            super()._count_noted(context, tally)


def _outcomes_of_task(one: StageCall) -> Iterator[Outcome]:
    """Return the outcomes of the only task of a call; the stage may be called for them."""
    (task,) = one.tasks
    if not one.is_made:
        return run_stage(one.context, task, buffered=False)
    if one.outcomes is None and (is_generator(one.made) or not settle(one)):
        return go_on(one, buffered=False)
    assert one.outcomes is not None
    if one.context.sizes is not None:
        one.context.sizes.nbytes.worked(task.nbytes)
    return iter(one.outcomes)
