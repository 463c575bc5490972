# SPDX-License-Identifier: Apache-2.0
"""Values of a Hydra configuration: references to other values, `???`, and `key=value` from the command line."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

from thresher.core.recipes.params import MISSING
from thresher.core.recipes.yaml_text import read_scalar
from thresher.errors import RecipeError, nearest

_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
_DEPTH = 20
"""References that lead to references; more of them lead in a circle."""


def override(data: dict[str, Any], key: str, value: Any, path: str) -> None:
    """Set one value of a configuration: `text_field=body`, `stages.1.filter_obj.min_words=80`, `+added=1`."""
    adds = key.startswith("+")
    keys = key.lstrip("+").split(".")
    holder: Any = data
    for number, part in enumerate(keys[:-1]):
        if isinstance(holder, Mapping) and adds and part not in holder:
            holder[part] = {}  # type: ignore[index]  # a dict of the configuration
        holder = _entry(holder, part, f"{path}: {'.'.join(keys[: number + 1])}")
    last = keys[-1]
    if isinstance(holder, dict) and (adds or last in holder):
        holder[last] = value
    elif isinstance(holder, list) and last.isdecimal() and int(last) < len(holder):
        holder[int(last)] = value
    else:
        known = list(holder) if isinstance(holder, Mapping) else []
        raise RecipeError(
            f"{path}: {key}: the configuration has no {last!r}.{nearest(last, known)} Write +{key}=VALUE to add it"
        )


def _entry(holder: Any, part: str, where: str) -> Any:
    if isinstance(holder, Mapping) and part in holder:
        return holder[part]
    if isinstance(holder, list) and part.isdecimal() and int(part) < len(holder):
        return holder[int(part)]
    known = list(holder) if isinstance(holder, Mapping) else []
    raise RecipeError(f"{where}: there is nothing of that name.{nearest(part, known)}")


class Interpolation:
    """Replace `${key}`, `${a.b}` and `${oc.env:NAME,default}`, and refuse what is still `???`."""

    def __init__(self, data: Mapping[str, Any], path: str) -> None:
        self.data = data
        self.path = path
        self.missing: dict[str, None] = {}

    def filled(self, value: Any) -> Any:
        """Return `value` with all references replaced; one error names everything that must be given."""
        found = self._fill(value, "", 0)
        if self.missing:
            names = ", ".join(f"{name}=VALUE" for name in self.missing)
            raise RecipeError(f"{self.path}: must be given: add {names} to the command line")
        return found

    def _fill(self, value: Any, where: str, depth: int) -> Any:
        if isinstance(value, Mapping):
            return {key: self._fill(item, f"{where}.{key}".lstrip("."), depth) for key, item in value.items()}
        if isinstance(value, list):
            return [self._fill(item, f"{where}.{index}".lstrip("."), depth) for index, item in enumerate(value)]
        if value == MISSING:
            self.missing[where] = None
            return value
        if not isinstance(value, str) or "${" not in value:
            return value
        if depth > _DEPTH:
            raise RecipeError(f"{self.path}: {where}: {value!r} refers to itself")
        whole = _REFERENCE.fullmatch(value)
        if whole is not None:
            return self._value_of(whole[1].strip(), where, depth)
        replaced = _REFERENCE.sub(lambda match: _as_text(self._value_of(match[1].strip(), where, depth)), value)
        return self._fill(replaced, where, depth + 1)

    def _value_of(self, reference: str, where: str, depth: int) -> Any:
        if reference.startswith("oc.env:"):
            name, _, default = reference.removeprefix("oc.env:").partition(",")
            given = os.environ.get(name.strip())
            if given is None and not default:
                raise RecipeError(f"{self.path}: {where}: the environment has no variable {name.strip()!r}")
            return read_scalar(default.strip(), where) if given is None else given
        if ":" in reference or reference.startswith("."):
            raise RecipeError(
                f"{self.path}: {where}: ${{{reference}}} cannot be resolved here; write the value, or refer to it by "
                "its name from the top, such as ${input_path}"
            )
        value: Any = self.data
        for part in reference.split("."):
            value = _entry(value, part, f"{self.path}: {where}: ${{{reference}}}")
        return self._fill(value, reference, depth + 1)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
