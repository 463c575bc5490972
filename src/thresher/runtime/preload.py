# SPDX-License-Identifier: Apache-2.0
"""What is imported before workers are forked: the modules that the stages of a plan name, also compiled kernels."""

from __future__ import annotations

import importlib
import sys

from thresher.core.plan import Plan

_KERNELS = "thresher.kernels."


def compile_kernels(plan: Plan) -> None:
    """Once per machine: compile the kernels that a plan needs, where that was not done before."""
    kernels = [name.removeprefix(_KERNELS) for name in _modules(plan) if name.startswith(_KERNELS)]
    if kernels:
        from thresher.kernels.compile import compile_missing

        compile_missing(kernels, _tell)


def import_modules(plan: Plan) -> None:
    """Import what workers will need."""
    for name in _modules(plan):
        importlib.import_module(name)


def has_kernels(plan: Plan) -> bool:
    """Whether a plan needs compiled kernels."""
    return any(name.startswith(_KERNELS) for name in _modules(plan))


def _modules(plan: Plan) -> list[str]:
    return list(dict.fromkeys(name for stage in plan.stages for name in stage.preloads()))


def _tell(line: str) -> None:
    sys.stderr.write(f"thresher: {line}\n")
    sys.stderr.flush()
