# SPDX-License-Identifier: Apache-2.0
"""One run from a plan to its result: open the run folder, drive the cluster, report."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.core.fingerprint import fingerprint
from thresher.core.options import RunOptions
from thresher.core.plan import Plan
from thresher.core.result import RunResult
from thresher.core.tally import Tally, counts_add_up
from thresher.core.task import EmptyTask, Task
from thresher.core.unit import Unit
from thresher.errors import RunFailedError, ThresherError, TooManyErrorsError
from thresher.ledger.checks import changed_inputs, check_nesting, refuse_changed_inputs
from thresher.ledger.open_run import OpenRun
from thresher.ledger.request import RunRequest
from thresher.ledger.run import open_run
from thresher.observe.event_log import EventLog
from thresher.observe.metrics import Metrics, Restored
from thresher.observe.progress import Progress, RunInfo, make_progress
from thresher.observe.report import RunFacts, build_report
from thresher.runtime.cluster import Cluster
from thresher.runtime.driver import Driver, Log
from thresher.runtime.interrupts import Interrupts
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.recorder import LedgerRecorder
from thresher.runtime.work_list import WorkList, as_stream, is_input_unit, units_around
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
    _check_folders(plan, options)
    listed = _begin_listing(plan)
    with Interrupts() as interrupts:  # also while the folder is opened: what is begun there is brought to an end
        run = open_run(_request(executor, plan, options))
        return _run_attempt(executor, plan, options, run, (listed, interrupts))


def _run_attempt(
    executor: Executor, plan: Plan, options: RunOptions, run: OpenRun, came: tuple[Iterator[Unit], Interrupts]
) -> RunResult:
    """`came`: the units, and who may ask for the end."""
    with brought_to_an_end(run) as parts:
        parts.cluster = executor.make_cluster(executor.limits())
        parts.attempt = Attempt(executor, plan, options, run, parts.cluster)
        return parts.attempt.run(*came)


@dataclass
class Parts:
    """What has to be closed when an attempt ends, as far as it was made."""

    cluster: Cluster | None = None
    """The workers."""
    attempt: Attempt | None = None
    """Has the progress display."""


@contextlib.contextmanager
def brought_to_an_end(run: OpenRun) -> Iterator[Parts]:
    """Leave nothing behind, however the block ends; if it fails, the run folder says with which exit code."""
    parts = Parts()
    exit_code = 1
    try:
        yield parts
        exit_code = 0
    except ThresherError as error:
        exit_code = error.exit_code
        raise
    except KeyboardInterrupt:
        exit_code = 130
        raise
    except SystemExit:
        exit_code = 143
        raise
    finally:
        if parts.cluster is not None:
            parts.cluster.close(kill=exit_code != 0)
        if parts.attempt is not None:
            parts.attempt.progress.close()
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
        self._restored = Restored()
        self._recorder = LedgerRecorder(run, writes=plan.sink is not None)
        self._committed_before = len(run.committed)
        self._resumed = _input_units(run)
        self.progress: Progress = make_progress(options.progress, interval_s=executor.logging_interval_s)
        executor.tell = self.progress.message

    def run(self, listed: Iterator[Unit], interrupts: Interrupts) -> RunResult:
        """From the first unit to the report."""
        self._cluster.start(WorkerSetup(self._plan, self._run.place), self.progress.worker_output())
        work = self._work_list(listed)
        spec = self._executor.run_spec(self._plan)
        log = self._open_log(spec)
        metrics = Metrics([stage.name for stage in self._plan.stages], spec.ops, self._restored)
        driver = Driver(self._plan, Scheduler(spec), self._cluster, work, self._recorder, log, metrics)
        driver.memory_limit = self._limits.memory_bytes
        driver.error_budget = self._options.max_errors
        driver.commits_unasked = self._executor.schedules_itself
        driver.show = self.progress.update
        self.progress.start(self._info())
        for text in self._run.warnings:
            self.progress.message(text)
        try:
            status = driver.run(interrupts)
        finally:
            if isinstance(log, EventLog):
                log.close()
            self.progress.finish(None)
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

    def _work_list(self, listed: Iterator[Unit]) -> WorkList:
        done = frozenset(self._run.committed)
        joins = self._run.join_units if "join" in self._plan.entries else None
        if self._plan.source is not None:
            self._cluster.mark_done(sorted(done))
            listed = self._checked_units(listed) if self._resumed else listed
            if self._executor.schedules_itself:
                listed = iter(list(listed))  # an engine is given all units at once
            return WorkList(self._plan, listed, done, self._run.record_units, joins)
        initial: Sequence[Task] = (
            self._options.initial_tasks if self._options.initial_tasks is not None else [EmptyTask()]
        )
        units, tasks = units_around(initial)
        work = WorkList(self._plan, iter(units), frozenset(), lambda units, last: None, joins)
        work.add_initial_tasks(tasks)
        return work

    def _checked_units(self, listed: Iterator[Unit]) -> Iterator[Unit]:
        """The whole list, compared with that of the attempt which is resumed."""
        units = [as_stream(unit) if unit.stream else unit for unit in listed]
        previous = self._run.previous_units()
        change = None if previous is None else changed_inputs(previous, units)
        if change is not None and not self._options.accept_changes:
            refuse_changed_inputs(self._run.run_dir or "", change)
        done = [unit.nbytes for unit in units if unit.id in self._run.committed]
        self._restored = Restored(len(done), sum(done))
        total = "" if any(unit.stream for unit in units) else f" of {len(units):,}"
        self.progress.message(f"resuming: {self._resumed:,}{total} units done")
        return iter(units)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end_early(self, driver: Driver, work: WorkList, interrupts: Interrupts) -> None:
        """Say what is done and how to go on, then raise."""
        self._recorder.sync()
        self._run.write_json("report.json", self._report(driver, work, "stopped", driver.stop_reason))
        driver.raise_if_over_budget()
        done = _input_units(self._run)
        self.progress.message(
            f"{driver.stop_reason}; {done:,} of {max(work.total, done):,} units are done. "
            "Run the same command again to go on."
        )
        interrupts.raise_if_any()
        raise RunFailedError(f"the run was stopped: {driver.stop_reason}")

    def _finish(self, driver: Driver, work: WorkList) -> RunResult:
        did_nothing = bool(self._committed_before) and len(self._run.committed) == self._committed_before
        status = "nothing-to-do" if did_nothing else "finished"
        self._cluster.close()
        report = self._report(driver, work, status)
        if not counts_add_up(report["counts"]):
            raise RunFailedError(f"the counts do not add up, which is a fault of Thresher: {report['counts']}")
        self._refuse_unreadable(report)
        self._run.write_json("metrics.json", driver.snapshot())
        self._run.write_json("report.json", report)
        self._run.finish(status, 0)
        results = None if self._plan.sink is not None else driver.results()
        return RunResult(report, results, self._cluster.decode_result)

    def _refuse_unreadable(self, report: dict[str, Any]) -> None:
        """Raise where all that was found in the input could not be read."""
        read = report["counts"]["read"]
        if self._plan.source is None or not read or report["stages"][0]["quarantined"] < read:
            return
        self._run.write_json("report.json", report)
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in report["quarantine_reasons"].items())
        raise TooManyErrorsError(
            f"no input could be read: {reasons}. Each one is explained in {self._run.run_dir}/quarantine"
        )

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


def _input_units(run: OpenRun) -> int:
    """How many units of the input are committed."""
    return sum(1 for unit in run.committed if is_input_unit(unit))


def _begin_listing(plan: Plan) -> Iterator[Unit]:
    """The units of the input. The first one is looked for at once: where there is no input, nothing is made."""
    if plan.source is None:
        return iter(())
    units: Iterator[Unit] = plan.source.list_units()
    first = list(itertools.islice(units, 1))
    return itertools.chain(first, units)


def _check_folders(plan: Plan, options: RunOptions) -> None:
    """No output may lie where input is read."""
    if plan.source is not None:
        for folder in (plan.sink.path if plan.sink is not None else None, options.dropped_to):
            if folder is not None:
                check_nesting(plan.source.input_roots(), folder)


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
