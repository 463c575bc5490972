# SPDX-License-Identifier: Apache-2.0
"""Prompts with the names of columns in them, which are filled in for each document."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from thresher.errors import UsageError

_PART = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")
_PLACE = re.compile(r"(?P<column>[^:]*?)\s*(?::\s*(?P<most>[0-9]+))?")


class _Place(NamedTuple):
    """A place for the value of a column."""

    column: str
    """The column."""
    most: int | None
    """Most characters of the value; the rest is left out."""


class PromptTemplate:
    """A text with `{column}` where the value of a column goes; `{column:2000}` takes its first 2,000 characters.

    Braces that are meant as such are doubled: `{{` and `}}`.
    """

    def __init__(self, what: str, text: str) -> None:
        """`what`: name of the parameter, for errors. `text`: the template."""
        if not isinstance(text, str):
            raise UsageError(f"{what}: {text!r} is not a prompt, which is a text such as 'Summarize: {{text}}'")
        self.text = text
        self._parts: list[str | _Place] = []
        end = 0
        for found in _PART.finditer(text):
            self._parts.append(text[end : found.start()])
            self._parts.append(_part(what, found))
            end = found.end()
        self._parts.append(text[end:])
        self.columns = tuple(dict.fromkeys(part.column for part in self._parts if isinstance(part, _Place)))
        """Names of the columns, each once."""

    def fill(self, values: Mapping[str, Any]) -> str:
        """Return the prompt for a document, given the value of each column."""
        return "".join(
            part if isinstance(part, str) else _shown(values[part.column], part.most) for part in self._parts
        )


def _part(what: str, found: re.Match[str]) -> str | _Place:
    if found[0] in ("{{", "}}"):
        return found[0][0]
    place = None if found[1] is None else _PLACE.fullmatch(found[1].strip())
    if place is None or not place["column"]:
        raise UsageError(
            f"{what}: {found[0]!r} at character {found.start()} is not the name of a column in braces, such as "
            "{text} or {text:2000}; a brace that is meant as such is doubled: {{ or }}"
        )
    return _Place(place["column"], None if place["most"] is None else int(place["most"]))


def _shown(value: Any, most: int | None) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode()
    return text if most is None else text[:most]
