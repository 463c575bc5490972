# SPDX-License-Identifier: Apache-2.0
"""Checks of a pipeline before anything runs. All problems are reported in one message."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from thresher.core.outlets import KEPT_STREAMS, unknown_outlet
from thresher.core.phases import PhaseReader, PhaseWriter, phase_starts
from thresher.core.planning.inputs import missing_inputs, named_types, needs_for, wrong_type
from thresher.core.planning.task_types import (
    TaskTypes,
    declared_types,
    may_have,
    misfits,
    names_of,
    task_types,
    types_after,
)
from thresher.core.records.record_task import RecordTask
from thresher.core.scores import rules_of
from thresher.core.stage import OrderedStage, ProcessingStage, SinkStage, SourceStage, needs_own_workers
from thresher.core.task import EmptyTask, Task
from thresher.errors import PlanError, RefusedError, UsageError, numbered, with_article

Stage = ProcessingStage[Any, Any]


class Problems:
    """Collector of refusals, for reporting them in one message."""

    def __init__(self) -> None:
        self.found: list[RefusedError] = []

    def check(self, check: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        """Run a check and keep the error if it raises a `RefusedError`."""
        try:
            check(*args, **kwargs)
        except RefusedError as error:
            self.found.append(error)

    def refuse(self) -> None:
        """Raise if there are problems: a single one unchanged, several as a list. One that several stages share, such
        as a missing model, is told once."""
        told = {str(error): error for error in reversed(self.found)}
        if len(told) == 1:
            raise self.found[0]
        if told:
            raise PlanError(f"{len(told)} problems:\n{numbered([*reversed(told)])}")


def stage_problems(stages: Iterable[Stage]) -> list[RefusedError]:
    """Return the problems that stages report about themselves, see `ProcessingStage.check_before_run`."""
    found: list[RefusedError] = []
    for stage in stages:
        try:
            found += [PlanError(text) for text in stage.check_before_run()]
        except RefusedError as error:
            found.append(error)
        except Exception as error:  # a user's code may raise anything
            found.append(PlanError(f"{stage.name}.check_before_run() raised {type(error).__name__}: {error}"))
    return found


def check_positions(stages: Sequence[Stage], *, initial_tasks: bool | None) -> None:
    """Check that a reader comes first and a writer last."""
    for number, stage in enumerate(stages):
        if isinstance(stage, SourceStage) and number > 0 and not isinstance(stage, PhaseReader):
            raise PlanError(
                f"{stage.name} is a reader and stands behind {stages[number - 1].name}; a reader comes first"
            )
        if isinstance(stage, SinkStage) and number < len(stages) - 1 and not isinstance(stage, PhaseWriter):
            raise PlanError(
                f"{stage.name} is a writer and stands before {stages[number + 1].name}; a writer comes last"
            )
    if initial_tasks and isinstance(stages[0], SourceStage):
        raise PlanError(f"{stages[0].name} reads its own input; leave initial_tasks out, or leave the reader out")
    first, taken = stages[0], declared_types(stages[0]).taken
    if initial_tasks is False and not isinstance(first, SourceStage) and not issubclass(EmptyTask, taken):
        raise PlanError(
            f"{first.name} comes first and takes {with_article(names_of(taken))}, but nothing gives it one; put a "
            "reader such as JsonlReader or ParquetReader before it, or, in Python, give initial_tasks"
        )


def check_initial_tasks(first: Stage, tasks: Sequence[Any]) -> None:
    """Check that the first stage accepts the initial tasks, and that they have what its `inputs()` names."""
    taken = declared_types(first).taken
    for number, task in enumerate(tasks):
        if not isinstance(task, taken):
            raise UsageError(
                f"initial_tasks[{number}] is {with_article(type(task))}, but {first.name} takes "
                f"{with_article(names_of(taken))}"
            )
        if needs_for(first, type(task)) is None:
            raise UsageError(f"initial_tasks[{number}]: {wrong_type(first, type(task))}")
        missing = missing_inputs(first, task)
        if missing:
            raise UsageError(
                f"initial_tasks[{number}] is {with_article(type(task))} without {', '.join(map(repr, missing))}, "
                f"which {first.name} needs (see its inputs())"
            )


def check_ordered(stages: Sequence[Stage]) -> None:
    """Check the stages of each phase that need the tasks of a unit in order."""
    for start, end in itertools.pairwise([*phase_starts(stages), len(stages)]):
        _check_ordered(stages[start:end])


def _check_ordered(stages: Sequence[Stage]) -> None:
    """Check that a stage which needs the tasks of a unit in order, and all stages after it, can share the writer's
    worker."""
    first = next((number for number, stage in enumerate(stages) if isinstance(stage, OrderedStage)), None)
    if first is None:
        return
    name = stages[first].name
    if not isinstance(stages[-1], SinkStage):
        raise PlanError(
            f"{name} needs the tasks of a unit in order, which only those before a writer get; put a writer at the end"
        )
    for stage in stages[first:-1]:
        if needs_own_workers(stage) or stage.batch_size > 1:
            raise PlanError(
                f"{stage.name} stands behind {name} and so runs in the worker that writes, but it needs workers or "
                f"batches of its own; put it before {name}"
            )
    for number, stage in enumerate(stages):
        fault = stage.place_fault(stages[:number]) if isinstance(stage, OrderedStage) else ""
        if fault:
            raise PlanError(f"{stage.name}: {fault}")


def check_keeps_scores(stages: Sequence[Stage]) -> None:
    """Check that there is a reader, a writer and a rule that scores, which keeping scores needs."""
    if not isinstance(stages[0], SourceStage) or not isinstance(stages[-1], SinkStage):
        raise PlanError(
            "keep_scores: scores are kept with the units of a reader and a writer, and one of them is missing"
        )
    boundary = next((stage for stage in stages if isinstance(stage, PhaseWriter)), None)
    if boundary is not None:
        raise PlanError(
            f"keep_scores: scores are kept with the units of the input, and {boundary.name} puts documents into other "
            f"units; leave keep_scores and the outlet scores out, or put {boundary.name} into a pipeline of its own"
        )
    if not any(rules_of(stage) for stage in stages):
        raise PlanError("keep_scores: no stage here finds scores; ScoreFilter and Score do. Leave it out")


def check_outlets(stages: Sequence[Stage], outlets: Collection[str]) -> None:
    """Refuse stages that send what they drop to an outlet that the pipeline does not have, and outlets for other
    records than documents."""
    from thresher.core.documents.batch import DocumentBatch

    for stage in stages:
        if stage.drops_to is not None and (stage.drops_to not in outlets or stage.drops_to in KEPT_STREAMS):
            raise PlanError(unknown_outlet(stage.name, stage.drops_to, outlets))
    sent_to = [name for name in outlets if name not in KEPT_STREAMS]
    if not sent_to:
        return
    pairs = zip(stages[1:], _types_before(stages), strict=True)
    others = [(stage, misfits(known, (DocumentBatch,))) for stage, known in pairs]
    wrong = [(stage.drops_to, types) for stage, types in others if stage.drops_to is not None and types]
    if not wrong and others and all(types for _, types in others):
        wrong = [(sent_to[0], others[0][1])]
    for name, types in wrong:
        raise PlanError(
            f"the outlet {name} would get {names_of(types)}, but outlets take documents (DocumentBatch) only; leave it "
            f"out and keep what is dropped with dropped_to (--dropped-to), or make documents of the records before"
        )


def check_keeps_dropped(stages: Sequence[Stage]) -> None:
    """Check that there is a writer, because dropped records are committed with the output of their unit."""
    if not isinstance(stages[-1], SinkStage):
        raise PlanError(
            "dropped_to: dropped records are kept beside the output of a writer, and there is none; put a writer at "
            "the end, or leave dropped_to (--dropped-to) out"
        )


def check_task_types(stages: Sequence[Stage]) -> None:
    """Check that each stage takes all types of tasks that may reach it, and that they have the attributes it needs."""
    outputs = set(stages[0].outputs()[0])
    for (before, after), known in zip(itertools.pairwise(stages), _types_before(stages), strict=True):
        if isinstance(after, PhaseReader):
            continue
        taken = declared_types(after).taken
        named = named_types(after)
        wrong = misfits(known, taken)
        if named is not None and not wrong:
            taken, wrong = named, misfits(known, named)
        if wrong:
            wanted, found = with_article(names_of(taken)), with_article(names_of(wrong))
            raise PlanError(
                f"{after.name} takes {wanted}, but {before.name} before it gives {found}; "
                f"put a stage between them that makes {wanted} of {found}"
            )
        _check_attributes(after, known, outputs)
        outputs |= set(after.outputs()[0])


def _types_before(stages: Sequence[Stage]) -> Iterator[TaskTypes]:
    """Yield the types of the tasks that may reach each stage but the first."""
    known = declared_types(stages[0]).given
    for stage in stages[1:]:
        yield known
        if isinstance(stage, PhaseReader):
            known = declared_types(stage).given if stage.creates else known
        elif not isinstance(stage, PhaseWriter):
            known = types_after(stage, known)


def _check_attributes(stage: Stage, known: TaskTypes, made: set[str]) -> None:
    """Check that tasks of these types have the attributes in `inputs()`, where the types are known."""
    needed = {one: needs_for(stage, one) for one in known if one not in (Task, RecordTask)}
    for one, attribute in ((one, name) for one, needs in needed.items() if needs for name in needs[0]):
        if attribute not in made and not may_have(one, attribute):
            raise PlanError(
                f"{stage.name} needs the attribute {attribute!r}, which {with_article(one)} does not have; "
                "add it to the class, or name it in the outputs() of a stage before that sets it"
            )


def cannot_write(stages: Sequence[Stage], number: int, task: Any) -> str:
    """Return the message for a task that the writer at index `number` cannot write, which no type hint showed."""
    written = task_types(stages[number])[0]
    kind = "DocumentBatch" if issubclass(RecordTask, written) else written.__name__
    writer, giver = stages[number].name, f", which came from {stages[number - 1].name}" if number else ""
    return (
        f"{writer} writes {kind} and cannot write {with_article(type(task))}{giver}; put a stage before "
        f"{writer} that makes a {kind} of it, or a reader at the beginning if nothing was read"
    )


def check_columns(stages: Sequence[Stage]) -> None:
    """Check that the columns that stages need exist, as far as that is known; report all missing ones at once."""
    first = stages[0]
    known = first.known_columns() if isinstance(first, SourceStage) else None
    if known is None:
        return
    have = set(known)
    faults = []
    type_before = [declared_types(first).given, *_types_before(stages)]
    for number, stage in enumerate(stages):
        if isinstance(stage, PhaseReader) and stage.creates:
            break  # new records have columns of their own
        missing = [column for column in _columns_needed(stage, type_before[number]) if column not in have]
        faults += [_missing(stage, column, stages[number + 1 :], sorted(have)) for column in missing]
        declared = declared_types(stage)
        if number and not isinstance(stage, PhaseWriter | PhaseReader) and misfits(declared.given, declared.taken):
            break  # records of another type have columns of their own
        have.update(stage.outputs()[1])
    if faults:
        raise PlanError("columns are missing:\n" + "\n".join(f"  {fault}" for fault in faults))


def _columns_needed(stage: Stage, known: TaskTypes) -> list[str]:
    """Return the columns that a stage needs of tasks of these types; none if that differs among them."""
    found = [needs[1] for one in known if (needs := needs_for(stage, one)) is not None]
    return found[0] if found and all(columns == found[0] for columns in found) else []


def _missing(stage: Stage, column: str, later: Sequence[Stage], have: list[str]) -> str:
    providers = [other.name for other in later if column in other.outputs()[1]]
    hint = (
        f"{' and '.join(providers)} would provide it, but only after {stage.name}: move it before"
        if providers
        else f"read it (there are: {', '.join(have) or 'none'}), or add a stage that makes it, such as Score or AddId"
    )
    return f"{stage.name} needs the column {column!r}, which no stage before it provides; {hint}"
