# SPDX-License-Identifier: Apache-2.0
"""Call a stage's own code: `prepare` the call, `call`, `settle` its result, and `count` what became of the records.

Every call goes through these four functions (`count` is in `count.py`). A plain call, a fused one and one that overlaps
with the work of a helper thread differ only in who drives them: `attempt`, `flow.py` and `runtime/overlap/`.
"""

from __future__ import annotations

import functools
import os
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from thresher.core.planning.inputs import check_input
from thresher.core.records.record_task import RecordTask
from thresher.core.scores import JudgingStage
from thresher.core.source import failed_record
from thresher.core.stage import ProcessingStage, SourceStage
from thresher.core.tally import StageContext, StageTally
from thresher.core.task import RawChunk, Task
from thresher.credentials import message_of, traceback_of
from thresher.errors import RunFailedError, with_article
from thresher.runtime.crashes import crash_notes, isolation
from thresher.runtime.crashes.crash_notes import Note
from thresher.runtime.crashes.evidence import KNOWN
from thresher.runtime.memory import split as memory_split
from thresher.runtime.overlap import helper_thread
from thresher.runtime.payloads.payload import raise_if_view_written
from thresher.runtime.worker.settle import FlatList, Outcome, settle_flat, settle_judged, settle_many, settle_task
from thresher.stage_errors import OUT_OF_MEMORY, ControlSignal, is_out_of_memory, is_transient

Stage = ProcessingStage[Any, Any]
_RUNTIME = os.path.dirname(os.path.dirname(__file__))
_SEQUENCES = (list, tuple)


class SpansUnits(Exception):
    """Raised if a stage returned a list of another length for tasks of several units, which are committed apart."""


@dataclass(frozen=True)
class Fault:
    """Description of an error. The error itself would keep everything alive that the frames it went through held."""

    kind: str
    """The name of its type, or `out-of-memory`."""
    message: str
    """Its message."""
    traceback: str
    """The frames of the stage's code that raised."""
    memory: bool
    """True if memory ran out."""
    passes: bool = False
    """True if the same call may succeed a little later."""

    @classmethod
    def of(cls, error: BaseException) -> Fault:
        """Return the description of `error`, and release what the frames hold that it went through.

        A failure that no record caused, as the stage says itself, is raised again: it ends the run.
        """
        raise_if_view_written(error)
        if isinstance(error, RunFailedError):
            raise error
        traceback.clear_frames(error.__traceback__)
        name = type(error).__name__
        text = (message_of(error) or name) + _advice_on(error)
        if not is_out_of_memory(error):
            return cls(name, text, own_traceback(error), memory=False, passes=is_transient(error))
        advice = "give the run more memory, or let the stage need less"
        return cls(OUT_OF_MEMORY, f"memory ran out ({name}: {text}); {advice}", own_traceback(error), memory=True)


_ARROW = "pyarrow.lib."
_ON_TABLES = (
    " (an Arrow table cannot be changed in place: change the frame of to_pandas() and return the batch, or set "
    "takes_frames = True on the stage)"
)


def _advice_on(error: BaseException) -> str:
    """Return what to do where code for data frames got an Arrow table; empty for other errors."""
    is_of_types = isinstance(error, AttributeError | TypeError)
    return _ON_TABLES if is_of_types and _ARROW in str(error) else ""


def own_traceback(error: BaseException) -> str:
    """Return where a stage's code raised, without the frames of the framework above it."""
    frames = traceback.extract_tb(error.__traceback__)
    while len(frames) > 1 and frames[0].filename.startswith(_RUNTIME):
        del frames[0]
    return traceback_of(error, frames)


