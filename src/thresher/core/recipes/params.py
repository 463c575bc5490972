# SPDX-License-Identifier: Apache-2.0
"""Params of a recipe: required ones (`???`), substitution of `${name}`, and hiding of secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thresher.core.arguments.parameters import SECRET_PARAMETERS, Path, Problem
from thresher.credentials import HIDDEN, redacted
from thresher.errors import nearest

MISSING = "???"
"""Value of a param that the user must set."""

_REFERENCE = re.compile(r"\$(\$)?\{([^{}]*)\}")
_SECRET_NAME = re.compile(
    r"(?:passwo?r?d|passwd|secret|credentials?|(?:api|access|secret|account)_?key|(?:api|access|auth|bearer|sas|hf)_?token)$",
    re.IGNORECASE,
)
"""Names of parameters of any stage whose values are secrets."""


def missing_params(params: Mapping[str, Any]) -> list[Problem]:
    """Return a problem for each param that is still `???`."""
    return [
        Problem(("params", name), f"must be given: add {name}=VALUE to the command line")
        for name, value in params.items()
        if value == MISSING
    ]


class Substitution:
    """Substitution of `${name}`, which collects problems and the params that are used as secrets."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.params = params
        self.problems: list[Problem] = []
        self.secret_params: set[str] = set()

    def fill(self, value: Any, path: Path = ()) -> Any:
        """Return `value` with every reference replaced. A value that is a single reference keeps the type of the
        param."""
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
    """Return a copy that may be shown: storage options, passwords and keys, also those in URLs, are replaced by
    `***`."""
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if isinstance(item, str) and _SECRET_NAME.search(str(key))
            else without_secrets(item, hide or key in SECRET_PARAMETERS)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [without_secrets(item, hide) for item in value]
    if hide and not isinstance(value, bool | None):
        return HIDDEN
    return redacted(value) if isinstance(value, str) else value
