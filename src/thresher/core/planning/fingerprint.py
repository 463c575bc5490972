# SPDX-License-Identifier: Apache-2.0
"""Fingerprint of a pipeline: its stages, their parameters and their source code. A resumed run compares it with that of
the earlier attempt."""

from __future__ import annotations

import hashlib
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any

from thresher.core.stage import ProcessingStage, SinkStage

_NO_INFLUENCE = frozenset(
    {
        "resources",
        "batch_size",
        "timeout_s",
        "max_attempts",
        "runtime_env",
        "storage_options",
        "name",
        "columns_read",
        "_listed",
    }
)
"""Attributes of a stage that do not affect its output."""


def fingerprint(stages: Sequence[ProcessingStage[Any, Any]], version: str) -> dict[str, str]:
    """Return hashes by what they cover: `version`, `stages` (names and order), `<stage>.parameters` and
    `<stage>.code`."""
    parts = {
        "version": ".".join(version.split(".")[:2]),
        "stages": _digest(",".join(f"{stage.name}:{type(stage).__qualname__}" for stage in stages)),
    }
    for stage in stages:
        parts[f"{stage.name}.parameters"] = _digest(describe(parameters(stage)))
        code = code_of(stage)
        if code:
            parts[f"{stage.name}.code"] = _digest(code)
    return parts


def combined(parts: Mapping[str, str]) -> str:
    """Return one hash for all parts."""
    return _digest("\n".join(f"{name}={value}" for name, value in sorted(parts.items())))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def parameters(stage: ProcessingStage[Any, Any]) -> dict[str, Any]:
    """Return the attributes of a stage that affect its output."""
    skipped = _NO_INFLUENCE | ({"path", "mode"} if isinstance(stage, SinkStage) else frozenset())
    return {
        name: value
        for name, value in vars(stage).items()
        if name not in skipped and not name.startswith(("_num_workers", "_context"))
    }


def describe(value: Any, depth: int = 0) -> str:
    """Return a text for a value that is the same in every process; objects are described by class and attributes."""
    if isinstance(value, str | bytes | int | float | bool | type(None)):
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"pattern({value.pattern!r},{value.flags})"
    if depth > 8:
        return type(value).__qualname__
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{describe(k)}:{describe(v, depth + 1)}" for k, v in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(describe(item, depth + 1) for item in value) + "]"
    if isinstance(value, set | frozenset):
        return "{" + ",".join(sorted(describe(item, depth + 1) for item in value)) + "}"
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type):
        return f"{value.__qualname__}:{_source(value)}"
    attributes = getattr(value, "__dict__", {})
    return f"{type(value).__qualname__}({describe(attributes, depth + 1)})"


def code_of(stage: ProcessingStage[Any, Any]) -> str:
    """Return the source of a user's stage and of the objects that it holds; the version covers our own code."""
    texts = [_own_source(type(stage))]
    for value in vars(stage).values():
        items = value if isinstance(value, list | tuple) else [value]
        texts += [_own_source(item if isinstance(item, types.FunctionType) else type(item)) for item in items]
    return "\n".join(text for text in texts if text)


def _own_source(thing: Any) -> str:
    module = getattr(thing, "__module__", None) or "builtins"
    if module == "builtins" or module.split(".")[0] == "thresher":
        return ""
    return _source(thing)


def _source(thing: Any) -> str:
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        code = getattr(thing, "__code__", None)
        return "" if code is None else f"{code.co_code!r}{code.co_names!r}{code.co_varnames!r}"
