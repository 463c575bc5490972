# SPDX-License-Identifier: Apache-2.0
"""Parameters that may be one value or a list: a list is a chain, applied in order."""

from __future__ import annotations

from typing import Any

from thresher.errors import UsageError


def as_chain(stage: str, parameter: str, given: Any) -> list[Any]:
    """Return the links of a chain; a single value is a chain of one."""
    links = list(given) if isinstance(given, list | tuple) else [given]
    if not links:
        raise UsageError(f"{stage}.{parameter}: an empty list; give one or more")
    for link in links:
        # Another class may be a function of a text, such as `str`.
        if isinstance(link, type) and (hasattr(link, "score_document") or hasattr(link, "modify_document")):
            raise UsageError(f"{stage}.{parameter}: {link.__name__} is a class; write {link.__name__}()")
    return links


def chain_problems(links: list[Any]) -> list[str]:
    """Return the problems that the links of a chain report before a run; functions report none."""
    checks = [getattr(link, "check_before_run", None) for link in links]
    return [text for check in checks if callable(check) for text in check()]


def per_link(stage: str, parameter: str, given: Any, links: int) -> list[Any]:
    """Return one value per link of a chain; a single value, or a list of one, applies to all of them."""
    values = list(given) if isinstance(given, list | tuple) else [given]
    if len(values) == 1:
        return values * links
    if len(values) != links:
        raise UsageError(
            f"{stage}.{parameter}: {len(values)} values for a chain of {links}; give one value, or a list of {links}"
        )
    return values


def field_name(stage: str, parameter: str, given: Any) -> str:
    """Validate the name of a column."""
    if not isinstance(given, str) or not given:
        raise UsageError(f"{stage}.{parameter}: {given!r} is not the name of a column")
    return given


def unique_names(names: list[str]) -> list[str]:
    """Return the names of the links; the second of a kind gets `-2`."""
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return unique
