# SPDX-License-Identifier: Apache-2.0
"""A flow whose call of a stage is made apart from what comes before and after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from thresher.core.batch import DocumentBatch
from thresher.core.stage import OrderedStage
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.ledger.quarantine import enters_at
from thresher.runtime.flow import Flow
from thresher.runtime.orders import Produced
from thresher.runtime.ready_call import ReadyCall, ready_call


class AttendedFlow(Flow):
    """Of an op that is one stage. What is out of the ordinary runs as in any flow."""

    _ready: ReadyCall | None = None

    def ready(self) -> ReadyCall | None:
        """Do all that comes before the call; `None`: nothing was done, the flow is to be run as ever."""
        (first, *others), tasks = self._op.steps, self._order.tasks
        stage = self._plan.stages[first.stage]
        if others or first.kind != "process" or isinstance(stage, OrderedStage) or self._buffered:
            return None
        if not tasks or not all(self._is_ordinary(first.stage, task) for task in tasks):
            return None
        for number, task in enumerate(tasks):
            self._report = self._reports[number]
            self._count_initial(task)
            self._take_over(task)
            self._count_in(first.stage, task)
        self._report = self._reports[0]
        self._ready = ready_call(stage, tasks)
        return self._ready

    def _is_ordinary(self, stage: int, task: Task) -> bool:
        """Whether it goes to the stage as it is, and at once."""
        if isinstance(task, DocumentBatch) and not len(task):
            return False
        return not (task.metadata and stage < enters_at(task.metadata)) and not self._large.is_large(task)

    def rest(self, ready: ReadyCall) -> Iterator[Produced]:
        """Everything that leaves the op, once the call was made; if it was not, it is made here."""
        number, tally = self._op.steps[0].stage, self._report.tally.stage(self._op.steps[0].stage)
        super()._count_own(ready.own, tally)
        tally.busy_s += ready.seconds
        self._report.busy_s += ready.seconds
        if len(ready.tasks) > 1:
            started = time.perf_counter()
            outcomes = ready.of_group(tally)
            self._spent(number, started)
            yield from self._group_out(number, outcomes)
        else:
            yield from self._task_out(number, ready, tally)

    def _task_out(self, number: int, ready: ReadyCall, tally: StageTally) -> Iterator[Produced]:
        started = time.perf_counter()
        for outcome in ready.of_task(tally):
            self._spent(number, started)
            self._count_out(number, outcome)
            for made in outcome.tasks:
                yield Produced(self._loaded(made))
            started = time.perf_counter()
        self._spent(number, started)
        for made in self._leftover(ready.tasks[0]):
            yield Produced(made)

    def _count_own(self, own: dict[str, Any], tally: StageTally) -> None:
        """What the stage has counted since it came back belongs to its next call."""
        if self._ready is None or self._ready.outcomes is None:
            super()._count_own(own, tally)
