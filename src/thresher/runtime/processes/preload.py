# SPDX-License-Identifier: Apache-2.0
"""Imports before workers are forked: the modules that the stages of a plan name, compiled kernels, and Arrow if a stage
works on columns."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from thresher.core.planning.plan import Plan, expanded

_KERNELS = "thresher.kernels."
_ARROW = ("pyarrow", "thresher.core.documents.reconcile")
"""Modules for work on columns, and for comparing them."""


def compile_kernels(plan: Plan, announce: str, *, and_the_rest: bool) -> None:
    """Compile the kernels that a plan needs and that are not in this machine's cache. `announce`: how the user is
    informed (`Announcer`); `and_the_rest`: compile the kernels of other plans in the background afterwards."""
    kernels = _kernels(_modules(plan.stages))
    if not kernels:
        return
    from thresher.kernels.build.cache import is_ready

    if all(map(is_ready, kernels)):
        return
    from thresher.kernels.build.compile import compile_missing
    from thresher.kernels.build.progress import Announcer

    announcer = Announcer(announce)
    if compile_missing(kernels, announcer) and and_the_rest:
        from thresher.kernels.build.background import CHOICE, start_in_background

        if start_in_background():
            announcer.line(
                f"the other text rules are compiled in the background, at the lowest priority ({CHOICE}=0: never)"
            )


def import_modules(plan: Plan) -> None:
    """Import the modules that workers need."""
    modules = _modules(plan.stages)
    for name in (*modules, *(_ARROW if _needs_arrow(plan) else ())):
        importlib.import_module(name)
    if _kernels(modules):
        from thresher.kernels.build.decorators import load_late_kernels

        load_late_kernels()


def modules_for(given: Sequence[Any]) -> list[str]:
    """Return the modules that can be imported while the plan for some stages is made."""
    stages = expanded(given)
    return [*_modules(stages), *(_ARROW if _use_columns(stages) else ())]


def import_early(modules: Sequence[str]) -> None:
    """Import modules and ignore failures: code that needs a module raises and reports the same error later."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def has_kernels(plan: Plan) -> bool:
    """Return True if a plan needs compiled kernels."""
    return bool(_kernels(_modules(plan.stages)))


def _needs_arrow(plan: Plan) -> bool:
    return plan.scores is not None or _use_columns(plan.stages)


def _use_columns(stages: Iterable[Any]) -> bool:
    """Return True if records are read as columns. Without kernels, Arrow checks the lines."""
    return not _kernels(_modules(stages)) or any(stage.needs_arrow() for stage in stages)


def _modules(stages: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for stage in stages for name in stage.preloads()))


def _kernels(modules: Iterable[str]) -> list[str]:
    return [name.removeprefix(_KERNELS) for name in modules if name.startswith(_KERNELS)]
