# SPDX-License-Identifier: Apache-2.0
"""One call of a stage's own code: prepare it, make it, settle what it gave.

Every way to run a stage drives these functions: a task alone, several at once, and a call that a worker makes while its
helper thread does the rest.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from thresher.core.records.record_task import RecordTask
from thresher.core.scores import JudgingStage
from thresher.core.stage import ProcessingStage, overrides
from thresher.core.task import Task
from thresher.credentials import message_of, traceback_of
from thresher.errors import with_article
from thresher.runtime.crashes import isolation
from thresher.runtime.crashes.crash_notes import Note, encode_text, notes
from thresher.runtime.memory import split as memory_split
from thresher.runtime.overlap.helper_thread import call_stage
from thresher.runtime.payloads.payload import raise_if_view_written
from thresher.runtime.worker.settle import FlatList, Outcome, settle, settle_flat, settle_judged, settle_many
from thresher.stage_errors import OUT_OF_MEMORY, ControlSignal, is_out_of_memory, is_transient

Stage = ProcessingStage[Any, Any]
_RUNTIME = os.path.dirname(os.path.dirname(__file__))
_SEQUENCES = (list, tuple)


class SpansUnits(Exception):
    """A list of another length was made of tasks of several units, which are committed one by one."""


@dataclass(frozen=True)
class Fault:
    """What is kept of an error. The error itself would keep everything alive that the frames it went through held."""

    kind: str
    """The name of its type, or `out-of-memory`."""
    message: str
    """What it says."""
    traceback: str
    """Where a stage's code raised."""
    memory: bool
    """Whether memory ran out."""
    passes: bool = False
    """Whether the same call may work a little later."""

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """What there is to say of `error`; the frames that it went through let go of what they held."""
        raise_if_view_written(error)
        traceback.clear_frames(error.__traceback__)
        name = type(error).__name__
        text = message_of(error) or name
        if not is_out_of_memory(error):
            return cls(name, text, own_traceback(error), memory=False, passes=is_transient(error))
        advice = "give the run more memory, or let the stage need less"
        return cls(OUT_OF_MEMORY, f"memory ran out ({name}: {text}); {advice}", own_traceback(error), memory=True)


def own_traceback(error: BaseException) -> str:
    """Where a stage's code raised; the frames of the framework above it say nothing to its author."""
    frames = traceback.extract_tb(error.__traceback__)
    while len(frames) > 1 and frames[0].filename.startswith(_RUNTIME):
        del frames[0]
    return traceback_of(error, frames)


class StageCall(msgspec.Struct, eq=False):
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
    """What is noted before the call, for a crash report."""
    note_text: bytes = b""
    """The same, encoded, where that was done before."""
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
        except ControlSignal:
            raise
        except BaseException as error:
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
        return isinstance(self.given, RecordTask) and not isinstance(made, Iterator)

    def settle(self) -> bool:
        """Find out what became of the tasks; return True if what the stage gave tells."""
        try:
            self.outcomes = settled(self.stage, self.tasks, self.made)
        except ControlSignal:
            raise
        except BaseException as error:
            self.fault = Fault.of(error)
        return self.fault is None


def prepare(stage: Stage, tasks: list[Task], evidence: int = 0) -> StageCall:
    """Return the call for some tasks; `evidence`: what counts against a larger task that the only one was cut from."""
    note = isolation.note_of(stage, tasks, evidence)
    if len(tasks) > 1:
        return StageCall(stage, tasks, method_for_group(stage), tasks, note)
    return StageCall(stage, tasks, method_for_one(stage), tasks[0], note)


def prepare_ahead(stage: Stage, tasks: list[Task]) -> StageCall:
    """Return the call for some tasks with its note encoded, so that nothing is left to do right before it."""
    call = prepare(stage, tasks)
    call.note_text = encode_text(call.note)
    return call


def attempt(call: StageCall, *, buffered: bool) -> list[Outcome] | Fault | Iterator[Any]:
    """Make a call: return the outcomes, one per task, what went wrong, or (unless `buffered`) the generator it gave."""
    stage, keeper = call.stage, notes()
    keeper.begin(call.note, stage.timeout_s)
    try:
        made: Any = call_stage(call.function, call.given)
        if isinstance(made, Task) or not isinstance(made, Iterator):
            return settled(stage, call.tasks, made)
        return [settle_many(call.given, _drained(call, made), stage.name)] if buffered else made
    except ControlSignal:
        raise
    except BaseException as error:
        return Fault.of(error)
    finally:
        keeper.end()


def settled(stage: Stage, tasks: list[Task], made: Any) -> list[Outcome]:
    """Return the outcomes of a call that gave `made`, one for each task."""
    if len(tasks) > 1:
        return _settled_entries(stage, tasks, made)
    (task,) = tasks
    if isinstance(stage, JudgingStage) and isinstance(task, RecordTask) and stage.only_judges:
        assert isinstance(made, RecordTask)
        if task.as_given() is task:
            return [settle_judged(task, made)]
    return [settle(task, made, stage.name)]


def _settled_entries(stage: Stage, tasks: list[Task], entries: list[Any]) -> list[Outcome]:
    if len(entries) == len(tasks):
        return [settle(task, made, stage.name) for task, made in zip(tasks, entries, strict=True)]
    if entries and spans_units(tasks):
        raise SpansUnits
    return settle_flat(tasks, entries, stage.name)


def spans_units(tasks: list[Task]) -> bool:
    """Return True if tasks belong to more than one unit."""
    return len({unit_of(task) for task in tasks}) > 1


def unit_of(task: Task) -> str:
    """Return the id of the unit that a task belongs to."""
    return task.task_id.partition("/")[0]


def _drained(call: StageCall, made: Iterator[Any]) -> list[Any]:
    """Return everything that a generator gives; each of its steps has the time of a call."""
    given = []
    for result in made:
        given.append(result)
        notes().begin(call.note, call.stage.timeout_s)
    return given


def method_for_one(stage: Stage) -> Callable[[Task], Any]:
    """Return what is called for one task: `process_batch` where the author defined it, else `process`."""
    if not overrides(stage, "process_batch"):
        return stage.process

    def call(task: Task) -> Any:
        entries = entries_of(stage, stage.process_batch([task]))
        return entries[0] if len(entries) == 1 else FlatList(entries)

    return call


def entries_of(stage: Stage, made: Any) -> list[Any]:
    """Return what `process_batch` gave as a list."""
    if made is None:
        return []
    if isinstance(made, Task):
        return [made]
    if isinstance(made, Sequence | Iterator) and not isinstance(made, str | bytes):
        return list(made)
    raise TypeError(
        f"{stage.name}.process_batch returned {with_article(type(made))}; "
        "return a list with one entry (task, list or None) per task, in order"
    )


def method_for_group(stage: Stage) -> Callable[[list[Task]], list[Any]]:
    """Return what is called for several tasks; it leaves none of the author's code to be run."""

    def call(tasks: list[Task]) -> list[Any]:
        entries = entries_of(stage, stage.process_batch(tasks))
        return [list(entry) if isinstance(entry, Iterator) else entry for entry in entries]

    return call
