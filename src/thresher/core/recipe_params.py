# SPDX-License-Identifier: Apache-2.0
"""Params of a recipe: `???` must be given, `${name}` is replaced by the value, and secrets are hidden when shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thresher.core.parameters import SECRET_PARAMETERS, Path, Problem
from thresher.errors import nearest

MISSING = "???"
"""The value of a param that must be given."""

HIDDEN = "***"
"""What is shown in place of a secret."""

_REFERENCE = re.compile(r"\$(\$)?\{([^{}]*)\}")
_URL_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")


def missing_params(params: Mapping[str, Any]) -> list[Problem]:
    """A problem for each param that is still `???`."""
    return [
        Problem(("params", name), f"must be given: add {name}=VALUE to the command line")
        for name, value in params.items()
        if value == MISSING
    ]


class Substitution:
    """Replaces `${name}`; keeps what went wrong, and which params turned out to be secrets."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params
        self.problems: list[Problem] = []
        self.secret_params: set[str] = set()

    def fill(self, value: Any, path: Path = ()) -> Any:
        """`value` with every reference replaced. A value that is one reference keeps the param's type."""
        if isinstance(value, dict):
            return {key: self.fill(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        whole = _REFERENCE.fullmatch(value)
        if whole is not None and not whole[1]:
            return self._value_of(whole[2], path)
        return _REFERENCE.sub(lambda match: self._text_for(match, path), value)

    def _text_for(self, match: re.Match[str], path: Path) -> str:
        if match[1]:  # $${x} stands for ${x} itself
            return match[0][1:]
        value = self._value_of(match[2], path)
        if isinstance(value, list | dict):
            self.problems.append(Problem(path, f"${{{match[2]}}} is a list or a mapping and cannot be part of a text"))
        if isinstance(value, bool):
            return "true" if value else "false"
        return "" if value is None else str(value)

    def _value_of(self, name: str, path: Path) -> Any:
        if name not in self.params:
            known = ", ".join(self.params) or "none"
            self.problems.append(
                Problem(path, f"${{{name}}}: there is no param {name!r}.{nearest(name, self.params)} Params: {known}")
            )
            return None
        if SECRET_PARAMETERS.intersection(path):
            self.secret_params.add(name)
        return self.params[name]


def without_secrets(value: Any, hide: bool = False) -> Any:
    """A copy that may be shown: what is in storage options, and logins in URLs, is replaced by `***`."""
    if isinstance(value, dict):
        return {key: without_secrets(item, hide or key in SECRET_PARAMETERS) for key, item in value.items()}
    if isinstance(value, list):
        return [without_secrets(item, hide) for item in value]
    if hide and not isinstance(value, bool | None):
        return HIDDEN
    return _URL_LOGIN.sub(f"{HIDDEN}@", value) if isinstance(value, str) else value
