# SPDX-License-Identifier: Apache-2.0
"""Decide how a stage is given a task after workers crashed: whole, in parts, or record by record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thresher.core.records.record_task import RecordTask
from thresher.core.stage import ProcessingStage, needs_own_workers
from thresher.core.tally import StageContext
from thresher.core.task import RawChunk, Task
from thresher.runtime.crashes.crash_notes import PROCESS, Note, short_name
from thresher.runtime.crashes.evidence import CONDEMNS, CUTS, DOUBTFUL, KNOWN, Charge
from thresher.runtime.memory.split import can_be_cut

if TYPE_CHECKING:
    from thresher.core.records.record_ids import Rows

Stage = ProcessingStage[Any, Any]
FEW = 256
"""So many records are run one by one. What is larger is cut to that first: a call for each of thousands of records
would take longer than another worker."""


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a task."""

    whole: Task
    """The task."""
    rows: range | None = None
    """Numbers of its records; `None`: all of it, also where it has no records that could be counted."""
    charge: Charge | None = None
    """Why it is quarantined instead of being given to the stage."""
    is_record: bool = False
    """True if it is a single record, run alone."""
    evidence: int = 0
    """Weight of the evidence against the task that it was cut from."""

    @property
    def task(self) -> Task:
        """Return the part as a task."""
        if self.rows is None:
            return self.whole
        assert isinstance(self.whole, RecordTask)
        return self.whole.take(self.rows)


@dataclass
class Cut:
    """A task and the parts in which the stage gets it."""

    context: StageContext
    """The stage that gets it."""
    task: Task
    """The task."""
    name: str
    """Its name."""
    parts: list[Part] = field(default_factory=list)
    """In order."""
    is_charged: bool = False
    """True if a worker crashed on this task, so that its success is reported."""
    failed_together: bool = False
    """True if, once all parts succeed, no single record caused the crash."""

    @property
    def is_whole(self) -> bool:
        """True if the stage gets the task whole."""
        return len(self.parts) == 1 and self.parts[0].rows is None and self.parts[0].charge is None

    def came_to_its_end(self) -> None:
        """Report that the stage has processed all parts, so that the charge against the task ends."""
        if self.is_charged:
            size = self.task.num_items if self.failed_together else 0
            KNOWN.clear(self.context.stage.name, self.name, size)


def name_of(task: Task) -> str:
    """Return a name that is the same whenever the same records are given; for a single record its id."""
    ids, count = task.ids if isinstance(task, RecordTask) else None, task.num_items
    if ids is None or not count:
        return short_name(task.task_id)
    first = short_name(ids.at(0))
    return first if count == 1 else f"{first}\t{short_name(ids.at(count - 1))}\t{count}"


def place_of(task: Task) -> str:
    """Return where something was read, for a crash report."""
    if isinstance(task, RawChunk):
        return short_name(f"{task.source[1]} from byte {task.offset} on")
    ids = task.ids if isinstance(task, RecordTask) else None
    if ids is None or not task.num_items:
        return short_name(task.task_id)
    first, path, position = ids.where(0)
    return short_name(f"records from {first} on, of {path} at {position}")


def note_of(stage: Stage, tasks: list[Task], evidence: int = 0) -> Note:
    """Return the crash note for a call of a stage."""
    if len(tasks) > 1:
        names = tuple(name_of(task) for task in tasks)
        return Note(PROCESS, stage.name, names, sum(task.num_items for task in tasks), False, evidence)
    (task,) = tasks
    alone = not _may_be_cut(stage, task)
    if alone and stage.max_attempts == 1:
        evidence = CONDEMNS  # it is not to be tried again, whatever ended it
    return Note(PROCESS, stage.name, (name_of(task),), task.num_items, alone, evidence)


def note_of_rows(stage: Stage, batch: RecordTask, rows: Rows | None) -> Note:
    """Return the crash note for some records of a batch, which have ids and may be cut; `None`: all of them."""
    if rows is None or len(rows) == 1:
        return note_of(stage, [batch if rows is None else batch.pick(rows)])
    ids = batch.ids
    assert ids is not None, "records without ids are given to stages as batches"
    name = f"{short_name(ids.at(rows[0]))}\t{short_name(ids.at(rows[-1]))}\t{len(rows)}"
    return Note(PROCESS, stage.name, (name,), len(rows))


def wants_tasks_alone(stage: Stage, tasks: list[Task]) -> bool:
    """Return True if tasks of one call should be run one by one."""
    name = stage.name
    return KNOWN.has_lost_groups(name) or any(KNOWN.against(name, name_of(task)).deaths for task in tasks)


def cut(context: StageContext, task: Task, evidence: int = 0) -> Cut:
    """Return the parts of a task, by what earlier workers crashed on; `evidence`: against what it was cut from."""
    stage, name = context.stage, name_of(task)
    charge = KNOWN.against(stage.name, name)
    made = Cut(context, task, name)
    if not _may_be_cut(stage, task):
        made.parts = [Part(task, None, charge if charge.is_condemned else None)]
        return made
    assert isinstance(task, RecordTask)
    notorious = KNOWN.is_notorious(stage.name)
    weight = min(CUTS, charge.weight + max(evidence, DOUBTFUL * notorious))
    condemned = _condemned_rows(stage, task)
    made.is_charged = charge.weight > 0 and weight >= CUTS
    made.failed_together = not condemned
    if (made.is_charged and task.num_items <= FEW) or (notorious and needs_own_workers(stage)):
        proven = max(condemned, default=-1) + 1 if made.is_charged else 0
        made.parts = [*_pieces(stage, task, range(proven), condemned, weight)]
        made.parts += [_record(task, row, condemned, weight) for row in range(proven, task.num_items)]
        context.noted.note_splits(int(made.is_charged), 1)
    else:
        made.parts = [
            *_pieces(stage, task, range(task.num_items), condemned, weight if made.is_charged or notorious else 0)
        ]
    return made


def _may_be_cut(stage: Stage, task: Task) -> bool:
    """Return True if a task may be cut: records without ids cannot be told apart in another worker."""
    return can_be_cut(stage, task) and isinstance(task, RecordTask) and task.ids is not None


def _condemned_rows(stage: Stage, batch: RecordTask) -> dict[int, Charge]:
    if not KNOWN.has_condemned(stage.name):
        return {}
    assert batch.ids is not None
    names = enumerate(batch.ids.strings())
    charges = ((row, KNOWN.against(stage.name, short_name(name))) for row, name in names)
    return {row: charge for row, charge in charges if charge.is_condemned}


def _record(batch: RecordTask, row: int, condemned: dict[int, Charge], evidence: int = 0) -> Part:
    return Part(batch, range(row, row + 1), condemned.get(row), is_record=True, evidence=evidence)


def _pieces(stage: Stage, batch: RecordTask, rows: range, condemned: dict[int, Charge], weight: int) -> Iterator[Part]:
    """Yield stretches of a batch without the records that are set aside, none longer than the stage may get: short ones
    if there is evidence against the batch."""
    most = KNOWN.most_rows(stage.name) or batch.num_items
    most = min(most, FEW) if weight else most
    start = rows.start
    for border in [*(row for row in condemned if row in rows), rows.stop]:
        for first in range(start, border, most):
            piece = range(first, min(first + most, border))
            yield Part(batch, None if len(piece) == batch.num_items else piece, evidence=weight)
        if border < rows.stop:
            yield _record(batch, border, condemned)
        start = border + 1
