# SPDX-License-Identifier: Apache-2.0
"""The types of tasks that stages take and give, as their generic parameters and type hints declare them.

A stage may take or give one of several types (a union), or give whatever type it takes (`ProcessingStage[T, T]`).
"""

from __future__ import annotations

import functools
import inspect
import itertools
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from thresher.core.function_stage import FunctionStage
from thresher.core.stage import In, Out, ProcessingStage
from thresher.core.task import Task

TaskTypes = tuple[type[Task], ...]
ANY_TASK: TaskTypes = (Task,)
"""The types of a stage that declares none."""


class Declared(NamedTuple):
    """Types that a stage declares."""

    taken: TaskTypes
    """It takes tasks of one of these."""
    given: TaskTypes
    """It gives tasks of one of these."""
    gives_what_it_takes: bool = False
    """True if what it gives has the type that it was given."""


def declared_types(stage: ProcessingStage[Any, Any]) -> Declared:
    """Return the types that a stage declares."""
    if isinstance(stage, FunctionStage):
        return _of_function(stage.function)
    stage_type: Any = type(stage)
    return _of_class(stage_type)


def task_types(stage: ProcessingStage[Any, Any]) -> tuple[type[Task], type[Task]]:
    """Return the declared input and output type of a stage; `Task` where nothing, or more than one, is declared."""
    found = declared_types(stage)
    taken, given = (one_of[0] if len(one_of) == 1 else Task for one_of in (found.taken, found.given))
    return taken, given


def types_after(stage: ProcessingStage[Any, Any], before: TaskTypes) -> TaskTypes:
    """Return the types of the tasks behind a stage, if those before it have the types `before`."""
    found = declared_types(stage)
    if not found.gives_what_it_takes:
        return found.given
    narrow = [taken for known in before for taken in found.taken if issubclass(taken, known)]
    return before if all(issubclass(known, found.taken) for known in before) else tuple(dict.fromkeys(narrow))


def misfits(given: TaskTypes, taken: TaskTypes) -> TaskTypes:
    """Return the given types that can be none of the taken ones; a supertype of one of them may be it."""
    return tuple(one for one in given if not any(issubclass(one, other) or issubclass(other, one) for other in taken))


def names_of(of_types: TaskTypes) -> str:
    """Return the types as text."""
    return " or ".join(dict.fromkeys(one.__name__ for one in of_types))


def may_have(task_type: type[Task], attribute: str) -> bool:
    """Return False if nothing in the class of a task mentions an attribute.

    Attributes that methods assign are not in the class, so every name that its code uses counts.
    """
    if hasattr(task_type, attribute) or hasattr(task_type, "__getattr__"):
        return True
    for cls in task_type.__mro__:
        if attribute in inspect.get_annotations(cls) or attribute in cls.__dict__.get("__slots__", ()):
            return True
        codes = [inspect.unwrap(found).__code__ for found in cls.__dict__.values() if inspect.isfunction(found)]
        if any(attribute in code.co_names for code in codes):
            return True
    return False


# -- reading declarations ---------------------------------------------------------------------------------------------


@functools.cache
def _of_class(stage_type: Any) -> Declared:
    taken, given = _arguments(stage_type)
    return Declared(_members(taken), _members(given), isinstance(given, typing.TypeVar) and taken is given)


def _arguments(cls: Any) -> tuple[Any, Any]:
    """Return what stands for `In` and `Out` of `ProcessingStage` in a class derived from it."""
    if cls is ProcessingStage:
        return In, Out
    for base in cls.__dict__.get("__orig_bases__", cls.__bases__):
        origin = typing.get_origin(base) or base
        if isinstance(origin, type) and issubclass(origin, ProcessingStage):
            replaced = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(base), strict=False))
            taken, given = (replaced.get(found, found) for found in _arguments(origin))
            return taken, given
    return Task, Task


def _of_function(function: Callable[[Any], Any]) -> Declared:
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError):
        return Declared(ANY_TASK, ANY_TASK)
    given = hints.pop("return", Task)
    return Declared(_members(next(iter(hints.values()), Task)), _members(given))


def _members(hint: Any) -> TaskTypes:
    """Return the types of tasks in a type hint; `Task` for one that names others."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, typing.TypeVar) and not hint.__constraints__:
        return _members(hint.__bound__)
    if isinstance(hint, typing.TypeVar) or origin in (typing.Union, types.UnionType):
        arguments = arguments or hint.__constraints__
        parts = itertools.chain.from_iterable(_members(one) for one in arguments if one is not type(None))
        found = tuple(dict.fromkeys(parts))
        return ANY_TASK if Task in found else found or ANY_TASK
    if isinstance(origin, type) and issubclass(origin, Task):
        return (origin,)
    if arguments and isinstance(origin, type) and issubclass(origin, Iterable):
        return _members(arguments[0])
    return (hint,) if isinstance(hint, type) and issubclass(hint, Task) else ANY_TASK
