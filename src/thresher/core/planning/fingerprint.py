# SPDX-License-Identifier: Apache-2.0
"""Fingerprint of a run: its stages, their parameters and source code, and the content of its initial tasks. A resumed
run compares it with that of the earlier attempt."""

from __future__ import annotations

import hashlib
import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.stage import ProcessingStage, SinkStage
from thresher.core.task import Task

_NO_INFLUENCE = frozenset(
    {
        "resources",
        "batch_size",
        "timeout_s",
        "max_attempts",
        "runtime_env",
        "storage_options",
        "cache_dir",
        "hf_token",
        "buffer_bytes",
        "name",
        "columns_read",
        "_listed",
    }
)
"""Attributes of a stage that do not affect its output."""
_SET_BY_RUN = frozenset(
    {"_task_id", "counted_items", "unit_lines", "_stage_perf", "_ids", "_dropped", "_failed", "_memo"}
)
"""Attributes of a task that a run sets."""
_SCALARS = (int, float, complex, bool, type(None))
_BUFFERS = (bytes, bytearray, memoryview)


def fingerprint(
    stages: Sequence[ProcessingStage[Any, Any]], version: str, outlets: Iterable[str] = ()
) -> dict[str, str]:
    """Return hashes by what they cover: `version`, `stages` (names and order), `outlets` (names), `<stage>.parameters`
    and `<stage>.code`."""
    parts = {
        "version": ".".join(version.split(".")[:2]),
        "stages": _digest(",".join(f"{stage.name}:{type(stage).__qualname__}" for stage in stages)),
    }
    if outlets:
        parts["outlets"] = _digest(",".join(sorted(outlets)))
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
    skipped = _NO_INFLUENCE | stage.without_influence
    skipped |= {"path", "mode"} if isinstance(stage, SinkStage) else frozenset()
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
    attributes = {key: held for key, held in getattr(value, "__dict__", {}).items() if key != "storage_options"}
    return f"{type(value).__qualname__}({describe(attributes, depth + 1)})"


def tasks_digest(tasks: Iterable[Task], tasks_per_unit: int = 1) -> str:
    """Return a hash of the content of initial tasks, the same in every process, and of how they are cut into units."""
    digest = hashlib.sha256(f"{tasks_per_unit}".encode())
    for task in tasks:
        add_content(digest.update, task, set())
    return digest.hexdigest()[:32]


def add_content(add: Callable[[bytes], None], value: Any, above: set[int]) -> None:
    """Pass the type and content of a value to `add`. `above`: ids of the values that contain it, so that a cycle ends.

    An object that is neither plain data nor can be pickled counts as its `repr`.
    """
    add(f"<{type(value).__module__}.{type(value).__qualname__}>".encode())
    if isinstance(value, _SCALARS):
        add(repr(value).encode())
    elif isinstance(value, str):
        _add_bytes(add, value.encode("utf-8", "surrogatepass"))
    elif isinstance(value, _BUFFERS):
        _add_bytes(add, bytes(value))
    elif isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type):
        _add_bytes(add, describe(value).encode("utf-8", "surrogatepass"))
    elif id(value) not in above:
        above.add(id(value))
        for part in _parts(value):
            add_content(add, part, above)
        above.discard(id(value))
        add(b"</>")


def _add_bytes(add: Callable[[bytes], None], content: bytes) -> None:
    add(f"{len(content)}:".encode())
    add(content)


def _parts(value: Any) -> Iterable[Any]:
    """Return the values that the content of a collection, a task or another object consists of."""
    if isinstance(value, DocumentBatch):
        return value.dataset_name, value.metadata, _arrow_bytes(value.to_pyarrow())
    if isinstance(value, Task):
        return [(name, held) for name, held in vars(value).items() if name not in _SET_BY_RUN]
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, set | frozenset):
        return sorted(_content_digest(item) for item in value)
    if hasattr(value, "combine_chunks") and hasattr(value, "schema"):
        return (_arrow_bytes(value),)
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # whatever a class of a user raises there: it cannot be pickled
        return (repr(value),)
    if isinstance(reduced, str):
        return (reduced,)
    return [list(part) if number > 2 and part is not None else part for number, part in enumerate(reduced[:5])]


def _content_digest(value: Any) -> str:
    digest = hashlib.sha256()
    add_content(digest.update, value, set())
    return digest.hexdigest()


def _arrow_bytes(table: Any) -> bytes:
    """Return an Arrow table in the format of an Arrow stream, which depends neither on its chunks nor on its offset."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    content: bytes = sink.getvalue().to_pybytes()
    return content


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
