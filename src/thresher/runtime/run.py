# SPDX-License-Identifier: Apache-2.0
"""One run from a plan to its result: open the run folder, drive the cluster, report."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.fingerprint import fingerprint
from thresher.core.options import RunOptions
from thresher.core.plan import Plan
from thresher.core.result import RunResult
from thresher.core.tally import Tally, counts_add_up
from thresher.core.task import EmptyTask, Task
from thresher.core.unit import Unit
from thresher.errors import RunFailedError, TooManyErrorsError
from thresher.ledger.open_run import OpenRun
from thresher.ledger.request import RunRequest
from thresher.ledger.run import open_run
from thresher.observe.event_log import EventLog
from thresher.observe.metrics import Metrics
from thresher.observe.progress import Progress, RunInfo, make_progress
from thresher.observe.report import RunFacts, build_report
from thresher.runtime.cluster import Cluster
from thresher.runtime.driver import Driver, Log
from thresher.runtime.interrupts import Interrupts
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.recorder import LedgerRecorder
from thresher.runtime.specs import run_spec
from thresher.runtime.work_list import WorkList, units_around
from thresher.scheduler.step import Scheduler
from thresher.version import __version__

if TYPE_CHECKING:
    from thresher.runtime.executor import Executor


class _NoLog:
    """Keeps nothing: a run without a ledger."""

    def write(self, n: int, t: float, item: Any) -> None:
        """Nothing is kept."""

    def flush(self) -> None:
        """Nothing is kept."""


def run_plan(executor: Executor, plan: Plan, options: RunOptions) -> RunResult:
    """Run a plan to its end; raises a ThresherError if it fails, KeyboardInterrupt if it was interrupted."""
    run = open_run(_request(executor, plan, options))
    cluster: Cluster | None = None
    exit_code = 1
    try:
        with Interrupts() as interrupts:
            cluster = executor.make_cluster(executor.limits())
            attempt = Attempt(executor, plan, options, run, cluster)
            result = attempt.run(interrupts)
            exit_code = 0
            return result
    except TooManyErrorsError as error:
        exit_code = error.exit_code
        raise
    except KeyboardInterrupt:
        exit_code = 130
        raise
    except SystemExit:
        exit_code = 143
        raise
    finally:
        if cluster is not None:
            cluster.close(kill=exit_code != 0)
        if exit_code:
            run.abandon(exit_code)


class Attempt:
    """One attempt at a run."""

    def __init__(self, executor: Executor, plan: Plan, options: RunOptions, run: OpenRun, cluster: Cluster) -> None:
        self._executor = executor
        self._plan = plan
        self._options = options
        self._run = run
        self._cluster = cluster
        self._limits = executor.limits()
        self._started = time.monotonic()
        self._recorder = LedgerRecorder(run)
        self._resumed = len(run.committed)
        self._progress: Progress = make_progress(options.progress, interval_s=executor.logging_interval_s)

    def run(self, interrupts: Interrupts) -> RunResult:
        """From the first unit to the report."""
        self._cluster.start(WorkerSetup(self._plan, self._run.place))
        work = self._work_list()
        spec = run_spec(self._plan, self._limits)
        log = self._open_log(spec)
        metrics = Metrics([stage.name for stage in self._plan.stages], spec.ops)
        driver = Driver(self._plan, Scheduler(spec), self._cluster, work, self._recorder, log, metrics)
        driver.memory_limit = self._limits.memory_bytes
        driver.error_budget = self._options.max_errors
        driver.show = self._progress.update
        self._progress.start(self._info())
        try:
            status = driver.run(interrupts)
        finally:
            if isinstance(log, EventLog):
                log.close()
            self._progress.finish(None)
        if status == "stopped":
            self._end_early(driver, work, interrupts)
        return self._finish(driver, work)

    def _info(self) -> RunInfo:
        return RunInfo(
            name=self._plan.name,
            executor=self._executor.name,
            run_dir=self._run.run_dir,
            workers=self._limits.shared_workers,
            units_resumed=self._resumed,
        )

    def _open_log(self, spec: Any) -> Log:
        folder = self._run.event_folder()
        if folder is None:
            return _NoLog()
        log = EventLog(folder)
        log.start(spec, plan={"name": self._plan.name, "stages": [stage.name for stage in self._plan.stages]})
        return log

    # -- units --------------------------------------------------------------------------------------------------------

    def _work_list(self) -> WorkList:
        done = frozenset(self._run.committed)
        joins = self._run.join_units if "join" in self._plan.entries else None
        source = self._plan.source
        if source is not None:
            listed: Iterator[Unit] = source.list_units()
            self._cluster.mark_done(sorted(done))
            return WorkList(self._plan, listed, done, self._units_listed, joins)
        initial: Sequence[Task] = (
            self._options.initial_tasks if self._options.initial_tasks is not None else [EmptyTask()]
        )
        units, tasks = units_around(initial)
        work = WorkList(self._plan, iter(units), frozenset(), lambda units, last: None, joins)
        work.add_initial_tasks(tasks)
        return work

    def _units_listed(self, units: Sequence[Unit], last: bool) -> None:
        self._run.record_units(units, last)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end_early(self, driver: Driver, work: WorkList, interrupts: Interrupts) -> None:
        """Say what is done and how to go on, then raise."""
        self._recorder.sync()
        self._run.write_json("report.json", self._report(driver, work, "stopped", driver.stop_reason))
        driver.raise_if_over_budget()
        done = len(self._run.committed)
        self._progress.message(
            f"{driver.stop_reason}; {done:,} of {max(work.total, done):,} units are done. "
            "Run the same command again to go on."
        )
        interrupts.raise_if_any()
        raise RunFailedError(f"the run was stopped: {driver.stop_reason}")

    def _finish(self, driver: Driver, work: WorkList) -> RunResult:
        status = "nothing-to-do" if self._resumed and len(self._run.committed) == self._resumed else "finished"
        self._cluster.close()
        report = self._report(driver, work, status)
        if not counts_add_up(report["counts"]):
            raise RunFailedError(f"the counts do not add up, which is a fault of Thresher: {report['counts']}")
        self._run.write_json("metrics.json", driver.snapshot())
        self._run.write_json("report.json", report)
        self._run.finish(status, 0)
        results = None if self._plan.sink is not None else driver.results()
        return RunResult(report, results, self._cluster.decode_result)

    def _report(self, driver: Driver, work: WorkList, status: str, error: str | None = None) -> dict[str, Any]:
        total = Tally(stages={})
        for record in self._run.committed.values():
            total.add(record.tally)
        facts = RunFacts(
            run_id=self._run.run_id,
            run_dir=self._run.run_dir,
            name=self._plan.name,
            status=status,
            executor=self._executor.name,
            stage_names=tuple(stage.name for stage in self._plan.stages),
            stage_workers=(self._limits.shared_workers,) * len(self._plan.stages),
            output_paths=tuple(self._run.output_paths()),
            dropped_to=self._options.dropped_to,
            units_total=work.total,
            units_resumed=work.resumed,
            wall_s=time.monotonic() - self._started,
            peak_memory_bytes=driver.peak_memory,
            memory_limit_bytes=self._limits.memory_bytes,
            error=error,
        )
        return build_report(facts, total)


def _request(executor: Executor, plan: Plan, options: RunOptions) -> RunRequest:
    sink = plan.sink
    return RunRequest(
        name=plan.name,
        run_dir=options.run_dir,
        sink_path=sink.path if sink is not None else None,
        mode=sink.mode if sink is not None else "error",
        storage_options=sink.storage_options if sink is not None else None,
        extension=sink.extension() if sink is not None else "",
        dropped_to=options.dropped_to,
        fingerprint=fingerprint(plan.stages, __version__),
        recipe=dict(options.recipe or {}),
        plan=plan_facts(plan),
        executor=executor.name,
        fresh=options.fresh,
        accept_changes=options.accept_changes,
        ledger=options.ledger,
        target_file_size=sink.target_file_size if sink is not None else None,
    )


def plan_facts(plan: Plan) -> dict[str, Any]:
    """What plan.json says."""
    return {
        "name": plan.name,
        "stages": [stage.name for stage in plan.stages],
        "groups": plan.groups(),
        "entries": plan.entries,
        "ops": [
            {"index": op.index, "steps": [[step.kind, step.stage] for step in op.steps], "next": op.next}
            for op in plan.ops
        ],
    }
