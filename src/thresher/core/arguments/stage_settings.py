# SPDX-License-Identifier: Apache-2.0
"""Validate the settings of stages: name, resources, batch size and the like, and the signatures of their methods."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.resources import Resources
from thresher.errors import UsageError, nearest

if TYPE_CHECKING:
    from thresher.core.stage import ProcessingStage

    Stage = ProcessingStage[Any, Any]

_SETTINGS = ("name", "resources", "batch_size", "timeout_s", "max_attempts", "runtime_env", "drops_to")
"""Attributes that `with_` sets."""


def check_settings(stage: Stage) -> None:
    """Refuse settings that no executor could honour."""
    if not isinstance(stage.name, str) or not stage.name:
        raise UsageError(f"{type(stage).__name__}.name: {stage.name!r} is not a name")
    for attribute in ("batch_size", "max_attempts"):
        value = getattr(stage, attribute)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{stage.name}.{attribute}: {value!r} is not a whole number of 1 or more")
    limit = stage.timeout_s
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int | float) or not limit > 0):
        raise UsageError(f"{stage.name}.timeout_s: {limit!r} is not a number of seconds above 0; None is no limit")
    if not isinstance(stage.resources, Resources):
        raise UsageError(f"{stage.name}.resources: {stage.resources!r} is not a Resources(…)")
    for method, given in (("process", "the task"), ("process_batch", "the list of tasks")):
        if overrides(stage, method):
            check_takes_one(getattr(stage, method), f"{type(stage).__name__}.{method}", given)
    workers = stage.num_workers()
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise UsageError(f"{stage.name}.num_workers: {workers!r} is not a whole number of 1 or more")


def check_takes_one(function: Callable[..., Any], name: str, given: str) -> None:
    """Refuse a function that cannot be called with one argument, or whose result would have to be awaited."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"{name} is asynchronous; write it with plain `def`, and run an event loop inside if need be")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions written in C do not say what they take
        return
    try:
        signature.bind(None)
    except TypeError:
        raise UsageError(
            f"{name}{signature} cannot be called with one argument, {given}; give all others a default"
        ) from None


def check_part_settings(composite: str, changes: Any) -> Mapping[str, Mapping[str, Any]]:
    """Refuse what is no mapping of the names of stages to their settings."""
    if not isinstance(changes, Mapping) or not all(isinstance(settings, Mapping) for settings in changes.values()):
        raise UsageError(
            f"{composite}.with_: {changes!r} does not map names of stages to settings; "
            'write with_({"name of a stage inside": {"batch_size": 4}})'
        )
    return changes


def with_part_settings(composite: str, parts: Sequence[Stage], changes: Mapping[str, Mapping[str, Any]]) -> list[Stage]:
    """Return the stages inside a composite, those that `changes` names with other settings."""
    names = [part.name for part in parts]
    for name in changes:
        if name not in names:
            raise UsageError(
                f"{composite}.with_: there is no stage {name!r} inside.{nearest(str(name), names)} "
                f"It holds {', '.join(names)}"
            )
        if names.count(name) > 1:
            raise UsageError(
                f"{composite}.with_: {names.count(name)} stages inside are named {name!r}; give them different names"
            )
    return [_with_settings(composite, part, changes[part.name]) if part.name in changes else part for part in parts]


def _with_settings(composite: str, part: Stage, settings: Mapping[str, Any]) -> Stage:
    try:
        return part.with_(**settings)
    except TypeError as error:
        legal = ", ".join(inspect.signature(part.with_).parameters)
        raise UsageError(f"{composite}.with_: {part.name}: {error}; legal settings: {legal}") from error


def needs_own_workers(stage: Stage) -> bool:
    """Return True if a stage runs in workers that do nothing else: what it holds is held while a worker lives."""
    needs = stage.resources
    holds = needs.requires_gpu or needs.memory_gb > 0 or any(needs.custom.values()) or bool(stage.runtime_env)
    expensive = stage.expensive_setup and overrides(stage, "setup")
    return holds or expensive or stage.num_workers() is not None


def overrides(stage: Stage, method: str) -> bool:
    """Return True if a stage defines `method` itself instead of inheriting the default."""
    from thresher.core.stage import ProcessingStage

    return getattr(type(stage), method, None) is not getattr(ProcessingStage, method, None)


def let_settings_win(cls: type[Stage]) -> None:
    """Wrap what a class computes as a method or a property, so that a value set by `with_` wins."""
    method = cls.num_workers
    if not hasattr(method, "yields_to_with"):

        @functools.wraps(method)
        def num_workers(self: Stage) -> int | None:
            return self.__dict__["_num_workers"] if "_num_workers" in self.__dict__ else method(self)

        num_workers.yields_to_with = True  # type: ignore[attr-defined]  # a mark on a function
        cls.num_workers = num_workers  # type: ignore[method-assign]  # the same method, wrapped
    for name in _SETTINGS:
        found = inspect.getattr_static(cls, name)
        if isinstance(found, property) and not isinstance(found, _Setting):
            setattr(cls, name, _Setting(name, found))


class _Setting(property):
    """A property of a stage that yields to a value which `with_` has set."""

    def __init__(self, name: str, computed: property) -> None:
        def get(stage: Any) -> Any:
            return stage.__dict__[name] if name in stage.__dict__ else computed.__get__(stage, type(stage))

        super().__init__(get, computed.fset, computed.fdel, computed.__doc__)
