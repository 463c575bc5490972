# SPDX-License-Identifier: Apache-2.0
"""Makes an executor by name. A setting that it would not honour is refused, or left out with a warning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from thresher.core.honoured import honoured_by, option_key
from thresher.core.registry import load_executor
from thresher.errors import UnsupportedError


def make_executor(name: str, options: Mapping[str, Any], warn: Callable[[str], None] | None = None) -> Any:
    """The executor `name` with `options`. With `warn`, what it cannot honour is told there and left out.

    The same holds later for what a pipeline asks of it.
    """
    executor = load_executor(name)
    kept = dict(options)
    for option, value in options.items():
        key = option_key(option, value, executor.cannot)
        if key is None and option in executor.options:
            continue
        others = honoured_by(key or option)
        if not others and key is None:
            continue  # unknown to all: the executor itself says so, with the nearest name
        reason = f": {executor.cannot[key]}" if key else ""
        text = f"executor {name!r} does not honour {option!r} ({option}={value!r}){reason}"
        if warn is None:
            raise UnsupportedError(
                f"{text}; it is honoured by: {', '.join(others) or 'none'}. Leave the setting out, choose another "
                "executor, or add --allow-unsupported to go on without it"
            )
        warn(f"{text}; the run goes on without it" if reason else f"{text}: the run goes on without it")
        del kept[option]
    made = executor(**kept)
    made.warn_unsupported = warn
    return made
