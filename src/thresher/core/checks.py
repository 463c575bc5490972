# SPDX-License-Identifier: Apache-2.0
"""Faults of a pipeline that can be found before anything runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from thresher.core.scores import rules_of
from thresher.core.stage import OrderedStage, ProcessingStage, SinkStage, SourceStage, needs_own_workers, task_types
from thresher.errors import PlanError

Stage = ProcessingStage[Any, Any]


def check_places(stages: Sequence[Stage], *, initial_tasks: bool) -> None:
    """A reader comes first, a writer last."""
    for number, stage in enumerate(stages):
        if isinstance(stage, SourceStage) and number > 0:
            raise PlanError(
                f"{stage.name} is a reader and stands behind {stages[number - 1].name}; a reader comes first"
            )
        if isinstance(stage, SinkStage) and number < len(stages) - 1:
            raise PlanError(
                f"{stage.name} is a writer and stands before {stages[number + 1].name}; a writer comes last"
            )
    if initial_tasks and isinstance(stages[0], SourceStage):
        raise PlanError(f"{stages[0].name} reads its own input; leave initial_tasks out, or leave the reader out")
    if len(stages) == 1 and isinstance(stages[0], SinkStage) and not initial_tasks:
        raise PlanError(f"{stages[0].name} has nothing to write; put a reader before it or give initial_tasks")


def check_ordered(stages: Sequence[Stage]) -> None:
    """A stage that needs the tasks of a unit in order shares the worker of the writer, with all that follows it."""
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
    """Scores are kept for every unit of an input, with its output, and only where a rule finds some."""
    if not isinstance(stages[0], SourceStage) or not isinstance(stages[-1], SinkStage):
        raise PlanError(
            "keep_scores: scores are kept with the units of a reader and a writer, and one of them is missing"
        )
    if not any(rules_of(stage) for stage in stages):
        raise PlanError("keep_scores: no stage here finds scores; ScoreFilter and Score do. Leave it out")


def check_task_types(stages: Sequence[Stage]) -> None:
    """What a stage gives must be something that the next one takes."""
    for before, after in itertools.pairwise(stages):
        given, taken = task_types(before)[1], task_types(after)[0]
        if not (issubclass(given, taken) or issubclass(taken, given)):
            raise PlanError(
                f"{after.name} takes a {taken.__name__}, but {before.name} before it gives a {given.__name__}; "
                f"put a stage between them that makes a {taken.__name__} of a {given.__name__}"
            )


def check_columns(stages: Sequence[Stage]) -> None:
    """Columns that a stage needs must be there, as far as that can be known; all faults in one message."""
    first = stages[0]
    known = first.known_columns() if isinstance(first, SourceStage) else None
    if known is None:
        return
    have = set(known)
    faults = []
    for number, stage in enumerate(stages):
        missing = [column for column in stage.inputs()[1] if column not in have]
        faults += [_missing(stage, column, stages[number + 1 :], sorted(have)) for column in missing]
        have.update(stage.outputs()[1])
    if faults:
        raise PlanError("columns are missing:\n" + "\n".join(f"  {fault}" for fault in faults))


def _missing(stage: Stage, column: str, later: Sequence[Stage], have: list[str]) -> str:
    providers = [other.name for other in later if column in other.outputs()[1]]
    hint = (
        f"{' and '.join(providers)} would provide it, but only after {stage.name}: move it before"
        if providers
        else f"read it (there are: {', '.join(have) or 'none'}), or add a stage that makes it, such as Score or AddId"
    )
    return f"{stage.name} needs the column {column!r}, which no stage before it provides; {hint}"
