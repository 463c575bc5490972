# SPDX-License-Identifier: Apache-2.0
"""Look up names of NeMo Curator: what stands for them, or what there is instead."""

from __future__ import annotations

import functools
from typing import Any

from thresher.compat.nemo.hints import HINTS, Hint
from thresher.compat.nemo.names import MODULES
from thresher.core.registry import PUBLIC_NAMES, resolve
from thresher.errors import NotMappedError, nearest
from thresher.workflows import WORKFLOWS


@functools.cache
def known_modules() -> frozenset[str]:
    """Return the modules of the table, with all packages above them."""
    found = set(MODULES)
    for name in MODULES:
        while "." in name:
            name = name.rpartition(".")[0]
            found.add(name)
    return frozenset(found)


def names_of(module: str) -> dict[str, str]:
    """Return the names of a module, with their targets."""
    return MODULES.get(module, {})


def not_there(module: str, name: str = "") -> Hint | None:
    """Return the most specific hint for a name of a module; `None` if there is none."""
    found = HINTS.get(f"{module}:{name}") or HINTS.get(f"{module}:")
    while found is None and "." in module:
        found = HINTS.get(module)
        module = module.rpartition(".")[0]
    return found


def load_target(target: str) -> Any:
    """Return the object that stands for a name."""
    return resolve(target if ":" in target else PUBLIC_NAMES.get(target) or WORKFLOWS[target])


def missing_name(module: str, name: str) -> NotMappedError:
    """Return the error for a name that nothing stands for."""
    legal = MODULES.get(module, {})
    close = nearest(name, [known for known in legal if known != name])
    hint = not_there(module, name)
    instead = f" Instead: {hint.instead}." if hint is not None else ""
    return NotMappedError(
        f"Thresher has nothing that stands for {module}.{name}.{close}{instead} docs/migration.md lists what there is"
    )