class StageCall(msgspec.Struct, eq=False):
    """A call of a stage for one task, or for several at once."""

    context: StageContext
    """The stage, and what the worker keeps about it."""
    tasks: list[Task]
    """The tasks that it is called for."""
    function: Callable[[Any], Any]
    """The author's method."""
    given: Any
    """The argument of the method."""
    note: Note | None
    """The crash note; `None` where no other process would read it."""
    note_text: bytes = b""
    """Its encoded text, if the call was prepared ahead."""
    is_made: bool = False
    """True once the method has returned or raised."""
    made: Any = None
    """The result of the method."""
    seconds: float = 0.0
    """Time that it took."""
    noted: StageTally | None = None
    """Counts of the stage during the call, taken if another call may start before this one is counted."""
    fault: Fault | None = None
    """The failure of the method, or of settling what it returned."""
    outcomes: list[Outcome] | None = None
    """The outcome of each task, once the call is settled."""

    def still_holds(self) -> bool:
        """Return True if the tasks may be given to the stage as prepared: no worker crashed, memory never ran out."""
        return not KNOWN.charges and self.context.sizes is None

    def is_over(self, *, may_wait: bool) -> bool:
        """Return True if the stage has nothing more to do with the tasks. With `may_wait`, there may not be several
        results either: the second may have to wait for room, and no other call of the stage may start meanwhile."""
        made = self.made
        if self.fault is not None or not may_wait:
            return self.fault is None and not is_generator(made)
        if made is None or isinstance(made, Task):
            return True
        if isinstance(made, _SEQUENCES):
            return len(made) < 2
        return isinstance(self.given, RecordTask) and not isinstance(made, Iterator)


def prepare(context: StageContext, tasks: list[Task], evidence: int = 0) -> StageCall:
    """Return the call for some tasks; `evidence`: against a larger task that the only one was cut from."""
    stage = context.stage
    note = None if crash_notes.keeper is None else isolation.note_of(stage, tasks, evidence)
    if stage.takes_frames:
        for task in tasks:
            if isinstance(task, RecordTask):
                task.lend_frames()
    method: Callable[[Any], Any]
    if len(tasks) > 1:
        method = functools.partial(_call_for_group, stage)
    else:
        method = functools.partial(_call_batch_for_one, stage) if context.takes_lists else stage.process
    if context.checks_inputs:
        method = functools.partial(_call_checked, stage, tasks, method)
    return StageCall(context, tasks, method, tasks if len(tasks) > 1 else tasks[0], note)


def call(one: StageCall) -> None:
    """Call the stage's own code. The crash note stays until `end_note`."""
    helper = helper_thread.helper
    if one.note is not None:
        begin_note(one)
    started = time.perf_counter()
    try:
        one.made = one.function(one.given) if helper is None else helper.call(one.function, one.given)
    except ControlSignal:
        raise
    except BaseException as error:
        one.fault = Fault.of(error)
    one.seconds = time.perf_counter() - started
    one.is_made = True


def settle(one: StageCall) -> bool:
    """Find out what became of the tasks; return False if the call failed, or if its result makes no sense. A generator
    runs to its end."""
    if one.fault is None:
        try:
            one.outcomes = _outcomes(one)
        except ControlSignal:
            raise
        except BaseException as error:
            one.fault = Fault.of(error)
    return one.fault is None


def attempt(context: StageContext, tasks: list[Task], *, buffered: bool = True, evidence: int = 0) -> StageCall:
    """Make a call and settle its result, except for a generator that is to run later (unless `buffered`)."""
    one = prepare(context, tasks, evidence)
    try:
        call(one)
        if buffered or not is_generator(one.made):
            settle(one)
    finally:
        if one.note is not None:
            end_note()
    return one


def begin_note(one: StageCall) -> None:
    """Write the crash note of a call, from which its time limit counts."""
    assert crash_notes.keeper is not None, "a note is made only where it is read"
    assert one.note is not None
    crash_notes.keeper.begin(one.note, one.context.stage.timeout_s, one.note_text)


def end_note() -> None:
    """Write that no call is being made."""
    if crash_notes.keeper is not None:
        crash_notes.keeper.end()


