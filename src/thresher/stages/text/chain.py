# SPDX-License-Identifier: Apache-2.0
"""Parameters that may be one value or a list: a list makes a chain, applied in order."""

from __future__ import annotations

from typing import Any

from thresher.errors import UsageError


def as_chain(stage: str, parameter: str, given: Any) -> list[Any]:
    """The links of a chain; one value is a chain of one."""
    links = list(given) if isinstance(given, list | tuple) else [given]
    if not links:
        raise UsageError(f"{stage}.{parameter}: an empty list; give one or more")
    return links


def spread(stage: str, parameter: str, given: Any, links: int) -> list[Any]:
    """One value for each link of a chain; a single value, or a list of one, counts for all of them."""
    values = list(given) if isinstance(given, list | tuple) else [given]
    if len(values) == 1:
        return values * links
    if len(values) != links:
        raise UsageError(
            f"{stage}.{parameter}: {len(values)} values for a chain of {links}; give one value, or a list of {links}"
        )
    return values


def field_name(stage: str, parameter: str, given: Any) -> str:
    """A column's name, checked."""
    if not isinstance(given, str) or not given:
        raise UsageError(f"{stage}.{parameter}: {given!r} is not the name of a column")
    return given


def unique_names(names: list[str]) -> list[str]:
    """The names of the links; the second of a kind gets `-2`."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return unique
