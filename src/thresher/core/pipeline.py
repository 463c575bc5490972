# SPDX-License-Identifier: Apache-2.0
"""A pipeline, which is an ordered list of stages independent of the executor that runs it, and the result of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from thresher.core.arguments.options import ErrorBudget, MetricsOptions, RunOptions
from thresher.core.documents.in_memory import as_tasks
from thresher.core.outlets import check_outlet_name
from thresher.core.planning.task_types import task_types
from thresher.core.registry import DEFAULT_EXECUTOR, kind_of, load_executor, wrapper_of
from thresher.core.stage import ProcessingStage
from thresher.core.task import FileGroupTask, Task
from thresher.errors import PlanError, UsageError, with_article

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

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

        `dashboard=True` serves the run to the browser of this machine while it runs, and prints the address.
        `metrics_port` serves metrics for Prometheus on that port of `metrics_host` while it runs (0: a free port), and
        at the end until a client has fetched the last figures, at most for `metrics_linger_s`.
        `otel=True` sends an OpenTelemetry trace at the end, to the collector that `OTEL_EXPORTER_OTLP_ENDPOINT` names.

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
            dashboard=dashboard,
            otel=otel,
            recipe=recipe,
            metrics=None if metrics_port is None else MetricsOptions(metrics_port, metrics_host, metrics_linger_s),
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


class RunResult:
    """Output tasks of the last stage, in input order, with the counts of the run."""

    def __init__(
        self, report: dict[str, Any], payloads: Sequence[Any] | None, decode: Callable[[Any], Task] | None = None
    ) -> None:
        """Wrap a report. `payloads` are the output tasks of a pipeline without a writer; `None` if the output is in
        files."""
        self._report = report
        self._payloads = payloads
        self._decode = decode
        self.outlets: dict[str, RunResult] = {}
        """Results of the outlets of the pipeline, by name."""

    def __len__(self) -> int:
        return len(self.output_paths) if self._payloads is None else len(self._payloads)

    def __iter__(self) -> Iterator[Task]:
        if self._payloads is None:
            for path in self.output_paths:
                yield FileGroupTask(self._report.get("name", ""), [path])
            return
        for payload in self._payloads:
            yield payload if self._decode is None else self._decode(payload)

    def __getitem__(self, index: int) -> Task:
        return list(self)[index]

    def __bool__(self) -> bool:
        return True

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

        if self._payloads is None:
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
        return f"RunResult({self.status}, read {counts['read']}, {left} {counts['written']}, {len(self)} outputs)"
