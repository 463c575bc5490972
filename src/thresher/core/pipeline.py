# SPDX-License-Identifier: Apache-2.0
"""A pipeline: an ordered list of stages. How it will run is the executor's business."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

from thresher.core.options import ErrorBudget, RunOptions
from thresher.core.stage import ProcessingStage, task_types
from thresher.core.task import Task
from thresher.errors import PlanError, UsageError

if TYPE_CHECKING:
    from thresher.core.result import RunResult

Stage = ProcessingStage[Any, Any]


class Pipeline:
    """Stages in a row, from a reader to a writer."""

    def __init__(self, name: str, description: str = "", stages: Iterable[Stage] = ()) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"Pipeline.name: {name!r} is not a name")
        self.name = name
        self.description = description
        self.stages: list[Stage] = []
        for stage in stages:
            self.add_stage(stage)

    def add_stage(self, stage: Stage) -> Self:
        """Add a stage at the end; returns this pipeline, so that calls can be chained."""
        if isinstance(stage, type):
            raise UsageError(f"add_stage got the class {stage.__name__}; give an instance: {stage.__name__}(…)")
        if not isinstance(stage, ProcessingStage):
            raise UsageError(f"add_stage got {stage!r}; a stage is a ProcessingStage or made by @processing_stage")
        self.stages.append(stage)
        return self

    def describe(self) -> str:
        """The stages with what they take, give and need, as text."""
        rows = [f"Pipeline {self.name}" + (f": {self.description}" if self.description else "")]
        for number, stage in enumerate(self.stages, start=1):
            taken, given = task_types(stage)
            needs = f"cpus={stage.resources.cpus:g}"
            if stage.resources.requires_gpu:
                needs += f", gpus={stage.resources.gpus:g}"
            rows.append(f"  {number}. {stage.name}: {taken.__name__} -> {given.__name__} ({needs})")
        return "\n".join(rows)

    def run(  # noqa: PLR0913 - all by keyword, as the contract names them
        self,
        executor: Any = None,
        *,
        initial_tasks: Iterable[Task] | None = None,
        run_dir: str | None = None,
        fresh: bool = False,
        accept_changes: bool = False,
        max_errors: int | str = "5%",
        keep_scores: bool = False,
        dropped_to: str | None = None,
        ledger: bool = True,
        progress: str = "auto",
        recipe: dict[str, Any] | None = None,
    ) -> RunResult:
        """Run a snapshot of the pipeline and wait for the end; the pipeline itself is never changed.

        Failure raises a `ThresherError`. Ctrl-C raises `KeyboardInterrupt` after a clean end.
        """
        if not self.stages:
            raise PlanError(f"pipeline {self.name!r} has no stages; add some with add_stage(…)")
        options = RunOptions(
            initial_tasks=None if initial_tasks is None else tuple(initial_tasks),
            run_dir=run_dir,
            fresh=fresh,
            accept_changes=accept_changes,
            max_errors=ErrorBudget.parse(max_errors),
            keep_scores=keep_scores,
            dropped_to=dropped_to,
            ledger=ledger,
            progress=progress,
            recipe=recipe,
        )
        if executor is None:
            # Found by name: what a pipeline is must not depend on what runs it.
            executor = importlib.import_module("thresher.backends.local").LocalExecutor()
        result: RunResult = executor.execute(self.snapshot(), options)
        return result

    def snapshot(self) -> Pipeline:
        """A copy that later changes of this pipeline do not reach."""
        return Pipeline(self.name, self.description, list(self.stages))
