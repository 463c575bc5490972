# SPDX-License-Identifier: Apache-2.0
"""A call of a stage of which nothing is missing but the stage's own code: what comes before it is done, and what comes
after it can be done by somebody else.

A worker that keeps a device busy has the next such call at hand when one comes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from thresher.core.batch import DocumentBatch
from thresher.core.stage import ProcessingStage, overrides
from thresher.core.tally import StageTally
from thresher.core.task import Task
from thresher.runtime import isolation, memory_split
from thresher.runtime.death_notes import Note, encode_text, notes
from thresher.runtime.settle import Outcome
from thresher.runtime.stage_call import (
    Failure,
    Fault,
    after_group,
    go_on,
    run_group,
    run_stage,
    settled,
    settled_entries,
)

Stage = ProcessingStage[Any, Any]
_SEQUENCES = (list, tuple)


class ReadyCall(msgspec.Struct, eq=False):
    """One call of a stage for one task, or for several at once."""

    stage: Stage
    """Whose code is called."""
    tasks: list[Task]
    """What it is called for."""
    function: Callable[[Any], Any]
    """The method that its author wrote."""
    given: Any
    """What the method gets."""
    note: Note
    """What is written down before the call."""
    note_text: bytes
    """The same, encoded."""
    is_made: bool = False
    """Whether the stage has come back."""
    made: Any = None
    """What it gave."""
    seconds: float = 0.0
    """How long it took."""
    own: dict[str, Any] = {}
    """What it has counted itself meanwhile."""
    fault: Fault | None = None
    """What went wrong in it, or in settling what it gave."""
    outcomes: list[Outcome] | None = None
    """What became of the tasks, once that is settled."""

    def still_holds(self) -> bool:
        """Whether the tasks are to be given to the stage just so: no worker died, and memory never ran out."""
        return not isolation.is_needed() and memory_split.sizes_of(self.stage) is None

    def make(self, ring: Callable[[], None]) -> None:
        """Call the stage's own code; `ring` is called right before."""
        stage, keeper = self.stage, notes()
        keeper.begin(self.note, stage.timeout_s, self.note_text)
        started = time.perf_counter()
        try:
            ring()
            self.made = self.function(self.given)
        except Failure as error:
            self.fault = Fault.of(error)
        finally:
            keeper.end()
        self.seconds = time.perf_counter() - started
        self.is_made = True
        if "_counts" in stage.__dict__ or "_splits" in stage.__dict__:
            self.own = {name: stage.__dict__.pop(name) for name in ("_counts", "_splits") if name in stage.__dict__}

    def is_over(self, *, may_wait: bool) -> bool:
        """Whether the stage has nothing more to do with the tasks. `may_wait`: nor may there be several results, since
        the second may have to wait for room, and no other call of the stage may be made meanwhile."""
        made = self.made
        if self.fault is not None or not may_wait:
            return self.fault is None and (isinstance(made, Task) or not isinstance(made, Iterator))
        if made is None or isinstance(made, Task):
            return True
        if isinstance(made, _SEQUENCES):
            return len(made) < 2
        return isinstance(self.given, DocumentBatch) and not isinstance(made, Iterator)

    def settle(self) -> bool:
        """Find out what became of the tasks; whether that could be found out of what the stage gave."""
        try:
            if len(self.tasks) > 1:
                self.outcomes = settled_entries(self.stage, self.tasks, self.made)
            else:
                self.outcomes = [settled(self.stage, self.tasks[0], self.made)]
        except Failure as error:
            self.fault = Fault.of(error)
        return self.fault is None

    def of_task(self, tally: StageTally) -> Iterator[Outcome]:
        """Outcomes of its only task; the stage may be called for them."""
        (task,) = self.tasks
        if not self.is_made:
            return run_stage(self.stage, task, tally, buffered=False)
        if self.outcomes is None and (isinstance(self.made, Iterator) or self.fault is not None or not self.settle()):
            return go_on(self.stage, task, tally, self.fault or self.made, buffered=False)
        assert self.outcomes is not None
        memory_split.call_worked(self.stage, task)
        return iter(self.outcomes)

    def of_group(self, tally: StageTally) -> list[Outcome]:
        """Outcomes of several tasks, one for each; the stage may be called for them."""
        if not self.is_made:
            return run_group(self.stage, self.tasks, tally)
        found = self.fault or self.outcomes
        assert found is not None, "what a stage gives for several tasks is settled at once"
        return after_group(self.stage, self.tasks, tally, found)


def ready_call(stage: Stage, tasks: list[Task]) -> ReadyCall:
    """The call for some tasks."""
    note = isolation.note_of(stage, tasks)
    text = encode_text(note)
    if len(tasks) > 1:
        return ReadyCall(stage, tasks, _all_of_batch(stage), tasks, note, text)
    if overrides(stage, "process_batch") and not overrides(stage, "process"):
        return ReadyCall(stage, tasks, _one_of_batch(stage), tasks[0], note, text)
    return ReadyCall(stage, tasks, stage.process, tasks[0], note, text)


def _all_of_batch(stage: Stage) -> Callable[[list[Task]], list[Any]]:
    """Calls `process_batch`; none of the author's code is left to run in what this gives."""

    def call(tasks: list[Task]) -> list[Any]:
        entries = stage.process_batch(tasks)
        return [iter(list(entry)) if isinstance(entry, Iterator) else entry for entry in entries]

    return call


def _one_of_batch(stage: Stage) -> Callable[[Task], Any]:
    """Calls `process_batch` for one task."""

    def call(task: Task) -> Any:
        entries = list(stage.process_batch([task]))
        return entries[0] if len(entries) == 1 else entries

    return call