def _outcomes(one: StageCall) -> list[Outcome]:
    stage, tasks, made = one.context.stage, one.tasks, one.made
    if len(tasks) > 1:
        return _settled_entries(stage, tasks, made)
    (task,) = tasks
    if is_generator(made):
        return [settle_many(task, _drained(one), stage.name)]
    if isinstance(task, RecordTask) and isinstance(made, RecordTask) and _only_judges(stage) and task.absorb_writes():
        return [settle_judged(task, made)]
    return [settle_task(task, made, stage.name)]


def is_generator(made: Any) -> bool:
    """Return True if a stage yields its results one by one."""
    return isinstance(made, Iterator) and not isinstance(made, Task)


def _only_judges(stage: Stage) -> bool:
    return isinstance(stage, JudgingStage) and stage.only_judges


def _settled_entries(stage: Stage, tasks: list[Task], entries: list[Any]) -> list[Outcome]:
    if len(entries) == len(tasks):
        return [settle_task(task, made, stage.name) for task, made in zip(tasks, entries, strict=True)]
    if entries and spans_units(tasks):
        raise SpansUnits
    return settle_flat(tasks, entries, stage.name)


def spans_units(tasks: list[Task]) -> bool:
    """Return True if tasks belong to more than one unit."""
    return len({unit_of(task) for task in tasks}) > 1


def unit_of(task: Task) -> str:
    """Return the id of the unit that a task belongs to."""
    return task.task_id.partition("/")[0]


def _drained(one: StageCall) -> list[Any]:
    """Return everything that a generator yields; each of its steps has the time of a call."""
    given = []
    for result in one.made:
        given.append(result)
        if one.note is not None:
            begin_note(one)
    return given


def _call_checked(stage: Stage, tasks: list[Task], method: Callable[[Any], Any], given: Any) -> Any:
    """Call a method for tasks that the stage takes; raise for others."""
    for task in tasks:
        check_input(stage, task)
    return method(given)


def _call_batch_for_one(stage: Stage, task: Task) -> Any:
    entries = entries_of(stage, stage.process_batch([task]))
    return entries[0] if len(entries) == 1 else FlatList(entries)


def _call_for_group(stage: Stage, tasks: list[Task]) -> list[Any]:
    """Call `process_batch` and run the generators among its entries, so that none of the author's code is left."""
    entries = entries_of(stage, stage.process_batch(tasks))
    return [list(entry) if isinstance(entry, Iterator) else entry for entry in entries]


def entries_of(stage: Stage, made: Any) -> list[Any]:
    """Return the result of `process_batch` as a list."""
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


# -- chunks that a reader parses ---------------------------------------------------------------------------------------


def parse_within_memory(source: SourceStage[Any], task: Task) -> Iterator[RecordTask]:
    """Yield the records of a chunk: one batch, or several where memory ran out. A record that does not fit alone is
    set aside; a task that may not be cut raises."""
    batch = _try_parse(source, task)
    if batch is not None:
        yield batch
        return
    memory_split.give_memory_back()
    pieces = task.halves() if isinstance(task, RawChunk) else []
    for piece in pieces:
        yield from parse_within_memory(source, piece)
    if pieces:
        return
    batch = _try_parse(source, task)
    if batch is None:
        if not isinstance(task, RawChunk):
            raise MemoryError(f"memory ran out twice while {source.name} parsed {task!r}")
        message = "memory ran out twice while the record was parsed; give the run more memory, or leave the record out"
        head = bytes(memoryview(task.data).cast("B")[: memory_split.HEAD_BYTES])
        batch = failed_record(task.source, task.offset, OUT_OF_MEMORY, message, head, attempts=2)
    yield batch


def _try_parse(source: SourceStage[Any], task: Task) -> RecordTask | None:
    """Return the records; `None` where memory ran out. The error is released on return, with all that it held."""
    try:
        batch: RecordTask = source.parse(task)
        return batch
    except Exception as error:  # libraries say in many ways that memory ran out
        if not is_out_of_memory(error):
            raise
        return None
