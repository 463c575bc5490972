# SPDX-License-Identifier: Apache-2.0
"""The attributes and columns that stages need of their tasks, by type of task where a stage takes several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thresher.core.records.record_task import RecordTask
from thresher.core.stage import ProcessingStage, StageNeeds, overrides
from thresher.core.task import Task
from thresher.errors import UsageError, with_article

Stage = ProcessingStage[Any, Any]


class InvalidInputError(ValueError):
    """A task that a stage refuses: its `validate_input` returned False, or its `inputs()` name no such type."""


def needs_for(stage: Stage, task_type: type[Task]) -> StageNeeds | None:
    """Return the attributes and columns that a stage needs of tasks of a type; `None` if it takes no such tasks.

    Of several types that `inputs()` names, the nearest base class counts.
    """
    declared = _declared(stage)
    if not isinstance(declared, Mapping):
        return declared
    return next((declared[known] for known in task_type.__mro__ if known in declared), None)


def named_types(stage: Stage) -> tuple[type[Task], ...] | None:
    """Return the types of tasks that `inputs()` names; `None` if it makes no difference between types."""
    declared = _declared(stage)
    return tuple(declared) if isinstance(declared, Mapping) else None


def input_columns(stage: Stage) -> list[str]:
    """Return all columns that a stage may need."""
    declared = _declared(stage)
    needs = declared.values() if isinstance(declared, Mapping) else [declared]
    return list(dict.fromkeys(column for _, columns in needs for column in columns))


def missing_inputs(stage: Stage, task: Task, *, may_read: bool = False) -> list[str]:
    """Return the attributes and columns that a task lacks, as far as its columns are known; `may_read`: its records may
    be decoded to find out."""
    needs = needs_for(stage, type(task))
    if needs is None:
        return []
    missing = [name for name in needs[0] if not hasattr(task, name)]
    names = _column_names(task, may_read=may_read) if needs[1] else None
    return missing + [name for name in needs[1] if names is not None and name not in names]


def _column_names(task: Task, *, may_read: bool) -> Any:
    """Return the names of the columns of a task; `None` if they are not known."""
    known = task.column_names() if isinstance(task, RecordTask) else None
    if known is not None or not may_read:
        return known
    holders = ((task, "columns"), (task.data, "columns"), (task.data, "column_names"))
    return next((found for owner, name in holders if (found := getattr(owner, name, None)) is not None), None)


def checks_inputs(stage: Stage) -> bool:
    """Return True if each task has to be checked before a call."""
    return overrides(stage, "validate_input") or named_types(stage) is not None


def check_input(stage: Stage, task: Task) -> None:
    """Raise if a stage does not take a task."""
    if needs_for(stage, type(task)) is None:
        raise InvalidInputError(wrong_type(stage, type(task)))
    if overrides(stage, "validate_input") and not stage.validate_input(task):
        raise InvalidInputError(f"{stage.name}.validate_input() returned False for {task!r}")


def wrong_type(stage: Stage, task_type: type[Task]) -> str:
    """Return the message about a task of a type that `inputs()` does not name."""
    legal = ", ".join(one.__name__ for one in named_types(stage) or ())
    return f"{stage.name} got {with_article(task_type)}, and its inputs() name {legal}"


def _declared(stage: Stage) -> StageNeeds | Mapping[type[Task], StageNeeds]:
    """Return what `inputs()` declares; refuse what is neither a pair nor a mapping of types to pairs."""
    declared = stage.inputs()
    pairs = declared.values() if isinstance(declared, Mapping) else [declared]
    types = declared if isinstance(declared, Mapping) else ()
    if all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs) and all(
        isinstance(one, type) and issubclass(one, Task) for one in types
    ):
        return declared
    raise UsageError(
        f"{stage.name}.inputs() returned {declared!r}; return (attributes, columns), two lists of names, or a dict "
        "with such a pair for each type of task"
    )
