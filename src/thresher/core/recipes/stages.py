# SPDX-License-Identifier: Apache-2.0
"""Build the stages of a recipe. Only the code of registered stages and of trusted modules is run."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from thresher.core.arguments.parameters import (
    Path,
    Problem,
    accepts_objects,
    find_problems,
    parameters_of,
    show_value,
    takes_any_name,
    unknown_keys,
    value_problem,
)
from thresher.core.registry import Kind, entries, kind_of, lookup, wrapper_of
from thresher.core.resources import Resources
from thresher.core.stage import ProcessingStage
from thresher.credentials import error_line
from thresher.errors import ThresherError, UsageError
from thresher.stage_errors import ControlSignal

Stage = ProcessingStage[Any, Any]

SETTINGS = ("name", "resources", "batch_size", "num_workers", "timeout_s", "max_attempts", "drops_to")
"""Settings that any stage accepts besides its own parameters."""

TARGET = "_target_"


@dataclass
class StageItem:
    """One item of a recipe's `stages`."""

    path: Path
    """Location of its parameters."""
    label: str
    """Name of a registered class, or the path given by `_target_`."""
    parameters: dict[str, Any]
    """Parameters as given."""
    trusted: bool = False
    """True if it was named by `_target_`."""
    name: str = ""
    """Name of the stage, unique in this pipeline."""

    @property
    def class_name(self) -> str:
        """Return the last part of the label."""
        return self.label.replace(":", ".").rsplit(".", 1)[-1]

    def as_data(self) -> Any:
        """Return the item in the form of a recipe."""
        if self.trusted:
            return {TARGET: self.label, **self.parameters}
        return {self.label: self.parameters} if self.parameters else self.label


class StageProblems(Exception):
    """The problems that prevent building an item."""

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__(problems)
        self.problems = problems


def read_item(value: Any, path: Path) -> StageItem:
    """Parse `Name`, `{Name: {parameters}}` or `{_target_: path, parameters}`."""
    if isinstance(value, str):
        return StageItem((*path, value), value, {})
    if isinstance(value, dict) and TARGET in value:
        label = value[TARGET]
        if not isinstance(label, str) or "." not in label.replace(":", "."):
            text = f"{show_value(label)} is not a path of a class; write it as package.module.Class"
            raise StageProblems([Problem((*path, TARGET), text)])
        return StageItem(path, label, {k: v for k, v in value.items() if k != TARGET}, trusted=True)
    if isinstance(value, dict) and len(value) == 1:
        (label, parameters), *_ = value.items()
        if parameters is None or isinstance(parameters, dict):
            return StageItem((*path, label), label, dict(parameters or {}))
        text = f"{show_value(parameters)} is not a mapping of parameters; write {label}: {{parameter: value}}"
        raise StageProblems([Problem((*path, label), text)])
    text = (
        f"{show_value(value)} is not a stage; write Name, {{Name: {{parameter: value}}}} or {{{TARGET}: package.Class}}"
    )
    if isinstance(value, dict) and len(value) > 1:
        text += ". Its parameters must stand below its name, further in"
    raise StageProblems([Problem(path, text)])


def name_items(items: list[StageItem]) -> None:
    """Name the stage of every item: by `name`, else by its class; the second of a kind gets `-2`."""
    taken: set[str] = set()
    for item in items:
        given = item.parameters.get("name")
        wanted = given if isinstance(given, str) and given else item.class_name
        name, number = wanted, 1
        while name in taken:
            number += 1
            name = f"{wanted}-{number}"
        taken.add(name)
        item.name = name


@dataclass
class _Parts:
    """The parameters of an item, by recipient: the class, its wrapper, or the framework."""

    own: dict[str, Any] = field(default_factory=dict)
    wrapper: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)


