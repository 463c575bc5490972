# SPDX-License-Identifier: Apache-2.0
"""Check plain values (from a recipe or a command line) against the signature and type hints of a constructor.

Nothing is converted: a whole number is valid where a number is expected, but `"5"` is not a number, and neither is
`true`.
"""

from __future__ import annotations

import collections.abc
import enum
import functools
import inspect
import numbers
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thresher.credentials import redacted
from thresher.errors import nearest, with_article

REQUIRED: Any = inspect.Parameter.empty
"""Default of a parameter that has none."""

UNKNOWN: Any = object()
"""Type of a parameter whose hint cannot be resolved; it accepts every value."""

SECRET_PARAMETERS = frozenset({"storage_options"})
"""Parameters whose values are never shown."""

Path = tuple[str | int, ...]
"""Keys and indices leading to a value."""

_LISTS = (list, tuple, set, frozenset, collections.abc.Iterable, collections.abc.Collection, collections.abc.Sequence)
_DICTS = (dict, collections.abc.Mapping, collections.abc.MutableMapping)
_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    bytes: "bytes",
    type(None): "null",
}
_PLURALS: dict[Any, str] = {
    bool: "truth values",
    int: "whole numbers",
    float: "numbers",
    str: "texts",
    type(None): "nulls",
}
_YAML_WORDS = {True: "true", False: "false", None: "null"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a constructor."""

    name: str
    """Name of the parameter."""
    hint: Any
    """Its type; `Any` without a type hint, `UNKNOWN` if the hint cannot be resolved."""
    default: Any
    """Its default, or `REQUIRED`."""


@dataclass(frozen=True)
class Problem:
    """One problem with the given values."""

    path: Path
    """Location, such as `("stages", 2, "WordCountFilter", "min_words")`."""
    text: str
    """The problem, the legal values and the next step."""

    def under(self, *parents: str | int) -> Problem:
        """Return the same problem with `parents` in front of its path."""
        return Problem((*parents, *self.path), self.text)

    def __str__(self) -> str:
        return f"{show_path(self.path)}: {self.text}" if self.path else self.text


def show_path(path: Path) -> str:
    """Return a path as text: `stages[2].WordCountFilter.min_words`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")


def parameters_of(target: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters that `target` accepts by name, in order."""
    known = _parameters_of_class(target) if isinstance(target, type) else _parameters_of(target)
    return dict(known)


@functools.lru_cache(maxsize=1024)
def _parameters_of_class(target: type) -> dict[str, Parameter]:
    """Return the cached parameters of a class: a recipe is checked in many steps, and resolving types is slow."""
    return _parameters_of(target)


def _parameters_of(target: Callable[..., Any]) -> dict[str, Parameter]:
    hints = _hints_of(target)
    return {
        p.name: Parameter(p.name, hints.get(p.name, Any), p.default)
        for p in _signature(target).parameters.values()
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }


def takes_any_name(target: Callable[..., Any]) -> bool:
    """Return True if `target` has `**kwargs`, so that it accepts any name."""
    return any(p.kind is p.VAR_KEYWORD for p in _signature(target).parameters.values())


def find_problems(target: Callable[..., Any], given: Mapping[str, Any], also: Iterable[str] = ()) -> list[Problem]:
    """Return the problems of calling `target(**given)`; `also` names further keys that the caller handles."""
    known = parameters_of(target)
    problems = [] if takes_any_name(target) else unknown_keys(given, [*known, *also], target.__name__)
    for parameter in known.values():
        if parameter.name not in given:
            if parameter.default is REQUIRED:
                wanted = describe(parameter.hint)
                problems.append(Problem((parameter.name,), f"{target.__name__} needs it and it is not given: {wanted}"))
            continue
        problem = value_problem(given[parameter.name], parameter.hint, secret=parameter.name in SECRET_PARAMETERS)
        if problem is not None:
            problems.append(problem.under(parameter.name))
    return problems


def unknown_keys(given: Iterable[str], legal: Iterable[str], owner: str) -> list[Problem]:
    """Return a problem for each key that `owner` does not have."""
    known = list(dict.fromkeys(legal))
    takes = f"It takes: {', '.join(known)}" if known else "It takes none"
    return [
        Problem((key,), f"{owner} has no parameter {key!r}.{nearest(str(key), known)} {takes}")
        for key in given
        if key not in known
    ]


def value_problem(value: Any, hint: Any, *, secret: bool = False) -> Problem | None:
    """Return the problem with `value` where `hint` is expected, at the deepest location; `None` if it fits."""
    found = _mismatch(value, hint)
    if found is None:
        return None
    path, wrong, wanted = found
    if secret:
        return Problem(path, f"the value (not shown) is {_word_for(wrong)}; it must be {describe(wanted)}")
    legal = f"it must be {describe(wanted)}{_hint_for(wrong, wanted)}"
    if wrong is None:
        return Problem(path, f"null is not allowed; {legal}")
    return Problem(path, f"{show_value(wrong)} is {_word_for(wrong)}; {legal}")


def show_value(value: Any) -> str:
    """Return `value` as text, shortened if it is long."""
    shown = _YAML_WORDS.get(value, repr(value)) if isinstance(value, bool | None) else redacted(repr(value))
    return shown if len(shown) <= 80 else f"{shown[:60]}… ({len(shown)} characters)"


def describe(hint: Any) -> str:
    """Return a type in words: `a text, a list of texts or null`."""
    members = [describe_one(member) for member in _members(hint)]
    unique = list(dict.fromkeys(members))
    return unique[0] if len(unique) == 1 else f"{', '.join(unique[:-1])} or {unique[-1]}"


def describe_one(hint: Any) -> str:
    """Return a type that is not a union in words."""
    if hint in (Any, object, UNKNOWN) or isinstance(hint, typing.TypeVar):
        return "anything"
    if hint in _WORDS:
        return _WORDS[hint]
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Literal:
        return ("one of " if len(args) > 1 else "") + ", ".join(map(repr, args))
    if origin in _LISTS:
        inner = (
            [_PLURALS.get(member) or _as_objects(describe_one(member)) for member in _members(args[0])] if args else []
        )
        return f"a list of {' or '.join(inner)}" if inner and args[0] is not Any else "a list"
    if origin in _DICTS:
        return "a mapping of keys to values"
    if origin is collections.abc.Callable:
        return "a function"
    if isinstance(origin, type) and issubclass(origin, enum.Enum):
        return "one of " + ", ".join(repr(member.name) for member in origin)
    return with_article(getattr(origin, "__name__", str(origin)))


def _as_objects(described: str) -> str:
    """Return `a DocumentFilter` as `DocumentFilter objects` and `a list of texts` as `lists of texts`, for a list of
    them."""
    noun = described.partition(" ")[2]
    if noun.startswith("list"):
        return f"lists{noun.removeprefix('list')}"
    return f"{noun} objects" if noun.isidentifier() and noun[0].isupper() else described


def accepts_objects(hint: Any) -> bool:
    """Return True if `hint` expects something that plain data cannot be, such as a filter or a function."""
    if hint is Any or hint is object:
        return False
    for member in _members(hint):
        origin, args = typing.get_origin(member) or member, typing.get_args(member)
        if origin in _LISTS and args and accepts_objects(args[0]):
            return True
        if origin is collections.abc.Callable or member is UNKNOWN:
            return True
        if isinstance(origin, type) and origin not in (*_WORDS, *_LISTS, *_DICTS, object):
            return True
    return False


# -- types -----------------------------------------------------------------------------------------------------------


def _mismatch(value: Any, hint: Any) -> tuple[Path, Any, Any] | None:
    """Return the deepest location, value and type that disagree; `None` if the value fits."""
    members = _members(hint)
    found = [_mismatch_one(value, member) for member in members]
    if any(one is None for one in found):
        return None
    inside = [one for one in found if one is not None and one[0]]
    return inside[0] if len(inside) == 1 else ((), value, hint)


def _mismatch_one(value: Any, hint: Any) -> tuple[Path, Any, Any] | None:
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in _LISTS:
        if not isinstance(value, list | tuple | set | frozenset):
            return (), value, hint
        return _first_inside(enumerate(value), args[0] if args else Any)
    if origin in _DICTS:
        if not isinstance(value, dict):
            return (), value, hint
        return _first_inside(value.items(), args[1] if len(args) == 2 else Any)
    return None if _fits(value, hint, origin, args) else ((), value, hint)


def _first_inside(items: Iterable[tuple[Any, Any]], hint: Any) -> tuple[Path, Any, Any] | None:
    for key, item in items:
        inside = _mismatch(item, hint)
        if inside is not None:
            return (key, *inside[0]), inside[1], inside[2]
    return None


def _fits(value: Any, hint: Any, origin: Any, args: tuple[Any, ...]) -> bool:
    """Return True if a value fits a type that is neither a union nor a container."""
    if hint in (Any, object, UNKNOWN) or isinstance(hint, typing.TypeVar | str):
        return True
    if origin is typing.Literal:
        return any(value == legal and type(value) is type(legal) for legal in args)
    if origin is int:
        return isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if origin is float:
        return isinstance(value, numbers.Real) and not isinstance(value, bool)
    if origin is collections.abc.Callable:
        return callable(value)
    try:
        return isinstance(value, origin)
    except TypeError:  # a protocol or typing form without isinstance: left to the constructor
        return True


def _members(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a type: the members of a union, or the type itself."""
    if hint is None:
        return (type(None),)
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _members(typing.get_args(hint)[0])
    if isinstance(hint, typing.NewType):
        return _members(hint.__supertype__)
    if origin is typing.Union or origin is types.UnionType:
        return tuple(inner for member in typing.get_args(hint) for inner in _members(member))
    return (hint,)


def _word_for(value: Any) -> str:
    if isinstance(value, bool):
        return "a truth value"
    for kind, word in _WORDS.items():
        if type(value) is kind:
            return word
    if isinstance(value, list | tuple):
        return "a list"
    return "a mapping" if isinstance(value, dict) else with_article(type(value))


def _hint_for(value: Any, wanted: Any) -> str:
    """Return a hint for the two most common mistakes, a quoted number and an unquoted text."""
    members = _members(wanted)
    if isinstance(value, str) and (int in members or float in members) and _reads_as_number(value):
        return ". Write it without quotes"
    if isinstance(value, int | float) and str in members:
        return f'. Put it in quotes: "{value}"'
    return ""


def _reads_as_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _signature(target: Callable[..., Any]) -> inspect.Signature:
    try:
        return inspect.signature(target)
    except (TypeError, ValueError):  # some classes written in C have none
        return inspect.Signature([inspect.Parameter("arguments", inspect.Parameter.VAR_KEYWORD)])


def _hints_of(target: Callable[..., Any]) -> dict[str, Any]:
    function = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]  # only read
    annotations: dict[str, Any] = getattr(function, "__annotations__", {})
    try:
        return typing.get_type_hints(function)
    except Exception:  # a name that only type checkers import: resolve the other hints one by one
        return {name: _one_hint(text, getattr(function, "__globals__", {})) for name, text in annotations.items()}


def _one_hint(annotation: Any, names: dict[str, Any]) -> Any:
    holder = type("Holder", (), {"__annotations__": {"value": annotation}})
    try:
        return typing.get_type_hints(holder, names)["value"]
    except Exception:  # not resolved: left to the constructor
        return UNKNOWN
