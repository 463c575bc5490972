# SPDX-License-Identifier: Apache-2.0
"""A flow whose call of a stage is made apart from what comes before and after it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from thresher.core.stage import OrderedStage
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.ledger.quarantine import enters_at
from thresher.runtime.memory import split as memory_split
from thresher.runtime.orders import Produced
from thresher.runtime.worker.call import StageCall, prepare_ahead
from thresher.runtime.worker.flow import Flow
from thresher.runtime.worker.settle import Outcome
from thresher.runtime.worker.sidecar import is_carrier
from thresher.runtime.worker.stage_call import after_group, go_on, run_group, run_stage


class AttendedFlow(Flow):
    """Of an op that is one stage. What is out of the ordinary runs as in any flow."""

    _ready: StageCall | None = None

    def ready(self) -> StageCall | None:
        """Do all that comes before the call; `None`: nothing was done, the flow is to be run as ever."""
        (first, *others), tasks = self._op.steps, self._tasks
        stage = self._plan.stages[first.stage]
        if others or first.kind != "process" or isinstance(stage, OrderedStage) or self._buffered:
            return None
        if not tasks or not all(self._is_ordinary(first.stage, task) for task in tasks):
            return None
        self._group_in(first.stage)
        self._ready = prepare_ahead(stage, tasks)
        return self._ready

    def _is_ordinary(self, stage: int, task: Task) -> bool:
        """Whether it goes to the stage as it is, and at once."""
        if is_carrier(task):
            return False
        return not (task.metadata and stage < enters_at(task.metadata)) and not self._large.is_large(task)

    def rest(self, ready: StageCall) -> Iterator[Produced]:
        """Everything that leaves the op, once the call was made; if it was not, it is made here."""
        number, tally = self._op.steps[0].stage, self._report.tally.stage(self._op.steps[0].stage)
        super()._count_own(ready.own, tally)
        tally.busy_s += ready.seconds
        self._report.busy_s += ready.seconds
        if len(ready.tasks) > 1:
            started = time.perf_counter()
            outcomes = _outcomes_of_group(ready, tally)
            self._spent(number, started)
            yield from self._group_out(number, outcomes)
        else:
            yield from self._task_out(number, ready, tally)

    def _task_out(self, number: int, ready: StageCall, tally: StageTally) -> Iterator[Produced]:
        started = time.perf_counter()
        for outcome in _outcomes_of_task(ready, tally):
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


def _outcomes_of_task(call: StageCall, tally: StageTally) -> Iterator[Outcome]:
    """Return the outcomes of the only task of a call; the stage may be called for them."""
    (task,) = call.tasks
    if not call.is_made:
        return run_stage(call.stage, task, tally, buffered=False)
    if call.outcomes is None and (isinstance(call.made, Iterator) or call.fault is not None or not call.settle()):
        return go_on(call.stage, task, tally, call.fault or call.made, buffered=False)
    assert call.outcomes is not None
    memory_split.call_worked(call.stage, task)
    return iter(call.outcomes)


def _outcomes_of_group(call: StageCall, tally: StageTally) -> list[Outcome]:
    """Return the outcomes of several tasks, one for each; the stage may be called for them."""
    if not call.is_made:
        return run_group(call.stage, call.tasks, tally)
    found = call.fault or call.outcomes
    assert found is not None, "what a stage gives for several tasks is settled at once"
    return after_group(call.stage, call.tasks, tally, found)
