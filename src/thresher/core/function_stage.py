# SPDX-License-Identifier: Apache-2.0
"""Stages that are made of a function: `@processing_stage`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from thresher.core.arguments.stage_settings import check_settings, check_takes_one
from thresher.core.resources import Resources
from thresher.core.stage import ProcessingStage
from thresher.errors import UsageError


class FunctionStage(ProcessingStage[Any, Any]):
    """A stage made of a function."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        name = str(getattr(function, "__qualname__", repr(function)))
        if not callable(function):
            raise UsageError(f"@processing_stage: {name} is not a function of one task")
        check_takes_one(function, name, "the task")
        self.function = function
        self.fans_out = inspect.isgeneratorfunction(function)

    def process(self, task: Any) -> Any:
        """Call the function."""
        return self.function(task)


def processing_stage(
    name: str | None = None, resources: Resources | dict[str, Any] | None = None, batch_size: int | None = None
) -> Callable[[Callable[[Any], Any]], FunctionStage]:
    """Make a stage instance of a function of one task: `@processing_stage(name="shorten")`."""

    def make(function: Callable[[Any], Any]) -> FunctionStage:
        stage = FunctionStage(function)
        stage.name = name or str(getattr(function, "__name__", "function"))
        if resources is not None:
            stage.resources = Resources(**resources) if isinstance(resources, dict) else resources
        if batch_size is not None:
            stage.batch_size = batch_size
        check_settings(stage)
        return stage

    return make
