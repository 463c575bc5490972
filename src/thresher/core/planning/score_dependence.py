# SPDX-License-Identifier: Apache-2.0
"""Determine from its source code what a rule's scores depend on: all attributes that code outside `keep_document`
reads.

What remains are thresholds. Nothing is declared, so no declaration can be wrong. The result is "unknown" if the source
does not show it: the object itself is passed on, its source is not available, or an attribute has no plain value.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import re
import sys
import textwrap
import types
from collections.abc import Sequence
from typing import Any

from thresher.core.planning.fingerprint import describe, parameters
from thresher.core.scores import JudgingStage, ScoredRule, Stage, rules_of

_NOT_SCORING = frozenset({"keep_document", "thresholds", "check_before_run", "__init__", "__init_subclass__"})
"""Methods of a rule that do not affect its scores. The effects of `__init__` are visible in the attributes."""
_OPAQUE = frozenset({"__getattr__", "__getattribute__", "__setattr__", "__slots__"})
_REACHES_ANYTHING = frozenset({"vars", "locals", "eval", "exec"})
_HARMLESS_DECORATORS = frozenset({"property", "staticmethod", "classmethod", "override", "abstractmethod"})
_BOUNDS = "allowed"
"""Method of a rule over counts that decides what is kept."""
_CALLED_BY_STAGES = frozenset({"score_document", "counts", "score_counts"})
"""Methods of a rule that a stage calls; an object may hold its own."""
_MAX_DEPTH = 6


def changes_of(stage: Stage) -> list[str | None]:
    """Describe how a stage changes the texts for later stages; a stage that only filters adds nothing but score
    columns."""
    if isinstance(stage, JudgingStage) and stage.only_judges:
        written = [rule for rule in rules_of(stage) if rule.score_field is not None]
        return [None if (own := _own(rule)) is None else f"{rule.score_field}={own}" for rule in written]
    held = [item for value in vars(stage).values() for item in (value if isinstance(value, list | tuple) else [value])]
    things = [type(stage), *(item if isinstance(item, types.FunctionType) else type(item) for item in held)]
    code = "\n".join(dict.fromkeys(_module_source(thing) for thing in things))
    return [f"{type(stage).__qualname__}({describe(parameters(stage))}){code}"]


def dependence(before: Sequence[str | None], rule: ScoredRule) -> str | None:
    """Return a hash of what a rule's scores depend on; `None` if that is unknown."""
    parts = [*before, _own(rule)]
    if None in parts:
        return None
    return hashlib.sha256("\n".join(map(str, parts)).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _own(rule: ScoredRule) -> str | None:
    found = scoring_part(rule.judge)
    return None if found is None else f"{rule.text_field}:{found}"


def scoring_part(judge: Any) -> str | None:
    """Return the part of a rule that its scores depend on, as text; `None` if that is unknown."""
    if isinstance(judge, types.FunctionType):
        return describe(judge) + _module_source(judge) if _is_plain(judge) else None
    attributes = dict(vars(judge)) if hasattr(judge, "__dict__") else None
    if attributes is None:
        return None
    looked_at = _names_in_scoring(type(judge))
    if looked_at is not None:
        attributes = {name: value for name, value in attributes.items() if name in looked_at}
    if not all(_is_plain(value) for value in attributes.values()):
        return None
    code = "\n".join(_module_source(base) for base in type(judge).__mro__[:-1])
    return f"{type(judge).__qualname__}({describe(dict(sorted(attributes.items())))}){code}"


def _names_in_scoring(cls: type) -> frozenset[str] | None:
    """Return the attributes that a class and its bases read outside `keep_document`; `None` if that is unknown."""
    names = set(_CALLED_BY_STAGES)
    deciding = _NOT_SCORING | ({_BOUNDS} if hasattr(cls, "score_counts") else frozenset())
    for base in cls.__mro__[:-1]:
        body = _class_body(base)
        if body is None or _OPAQUE & vars(base).keys():
            return None
        methods = {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
        if any(callable(value) and name not in methods for name, value in vars(base).items() if name[:2] != "__"):
            return None
        for name, method in methods.items():
            if name in deciding:
                continue
            found = _names_in_method(method, deciding)
            if found is None:
                return None
            names |= found
    return frozenset(names)


def _names_in_method(method: ast.FunctionDef, deciding: frozenset[str]) -> set[str] | None:
    """Return the attributes of the first argument; `None` if it is used in any other way, such as passed to a function,
    or if the method calls one of `deciding`."""
    own = next((argument.arg for argument in [*method.args.posonlyargs, *method.args.args]), None)
    decorators = {decorator.id if isinstance(decorator, ast.Name) else "" for decorator in method.decorator_list}
    inside = [node for statement in method.body for node in ast.walk(statement)]
    if decorators - _HARMLESS_DECORATORS or any(_reaches_further(node, deciding) for node in inside):
        return None
    if own is None or "staticmethod" in decorators:
        return set()
    reads = [node for node in inside if isinstance(node, ast.Attribute) and _is_name(node.value, own)]
    # `type(self)` only gives access to the class, which is covered by its source.
    types_of = [node for node in inside if isinstance(node, ast.Call) and _is_type_of(node, own)]
    uses = [node for node in inside if _is_name(node, own)]
    names = {node.attr for node in reads}
    return None if len(uses) != len(reads) + len(types_of) or "__dict__" in names else names


def _reaches_further(node: ast.AST, deciding: frozenset[str]) -> bool:
    """Return True if code calls one of `deciding`, or accesses variables in other ways than by name."""
    if isinstance(node, ast.Attribute):
        return node.attr in deciding
    return isinstance(node, ast.Name) and node.id in _REACHES_ANYTHING


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _is_type_of(call: ast.Call, name: str) -> bool:
    return _is_name(call.func, "type") and len(call.args) == 1 and _is_name(call.args[0], name)


@functools.cache
def _class_body(cls: type) -> list[ast.stmt] | None:
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    except (OSError, TypeError, SyntaxError):
        return None
    return parsed[0].body if len(parsed) == 1 and isinstance(parsed[0], ast.ClassDef) else None


def _module_source(thing: Any) -> str:
    """Return the source of the whole module of a user's class or function, which includes what it calls there. Changes
    of our own code are covered by the version."""
    module = getattr(thing, "__module__", None) or "builtins"
    if module.split(".")[0] in ("builtins", "thresher") or module not in sys.modules:
        return ""
    try:
        return inspect.getsource(sys.modules[module])
    except (OSError, TypeError):
        return str(getattr(thing, "__qualname__", thing))


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Return True if `describe` distinguishes any two such values."""
    if isinstance(value, str | bytes | int | float | type(None) | re.Pattern):
        return True
    if depth > _MAX_DEPTH:
        return False
    if isinstance(value, dict):
        return all(_is_plain(key, depth + 1) and _is_plain(item, depth + 1) for key, item in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return all(_is_plain(item, depth + 1) for item in value)
    if isinstance(value, types.FunctionType):
        return value.__closure__ is None and not value.__defaults__ and not value.__kwdefaults__
    return False
