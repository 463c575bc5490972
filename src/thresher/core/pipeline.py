# SPDX-License-Identifier: Apache-2.0
"""A pipeline, which is an ordered list of stages independent of the executor that runs it, and the result of a run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from thresher.core.arguments.options import RUN_FOLDER, ErrorBudget, MetricsOptions, RunOptions
from thresher.core.documents.in_memory import as_tasks
from thresher.core.outlets import check_outlet_name
from thresher.core.planning.task_types import task_types
from thresher.core.registry import DEFAULT_EXECUTOR, kind_of, load_executor, wrapper_of
from thresher.core.stage import ProcessingStage
from thresher.core.task import FileGroupTask, Task
from thresher.errors import ParameterTypeError, PlanError, UsageError, with_article

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Stage = ProcessingStage[Any, Any]


class Pipeline:
    """An ordered list of stages, from a reader to a writer."""

    def __init__(
        self,
        name: str,
        description: str | None = None,
        stages: Iterable[Any] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """`config` has options of the executor that `run` makes: of the default one, or of one that it gets by name."""
        if not isinstance(name, str) or not name:
            raise UsageError(f"Pipeline.name: {name!r} is not a name")
        if config is not None and not isinstance(config, Mapping):
            raise UsageError(f"Pipeline.config: {config!r} is not a dict of options of an executor")
        self.name = name
        self.description = description or ""
        self.config = dict(config or {})
        self.stages: list[Stage] = []
        self.outlets: dict[str, Pipeline] = {}
        """Pipelines that continue what stages send to outlets, by name."""
        stages = () if stages is None else stages
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

    def build(self) -> list[Stage]:
        """Check the pipeline as a run does, and return the stages as they would run: composites expanded, names unique.

        A run does this by itself. The pipeline is not changed.
        """
        from thresher.core.planning.plan import make_plan

        self._require_stages()
        return list(make_plan(self.snapshot(), initial_tasks=None).stages)

    def _require_stages(self) -> None:
        if not self.stages:
            raise PlanError(f"pipeline {self.name!r} has no stages; add some with add_stage(…)")

    def run(  # noqa: PLR0913 - the contract names them
        self,
        executor: Any = None,
        initial_tasks: Any = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        *,
        run_dir: str | None = None,
        fresh: bool = False,
        accept_changes: bool = False,
        max_errors: int | str = "5%",
        keep_scores: bool = False,
        dropped_to: str | None = None,
        ledger: bool = True,
        progress: str = "auto",
        dashboard: bool = False,
        otel: bool = False,
        recipe: dict[str, Any] | None = None,
        metrics_port: int | None = None,
        metrics_host: str = "127.0.0.1",
        metrics_linger_s: float = 0.0,
    ) -> RunResult:
        """Run a snapshot of the pipeline and wait for the end; the pipeline itself is never changed.

        `executor` is an executor, or the name of one as on the command line. `initial_tasks` are what the first stage
        gets: tasks, or documents as a list of texts or dicts, a pandas DataFrame or an Arrow table.

        `checkpoint_path` is a folder for the run folder: what is finished there is left out when the script runs again,
        also where there is no writer and the result has only what is new.

        `dashboard=True` serves the run to the browser of this machine while it runs, and prints the address.
        `metrics_port` serves metrics for Prometheus on that port of `metrics_host` while it runs (0: a free port), and
        at the end until a client has fetched the last figures, at most for `metrics_linger_s`.
        `otel=True` sends an OpenTelemetry trace at the end, to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names.

        Failure raises a `ThresherError`. Ctrl-C raises `KeyboardInterrupt` after a clean end.
        """
        self._require_stages()
        if checkpoint_path is not None:
            if run_dir is not None:
                raise UsageError(f"give checkpoint_path={checkpoint_path!r} or run_dir={run_dir!r}, not both")
            run_dir = os.path.join(os.fspath(checkpoint_path), RUN_FOLDER)
        options = RunOptions(
            initial_tasks=None if initial_tasks is None else as_tasks(initial_tasks),
            run_dir=run_dir,
            skip_done=checkpoint_path is not None,
            fresh=fresh,
            accept_changes=accept_changes,
            max_errors=ErrorBudget.parse(max_errors),
            keep_scores=keep_scores,
            dropped_to=dropped_to,
            ledger=ledger,
            progress=progress,
            dashboard=dashboard,
            otel=otel,
            recipe=recipe,
            metrics=None if metrics_port is None else MetricsOptions(metrics_port, metrics_host, metrics_linger_s),
        )
        result: RunResult = _executor(executor, self.config).execute(self.snapshot(), options)
        return result

    def snapshot(self) -> Pipeline:
        """Return a copy that is independent of later changes to this pipeline."""
        copy = Pipeline(self.name, self.description, list(self.stages), self.config)
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
        raise ParameterTypeError(
            f"{given!r} is not a stage; a stage is a ProcessingStage, a DocumentFilter, a DocumentModifier, or made by "
            "@processing_stage"
        ) from None
    assert wrapper is not None, "only filters and modifiers get here"
    stage: Stage = wrapper(given)
    return stage.with_(name=type(given).__name__)


def _executor(given: Any, config: Mapping[str, Any]) -> Any:
    """Return the executor for an executor, the name of one, or `None`; `config` has options for one that is made."""
    if given is None or isinstance(given, str):
        return load_executor(DEFAULT_EXECUTOR if given is None else given)(**({"config": config} if config else {}))
    if isinstance(given, type):
        raise UsageError(f"executor: {given.__name__} is a class; write {given.__name__}()")
    if not callable(getattr(given, "execute", None)):
        raise UsageError(
            f"executor: {given!r} is not an executor; give one such as LocalExecutor(), or its name, 'local'"
        )
    if config:
        kind = type(given).__name__
        raise UsageError(
            f"Pipeline.config: {', '.join(map(str, config))} would be ignored, because run() got an executor that has "
            f"options of its own; write {kind}(config={{…}}), or leave one of them out"
        )
    return given


class RunResult(Sequence[Task]):
    """Output tasks of the last stage, in input order, as a list has them, with the counts of the run."""

    def __init__(
        self, report: dict[str, Any], payloads: Sequence[Any] | None, decode: Callable[[Any], Task] | None = None
    ) -> None:
        """Wrap a report. `payloads` are the output tasks of a pipeline without a writer; `None` if the output is in
        files."""
        self._report = report
        self._in_files = payloads is None
        self._encoded: list[Any] = [None] * len(self.output_paths) if payloads is None else list(payloads)
        """The tasks that nobody has asked for yet; `None` in place of the others."""
        self._tasks: list[Task | None] = [None] * len(self._encoded)
        self._decode = decode
        self.outlets: dict[str, RunResult] = {}
        """Results of the outlets of the pipeline, by name."""

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return map(self._task, range(len(self)))

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        places = range(len(self))[index]
        return self._task(places) if isinstance(places, int) else list(map(self._task, places))

    def _task(self, place: int) -> Task:
        """Return one output task: the same object each time, so that it can be changed as one in a list."""
        task = self._tasks[place]
        if task is None:
            encoded, self._encoded[place] = self._encoded[place], None
            if self._in_files:
                task = FileGroupTask(self._report.get("name", ""), [self.output_paths[place]])
            else:
                task = encoded if self._decode is None else self._decode(encoded)
            self._tasks[place] = task
        return task

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, list) and list(self) == other)

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __add__(self, other: Iterable[Task]) -> list[Task]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Task]) -> list[Task]:
        return [*other, *self]

    @property
    def run_id(self) -> str:
        """Return the run id."""
        return str(self._report["run_id"])

    @property
    def run_dir(self) -> str | None:
        """Return the run folder; `None` without a ledger."""
        found: str | None = self._report["run_dir"]
        return found

    @property
    def status(self) -> str:
        """Return `finished` or `nothing-to-do`."""
        return str(self._report["status"])

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of records read, created, merged, written, dropped and quarantined."""
        return dict(self._report["counts"])

    @property
    def unknown_losses(self) -> int:
        """Return the number of places where the input is truncated or damaged and the number of lost records is
        unknown. Each counts as one quarantined record."""
        return int(self._report["unknown_losses"])

    @property
    def stages(self) -> list[dict[str, Any]]:
        """Return one entry per stage."""
        return list(self._report["stages"])

    @property
    def drop_reasons(self) -> dict[str, int]:
        """Return the number of dropped records by `Stage/Rule`."""
        return dict(self._report["drop_reasons"])

    @property
    def warnings(self) -> list[str]:
        """Return what the run may hide although it finished, such as a stage that failed on most of its records."""
        return list(self._report["warnings"])

    @property
    def output_paths(self) -> list[str]:
        """Return the output files in input order."""
        return list(self._report["output_paths"])

    @property
    def units_total(self) -> int:
        """Return the number of input units."""
        return int(self._report["units_total"])

    @property
    def units_resumed(self) -> int:
        """Return the number of units that an earlier attempt had committed."""
        return int(self._report["units_resumed"])

    @property
    def wall_s(self) -> float:
        """Return the seconds that this attempt took."""
        return float(self._report["wall_s"])

    @property
    def peak_memory_bytes(self) -> int:
        """Return the peak memory of the driver and all its workers."""
        return int(self._report["peak_memory_bytes"])

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report, equal to `report.json`; with the reports of outlets, if the pipeline has some."""
        outlets = {name: result.to_dict() for name, result in self.outlets.items()}
        return {**self._report, **({"outlets": outlets} if outlets else {})}

    def to_arrow(self) -> pa.Table:
        """Return all documents of the result as one Arrow table, with nulls where a document lacks a column.

        The result of a pipeline without a writer is in memory. The output of a writer is in files, which may be larger
        than memory: raise a `UsageError` that names them.
        """
        from thresher.core.documents.batch import DocumentBatch

        if self._in_files:
            shown = ", ".join(self.output_paths[:3]) + (", …" if len(self.output_paths) > 3 else "")
            raise UsageError(
                f"the documents of this run were written to files ({shown or 'none'}); read those with pyarrow.dataset "
                "or pandas, or leave the writer out to have the documents as the result"
            )
        tasks = list(self)
        others = sorted({type(task).__name__ for task in tasks if not isinstance(task, DocumentBatch)})
        if others:
            raise UsageError(f"the result holds {', '.join(others)}, and only documents can be put into a table")
        from thresher.core.documents.frames import join_tables

        return join_tables([task.to_pyarrow() for task in tasks if isinstance(task, DocumentBatch)])

    def to_pandas(self) -> pd.DataFrame:
        """Return the same as a pandas data frame with the index 0..n-1; nested values are Python objects."""
        from thresher.core.documents.frames import to_frame

        return to_frame(self.to_arrow())

    def __repr__(self) -> str:
        counts = self.counts
        left = "written" if self._report.get("has_writer", True) else "passed"
        failed = f", quarantined {counts['quarantined']}" if counts["quarantined"] else ""
        return (
            f"RunResult({self.status}, read {counts['read']}, {left} {counts['written']}{failed}, {len(self)} outputs)"
        )
