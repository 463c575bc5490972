# SPDX-License-Identifier: Apache-2.0
"""Read YAML for recipes: plain data only, no duplicate keys, and the line of every value.

Scalars follow YAML 1.2, as most people expect: only `true` and `false` are booleans, `no` and `2024-01-01` are texts,
`1e-3` is a number and `007` a text.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from thresher.errors import RecipeError

MAX_VALUES = 100_000
"""Limit on the number of values; nested aliases reach it at once."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_FLOW_ENDS = "\0 \t\r\n,]}"


class _Loader(yaml.SafeLoader):
    """A loader for null, booleans, numbers, texts, lists and mappings, and nothing else."""

    def fetch_key(self) -> None:
        """Read `???` inside braces as a text; PyYAML would start a complex key."""
        if self.flow_level and self.prefix(3) == "???" and self.peek(3) in _FLOW_ENDS:
            self.save_possible_simple_key()
            self.allow_simple_key = False
            start = self.get_mark()
            self.forward(3)
            self.tokens.append(yaml.ScalarToken("???", True, start, self.get_mark()))
            return
        super().fetch_key()


def _construct_text(loader: _Loader, node: yaml.ScalarNode) -> str:
    """Return a text with surrogate pairs combined: JSON writes characters beyond the first plane as two escapes."""
    text = str(node.value)
    if text.isascii() or not _SURROGATE.search(text):
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise yaml.MarkedYAMLError(
            problem="half of a character (a lone surrogate)", problem_mark=node.start_mark
        ) from None


def _set_up_loader() -> None:
    tag = "tag:yaml.org,2002:"
    kept = (f"{tag}null", f"{tag}bool", f"{tag}int", f"{tag}float", f"{tag}str", f"{tag}seq", f"{tag}map", None)
    _Loader.yaml_constructors = {key: value for key, value in _Loader.yaml_constructors.items() if key in kept}
    _Loader.add_constructor(f"{tag}str", _construct_text)
    _Loader.yaml_implicit_resolvers = {}
    number = r"[-+]?(?:0|[1-9][0-9_]*)"
    power = r"[eE][-+]?[0-9]+"
    special = r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
    for name, pattern, first in (
        ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
        ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
        ("int", rf"{number}|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
        ("float", rf"{number}?\.[0-9]+(?:{power})?|{number}\.?{power}|{number}\.|{special}", "-+0123456789."),
        ("merge", r"<<", "<"),
    ):
        _Loader.add_implicit_resolver(tag + name, re.compile(rf"^(?:{pattern})$"), list(first))


_set_up_loader()


def read_yaml(text: str, source: str) -> tuple[Any, dict[tuple[str | int, ...], int]]:
    """Return the data in `text`, and the line of each value by its path. `source` names the text in errors."""
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines = {} if node is None else _Walk(source).walk(node)
        return None if node is None else loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        raise RecipeError(_explain(error, source)) from None
    except yaml.YAMLError as error:
        raise RecipeError(f"{source}: not readable as YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise RecipeError(f"{source}: nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise RecipeError(f"{source}: a value cannot be read: {error}") from None
    finally:
        if loader is not None:
            loader.dispose()


def read_scalar(text: str, source: str) -> Any:
    """Return the value of a `key=value`: YAML for lists, mappings and quoted texts, else a number, a boolean or a
    text."""
    if text.lstrip()[:1] in ("[", "{", '"', "'"):
        return read_yaml(text, source)[0]
    loader = _Loader("")
    tag = loader.resolve(yaml.ScalarNode, text.strip(), (True, False))  # type: ignore[no-untyped-call]  # no stub
    value = loader.construct_object(yaml.ScalarNode(tag, text.strip()))
    return text if isinstance(value, str) else value


class _Walk:
    """Walk that finds lines and duplicate keys, and limits the number of values."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.lines: dict[tuple[str | int, ...], int] = {}

    def walk(self, node: yaml.Node, path: tuple[str | int, ...] = ()) -> dict[tuple[str | int, ...], int]:
        """Visit `node` and everything below it, and return the lines."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        if len(self.lines) > MAX_VALUES:
            raise RecipeError(f"{self.source}: more than {MAX_VALUES:,} values; do aliases (*name) repeat each other?")
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self.walk(item, (*path, index))
        elif isinstance(node, yaml.MappingNode):
            self._walk_mapping(node, path)
        return self.lines

    def _walk_mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> None:
        first_line: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith((":null", ":bool", ":int", ":float")):
                shown = key.value if isinstance(key, yaml.ScalarNode) else "a list or a mapping"
                raise RecipeError(f"{self.source}:{line}: {shown!r} is not a key; keys are texts, put it in quotes")
            if key.value in first_line:
                raise RecipeError(
                    f"{self.source}:{line}: the key {key.value!r} is given twice;"
                    f" the first one is in line {first_line[key.value]}. Remove one"
                )
            first_line[key.value] = line
            self.lines[(*path, key.value)] = line
            self.walk(value, (*path, key.value))


def _explain(error: yaml.MarkedYAMLError, source: str) -> str:
    mark = error.problem_mark or error.context_mark
    position = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source
    context = f" ({error.context})" if error.context else ""
    text = f"{position}: not readable as YAML: {error.problem or 'unknown reason'}{context}"
    if mark is not None and error.problem and "'{'" in error.problem:
        text += ". Inside braces put ${param} in quotes"
    return text