class StageBuilder:
    """Builder of stages; `trust` names the modules whose classes `_target_` may use."""

    def __init__(self, trust: Collection[str] = ()) -> None:
        self.trust = frozenset(trust)

    def build(self, item: StageItem) -> Stage:
        """Return the stage of an item; raise `StageProblems` with all problems."""
        target = self._target_of(item)
        if isinstance(target, ProcessingStage):
            return self._with_settings(target, item, _Parts(settings=dict(item.parameters)))
        kind = self._kind_of(target, item)
        wrapper = wrapper_of(kind)
        parts = self._split(target, wrapper, item)
        made = self._construct(target, parts.own, item)
        if wrapper is not None:
            made = self._construct(wrapper, {_first_parameter(wrapper): made, **parts.wrapper}, item)
        if not isinstance(made, ProcessingStage):
            text = f"{item.label} gave {show_value(made)}, which is not a stage, filter or modifier"
            raise StageProblems([Problem(item.path, text)])
        return self._with_settings(made, item, parts)

    def _build_part(self, item: StageItem) -> Any:
        """Build a filter, modifier or other object inside a stage's parameters, without wrapper and settings."""
        target = self._target_of(item)
        if not callable(target):
            return target
        return self._construct(target, item.parameters, item)

    def _target_of(self, item: StageItem) -> Any:
        if item.trusted:
            return self._trusted(item)
        try:
            return lookup(item.label).load()
        except UsageError as error:
            raise StageProblems([Problem(item.path[:-1], str(error))]) from None

    def _trusted(self, item: StageItem) -> Any:
        """Return the object named by `_target_`; its module is imported only if it is trusted."""
        module, _, name = item.label.replace(":", ".").rpartition(".")
        where = (*item.path, TARGET)
        if not any(module == trusted or module.startswith(f"{trusted}.") for trusted in self.trust):
            top = module.partition(".")[0]
            text = f"{item.label!r} is not registered, so loading it would run code that is not Thresher's."
            raise StageProblems([Problem(where, f"{text} If you trust it, add --trust {top}")])
        try:
            return getattr(importlib.import_module(module), name)
        except AttributeError:
            raise StageProblems([Problem(where, f"the module {module!r} has no {name!r}")]) from None
        except ControlSignal:
            raise
        except (Exception, SystemExit) as error:
            text = f"{module!r} cannot be imported: {error_line(error)}"
            raise StageProblems([Problem(where, text)]) from error

    def _kind_of(self, target: Any, item: StageItem) -> Kind:
        if not item.trusted:
            return lookup(item.label).kind
        try:
            return kind_of(target) if isinstance(target, type) else "stage"
        except UsageError as error:
            raise StageProblems([Problem((*item.path, TARGET), str(error))]) from None

    def _split(self, target: Callable[..., Any], wrapper: Callable[..., Any] | None, item: StageItem) -> _Parts:
        """Assign each parameter to its recipient: the class first, then its wrapper, then the framework."""
        own = parameters_of(target)
        wrapping = dict(list(parameters_of(wrapper).items())[1:]) if wrapper is not None else {}
        parts = _Parts()
        unknown = []
        for key, value in item.parameters.items():
            if key in own:
                parts.own[key] = value
            elif key in wrapping:
                parts.wrapper[key] = value
            elif key in SETTINGS:
                parts.settings[key] = value
            elif takes_any_name(target):
                parts.own[key] = value
            else:
                unknown.append(key)
        if unknown:
            legal = [*own, *wrapping, *SETTINGS]
            problems = unknown_keys(unknown, legal, item.class_name)
            raise StageProblems([problem.under(*item.path) for problem in problems])
        return parts

    def _construct(self, target: Callable[..., Any], given: dict[str, Any], item: StageItem) -> Any:
        hints = {name: parameter.hint for name, parameter in parameters_of(target).items()}
        arguments = {
            key: self._parts_in(value, (*item.path, key)) if accepts_objects(hints.get(key, Any)) else value
            for key, value in given.items()
        }
        problems = find_problems(target, arguments)
        if problems:
            raise StageProblems([problem.under(*item.path) for problem in problems])
        try:
            return target(**arguments)
        except (StageProblems, ControlSignal):
            raise
        except ThresherError as error:
            raise StageProblems([problem_at(str(error), item, hints)]) from error
        except (Exception, SystemExit) as error:
            text = f"{item.label} refused its parameters: {error_line(error)}"
            raise StageProblems([Problem(item.path, text)]) from error

    def _parts_in(self, value: Any, path: Path) -> Any:
        """Build the filters and modifiers that a value names; leave other data as it is."""
        if isinstance(value, list):
            return [self._parts_in(item, (*path, index)) for index, item in enumerate(value)]
        known = entries()
        if isinstance(value, str) and value in known:
            return self._build_part(StageItem((*path, value), value, {}))
        if isinstance(value, dict) and (TARGET in value or (len(value) == 1 and _looks_like_name(next(iter(value))))):
            return self._build_part(read_item(value, path))
        return value

    def _with_settings(self, stage: Stage, item: StageItem, parts: _Parts) -> Stage:
        hints = parameters_of(ProcessingStage.with_)
        settings = dict(parts.settings)
        if isinstance(settings.get("resources"), dict):
            resources = StageItem((*item.path, "resources"), "Resources", settings["resources"])
            settings["resources"] = self._construct(Resources, resources.parameters, resources)
        problems = unknown_keys(settings, SETTINGS, item.class_name)
        for key in [key for key in settings if key in SETTINGS]:
            problem = value_problem(settings[key], hints[key].hint)
            problems += [problem.under(key)] if problem is not None else []
        if problems:
            raise StageProblems([problem.under(*item.path) for problem in problems])
        try:
            return stage.with_(**{**settings, "name": item.name or stage.name})
        except ThresherError as error:
            raise StageProblems([problem_at(str(error), item, dict.fromkeys(SETTINGS))]) from error


def _first_parameter(wrapper: Callable[..., Any]) -> str:
    return next(iter(parameters_of(wrapper)))


def _looks_like_name(key: Any) -> bool:
    """Return True if a key means a class: `{UrlsFilter: {}}`, not `{threshold: 3}`."""
    return isinstance(key, str) and (key in entries() or key[:1].isupper())


def problem_at(message: str, item: StageItem, names: dict[str, Any]) -> Problem:
    """Return a constructor's message, `Class.parameter: …` or `parameter: …`, as a problem at its location in the
    recipe."""
    head, colon, rest = message.partition(": ")
    name = head.rsplit(".", 1)[-1]
    if colon and name in names:
        return Problem((*item.path, name), rest)
    return Problem(item.path, message)
