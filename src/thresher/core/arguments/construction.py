# SPDX-License-Identifier: Apache-2.0
"""Validate the constructor arguments of this package's stages, rules and modifiers.

This covers unknown and missing arguments, wrong types, NaN, and a `min_…` bound above its `max_…` bound. Classes of
users are not checked.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from thresher.core.arguments.parameters import Problem, accepts_objects, find_problems, parameters_of, show_value
from thresher.errors import ParameterTypeError, ThresherError, UsageError, numbered

PACKAGE = "thresher.stages."
"""Package whose classes have their constructors checked."""


_INT_LIMIT = 2**63
"""Limit for integers: larger ones fit no column and no kernel."""


class _RaisedByCheck:
    """Marker for errors raised by the checks of this module."""


class _WrongType(ParameterTypeError, _RaisedByCheck):
    pass


class _WrongValue(UsageError, _RaisedByCheck):
    pass


def check_constructor(cls: type[Any]) -> None:
    """Wrap the constructor of `cls` so that it refuses wrong arguments; called when a class of this package is
    created."""
    init: Any = vars(cls).get("__init__")
    if init is None or not cls.__module__.startswith(PACKAGE):
        return

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        owner = type(self)
        target = owner if owner.__init__ is checked else cls  # a subclass may have other parameters
        given = _by_name(target, owner.__name__, args, kwargs)
        try:
            init(self, **given)
        except ThresherError as error:
            if isinstance(error, _RaisedByCheck):  # raised for a part that the constructor creates
                _refuse(target, owner.__name__, given)
            raise  # the constructor's own message is more specific
        except Exception as error:
            _refuse(target, owner.__name__, given, error)
            raise
        _refuse(target, owner.__name__, given)

    cls.__init__ = checked


def _by_name(cls: type[Any], owner: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by name, with paths as strings; refuse unknown and missing arguments."""
    names = list(parameters_of(cls))
    if len(args) > len(names):
        raise ParameterTypeError(f"{owner} takes {len(names)} arguments, and {len(args)} were given")
    given = dict(zip(names, args, strict=False))
    twice = [name for name in given if name in kwargs]
    if twice:
        raise ParameterTypeError(f"{owner}.{twice[0]}: given twice, by position and by name")
    given = {name: _as_text(value) for name, value in {**given, **kwargs}.items()}
    known = parameters_of(cls)
    wrong = [one for one in find_problems(cls, given) if one.path[0] not in given or one.path[0] not in known]
    if wrong:
        raise ParameterTypeError(_message(owner, wrong))
    return given


def _refuse(cls: type[Any], owner: str, given: Mapping[str, Any], cause: Exception | None = None) -> None:
    """Raise one error that lists all problems with the values, if there are any."""
    wrong_types = _type_problems(cls, given)
    if wrong_types:
        raise _WrongType(_message(owner, wrong_types)) from cause
    wrong_values = [*_unusable_numbers(given), *_crossed_bounds(cls, given)]
    if wrong_values:
        raise _WrongValue(_message(owner, wrong_values)) from cause


def _as_text(value: Any) -> Any:
    """Return a path as a string, alone and in a list."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, list | tuple) and any(isinstance(item, os.PathLike) for item in value):
        return [_as_text(item) for item in value]
    return value


def _type_problems(cls: type[Any], given: Mapping[str, Any]) -> list[Problem]:
    """Return problems with types. Objects such as rules and functions are left to the constructor, which checks what
    they can do and not their type."""
    known = parameters_of(cls)
    objects = {name for name, parameter in known.items() if accepts_objects(parameter.hint)}
    return [problem for problem in find_problems(cls, given) if problem.path[0] not in objects.intersection(given)]


def _unusable_numbers(given: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for name, value in given.items():
        if isinstance(value, float) and value != value:
            text = "nan is not a number that anything can be compared with; give a number, or inf for no bound"
            problems.append(Problem((name,), text))
        elif isinstance(value, int) and not -_INT_LIMIT < value < _INT_LIMIT:
            problems.append(Problem((name,), f"{show_value(value)} has more than 64 bits; give a smaller number"))
    return problems


def _crossed_bounds(cls: type[Any], given: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each `min_…` above its `max_…`; bounds that are turned off do not count."""
    zero_is_off: bool = getattr(cls, "zero_turns_off", False)
    values = {name: given.get(name, parameter.default) for name, parameter in parameters_of(cls).items()}
    problems = []
    for low_name in [name for name in values if name.startswith("min_")]:
        high_name = "max_" + low_name.removeprefix("min_")
        low, high = values[low_name], values.get(high_name)
        if not _is_bound(low, zero_is_off) or not _is_bound(high, zero_is_off) or low <= high:
            continue
        text = f"{show_value(low)} is above {high_name}, which is {show_value(high)}; no document could be kept"
        problems.append(Problem((low_name,), text))
    return problems


def _is_bound(value: Any, zero_is_off: bool) -> bool:
    return isinstance(value, int | float) and not (zero_is_off and not value)


def _message(owner: str, problems: Sequence[Problem]) -> str:
    messages = [str(problem.under(owner)) for problem in problems]
    if len(messages) == 1:
        return messages[0]
    return f"{owner}: {len(messages)} problems:\n{numbered(messages)}"
