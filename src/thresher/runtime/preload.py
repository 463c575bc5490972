# SPDX-License-Identifier: Apache-2.0
"""What is imported before workers are forked: the modules that the stages of a plan name, also compiled kernels, and
Arrow where a stage works on columns."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from thresher.core.plan import Plan, expanded

_KERNELS = "thresher.kernels."
_ARROW = ("pyarrow", "thresher.core.reconcile")
"""What works on columns, and what compares them."""


def compile_kernels(plan: Plan) -> None:
    """Once per machine: compile the kernels that a plan needs, where that was not done before."""
    kernels = _kernels(_modules(plan.stages))
    if kernels:
        from thresher.kernels.compile import compile_missing

        compile_missing(kernels, _tell)


def import_modules(plan: Plan) -> None:
    """Import what workers will need."""
    for name in (*_modules(plan.stages), *(_ARROW if _needs_arrow(plan) else ())):
        importlib.import_module(name)


def modules_for(given: Sequence[Any]) -> list[str]:
    """What can be imported already while the plan for some stages is made."""
    stages = expanded(given)
    return [*_modules(stages), *(_ARROW if _use_columns(stages) else ())]


def import_early(modules: Sequence[str]) -> None:
    """Import what can be: kernels only if they are compiled. Who needs the rest meets the same error, and tells it."""
    kernels = _kernels(modules)
    if kernels:
        from thresher.kernels.compile import are_ready

        if not are_ready(kernels):
            modules = [name for name in modules if not name.startswith(_KERNELS)]
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def has_kernels(plan: Plan) -> bool:
    """Whether a plan needs compiled kernels."""
    return bool(_kernels(_modules(plan.stages)))


def _needs_arrow(plan: Plan) -> bool:
    return plan.scores is not None or _use_columns(plan.stages)


def _use_columns(stages: Iterable[Any]) -> bool:
    """Whether records are looked at as columns; lines are checked by Arrow where no kernels are loaded."""
    return not _kernels(_modules(stages)) or any(stage.needs_arrow() for stage in stages)


def _modules(stages: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for stage in stages for name in stage.preloads()))


def _kernels(modules: Iterable[str]) -> list[str]:
    return [name.removeprefix(_KERNELS) for name in modules if name.startswith(_KERNELS)]


def _tell(line: str) -> None:
    sys.stderr.write(f"thresher: {line}\n")
    sys.stderr.flush()
