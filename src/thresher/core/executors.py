# SPDX-License-Identifier: Apache-2.0
"""Makes an executor by name. A setting that it would not honour is refused, or left out with a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from thresher.core.registry import EXECUTORS, load_executor
from thresher.errors import UnsupportedError


def make_executor(name: str, options: Mapping[str, Any], warn: Callable[[str], None] | None = None) -> Any:
    """The executor `name` with `options`. With `warn`, what it cannot honour is told there and left out."""
    executor = load_executor(name)
    kept = dict(options)
    for option in options:
        if option in executor.options:
            continue
        honoured_by = [other for other in EXECUTORS if other != name and option in load_executor(other).options]
        if not honoured_by:
            continue  # unknown to all: the executor itself says so, with the nearest name
        text = f"executor {name!r} does not honour {option!r} ({option}={options[option]!r})"
        if warn is None:
            raise UnsupportedError(
                f"{text}; it is honoured by: {', '.join(honoured_by)}. Leave the setting out, choose another executor, "
                "or add --allow-unsupported to go on without it"
            )
        warn(f"{text}: the run goes on without it")
        del kept[option]
    return executor(**kept)
