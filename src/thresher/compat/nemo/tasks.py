# SPDX-License-Identifier: Apache-2.0
"""Base class of task types that were written for NeMo Curator, and tasks that say what became of a task."""

from __future__ import annotations

import dataclasses
from typing import Any

from thresher.core.task import Task


class _AnyTask(type(Task)):  # type: ignore[misc]  # the metaclass of tasks, whichever it is
    """Metaclass for which every task is one of `CompatTask`, because it stands for the base class of all."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, Task) if cls is CompatTask else super().__instancecheck__(instance)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, Task) if cls is CompatTask else super().__subclasscheck__(subclass)


class CompatTask(Task, metaclass=_AnyTask):
    """A task whose type was written for NeMo Curator."""

    def __class_getitem__(cls, item: Any) -> Any:
        return cls

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Take the arguments of `Task`."""
        _show_fields(type(self))
        super().__init__(*arguments, **named)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a task that another process made, whose class this one has not used yet."""
        _show_fields(type(self))
        self.__dict__.update(state)


def _show_fields(cls: type[Any]) -> None:
    """Take away `field(…)` where a class has one without being a dataclass: it would hide the value of each task."""
    for owner in cls.__mro__[:-1]:
        if "__dataclass_fields__" not in vars(owner):
            for name in [name for name, value in vars(owner).items() if isinstance(value, dataclasses.Field)]:
                delattr(owner, name)


class SentinelTask(Task):
    """A task without data."""

    @property
    def num_items(self) -> int:
        """Nothing is in it."""
        return 0


class NoneTask(SentinelTask):
    """Returned by a stage that drops the task; the same as returning `None`."""


class FailedTask(SentinelTask):
    """Returned by a stage that could not process the task: it is retried, then quarantined, and the rest goes on."""


class TaskFailed(Exception):
    """A stage returned a `FailedTask`."""


def settled(result: Any) -> Any:
    """Return the result of a stage without sentinels; raise if one of them says that the task failed."""
    if isinstance(result, list | tuple):
        if any(isinstance(one, FailedTask) for one in result):
            raise TaskFailed("the stage returned a FailedTask")
        return [None if isinstance(one, NoneTask) else one for one in result]
    if isinstance(result, FailedTask):
        raise TaskFailed("the stage returned a FailedTask")
    return None if isinstance(result, NoneTask) else result
