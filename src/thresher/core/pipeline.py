# SPDX-License-Identifier: Apache-2.0
"""A pipeline: an ordered list of stages, independent of the executor that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from thresher.core.arguments.options import ErrorBudget, RunOptions
from thresher.core.documents.in_memory import as_tasks
from thresher.core.outlets import check_outlet_name
from thresher.core.planning.task_types import task_types
from thresher.core.registry import DEFAULT_EXECUTOR, kind_of, load_executor, wrapper_of
from thresher.core.stage import ProcessingStage
from thresher.errors import PlanError, UsageError, with_article

if TYPE_CHECKING:
    from thresher.core.result import RunResult

Stage = ProcessingStage[Any, Any]


class Pipeline:
    """An ordered list of stages, from a reader to a writer."""

    def __init__(self, name: str, description: str = "", stages: Iterable[Any] = ()) -> None:
        if not isinstance(name, str) or not name:
            raise UsageError(f"Pipeline.name: {name!r} is not a name")
        self.name = name
        self.description = description
        self.stages: list[Stage] = []
        self.outlets: dict[str, Pipeline] = {}
        """Pipelines that continue what stages send to outlets, by name."""
        if not isinstance(stages, Iterable) or isinstance(stages, str | Mapping):
            raise UsageError(f"Pipeline.stages: {with_article(type(stages))} is not a list of stages; write stages=[…]")
        for stage in stages:
            self.add_stage(stage)

    def add_stage(self, stage: Any) -> Self:
        """Add a stage at the end, and return this pipeline so that calls can be chained.

        A filter is wrapped in `ScoreFilter` and a modifier in `Modify`, as in a recipe.
        """
        self.stages.append(as_stage(stage))
        return self

    def outlet(self, name: str) -> Pipeline:
        """Return the pipeline that continues what stages of this one send to an outlet, with stages and a writer of its
        own: `pipeline.outlet("short").add_stage(JsonlWriter("short"))`.

        A stage sends documents with `batch.to(name, rows)`. The outlets `dropped`, `quarantined` and `scores` get what
        the framework keeps under these names.
        """
        return self.outlets.setdefault(check_outlet_name(name), Pipeline(f"{self.name}-{name}"))

    def describe(self) -> str:
        """Return the stages with their task types and resources as text."""
        rows = [f"Pipeline {self.name}" + (f": {self.description}" if self.description else "")]
        for number, stage in enumerate(self.stages, start=1):
            taken, given = task_types(stage)
            needs = f"cpus={stage.resources.cpus:g}"
            if stage.resources.requires_gpu:
                needs += f", gpus={stage.resources.gpus:g}"
            rows.append(f"  {number}. {stage.name}: {taken.__name__} -> {given.__name__} ({needs})")
        for name, branch in self.outlets.items():
            rows += [f"outlet {name}", *branch.describe().splitlines()[1:]]
        return "\n".join(rows)

    def run(  # noqa: PLR0913 - all by keyword, as the contract names them
        self,
        executor: Any = None,
        *,
        initial_tasks: Any = None,
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

        `executor` is an executor, or the name of one as on the command line. `initial_tasks` are what the first stage
        gets: tasks, or documents as a list of texts or dicts, a pandas DataFrame or an Arrow table.

        Failure raises a `ThresherError`. Ctrl-C raises `KeyboardInterrupt` after a clean end.
        """
        if not self.stages:
            raise PlanError(f"pipeline {self.name!r} has no stages; add some with add_stage(…)")
        options = RunOptions(
            initial_tasks=None if initial_tasks is None else as_tasks(initial_tasks),
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
        result: RunResult = _executor(executor).execute(self.snapshot(), options)
        return result

    def snapshot(self) -> Pipeline:
        """Return a copy that is independent of later changes to this pipeline."""
        copy = Pipeline(self.name, self.description, list(self.stages))
        copy.outlets = {name: branch.snapshot() for name, branch in self.outlets.items()}
        return copy


def as_stage(given: Any) -> Stage:
    """Return the stage for a stage, filter or modifier that a user put into a pipeline."""
    if isinstance(given, type):
        raise UsageError(f"{given.__name__} is a class; write {given.__name__}()")
    if isinstance(given, ProcessingStage):
        return given
    try:
        wrapper = wrapper_of(kind_of(type(given)))
    except UsageError:
        raise UsageError(
            f"{given!r} is not a stage; a stage is a ProcessingStage, a DocumentFilter, a DocumentModifier, or made by "
            "@processing_stage"
        ) from None
    assert wrapper is not None, "only filters and modifiers get here"
    stage: Stage = wrapper(given)
    return stage.with_(name=type(given).__name__)


def _executor(given: Any) -> Any:
    """Return the executor for an executor, the name of one, or `None`."""
    if given is None or isinstance(given, str):
        return load_executor(DEFAULT_EXECUTOR if given is None else given)()
    if isinstance(given, type):
        raise UsageError(f"executor: {given.__name__} is a class; write {given.__name__}()")
    if not callable(getattr(given, "execute", None)):
        raise UsageError(
            f"executor: {given!r} is not an executor; give one such as LocalExecutor(), or its name, 'local'"
        )
    return given
