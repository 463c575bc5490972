# SPDX-License-Identifier: Apache-2.0
"""A run from its plan to its result: open the run folder, drive the cluster, report."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import heapq
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import RunOptions
from thresher.core.arguments.sizes import counted
from thresher.core.files.filesystem import STANDARD_STREAM, is_url
from thresher.core.phases import PhaseReader
from thresher.core.pipeline import RunResult
from thresher.core.planning.plan import Plan
from thresher.core.tally import Tally, counts_add_up, extras_text
from thresher.core.task import Task
from thresher.core.unit import Unit
from thresher.credentials import error_line
from thresher.errors import RunFailedError, TooManyErrorsError
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.folder.opening import STARTS_OVER, open_run
from thresher.ledger.folder.request import InputChangedError, changed_inputs, refuse_changed_inputs
from thresher.ledger.records import CommitRecord
from thresher.observe.event_log import EventLog, Log, NoLog
from thresher.observe.metrics import Metrics, Restored
from thresher.observe.progress import NoProgress, Progress, RunInfo, WithWatcher, make_progress
from thresher.observe.report import RunFacts, build_report
from thresher.runtime.accounts import Accounts, LedgerRecorder
from thresher.runtime.closing import closing_attempt, trace_at_end
from thresher.runtime.cluster import Cluster
from thresher.runtime.driver import Driver, Interrupts
from thresher.runtime.error_watch import ErrorWatch
from thresher.runtime.orders import WorkerSetup
from thresher.runtime.run_request import initial_tasks, run_request
from thresher.runtime.work_list import WorkList, as_stream, begin_listing, is_input_unit, units_for_tasks
from thresher.scheduler.step import Scheduler

if TYPE_CHECKING:
    from thresher.runtime.executor import Executor
    from thresher.runtime.standard_output import StandardOutput

SLOWEST_UNITS = 10
"""Number of slow units in a report."""


def run_plan(executor: Executor, plan: Plan, options: RunOptions) -> RunResult:
    """Run a plan to the end. Raise a ThresherError if it fails, KeyboardInterrupt if it was interrupted."""
    reads = bool(getattr(plan.source, "reads_standard_input", False))
    writes = plan.sink is not None and plan.sink.path == STANDARD_STREAM
    if not reads and not writes:
        return _run_plan(executor, plan, options)
    from thresher.runtime.standard_output import NOTE, standard_output, without_ledger

    options = without_ledger(options)
    if not writes:
        return _run_plan(executor, plan, options, NOTE)
    with standard_output() as output:
        return _run_plan(executor, output.plan(plan), options, NOTE, output)


def _run_plan(
    executor: Executor, plan: Plan, options: RunOptions, note: str = "", output: StandardOutput | None = None
) -> RunResult:
    listed = begin_listing(plan)
    with Interrupts() as interrupts:  # also while the folder is opened, which must not stop halfway
        run = open_run(run_request(executor, plan, options))
        if note:
            run.warnings.append(note)
        try:
            return _run_attempt(executor, plan, options, run, (listed, interrupts), output)
        except InputChangedError as change:
            if run.has_output:
                raise
            run = open_run(run_request(executor, plan, dataclasses.replace(options, fresh=True)))
            run.warnings.append(STARTS_OVER.format(change.what))
            return _run_attempt(executor, plan, options, run, (begin_listing(plan), interrupts), output)


def _run_attempt(
    executor: Executor,
    plan: Plan,
    options: RunOptions,
    run: OpenRun,
    source: tuple[Iterator[Unit], Interrupts],
    output: StandardOutput | None,
) -> RunResult:
    """Run one attempt. `source`: the units, and the signals; `output`: receives finished files in place of a folder."""
    with trace_at_end(run, options), closing_attempt(run) as parts:
        run.redo_missing()
        parts.cluster = executor.make_cluster(executor.limits())
        parts.attempt = RunAttempt(executor, plan, options, run, parts.cluster)
        parts.attempt.output = output
        return parts.attempt.run(*source)


class RunAttempt:
    """One attempt of a run."""

    output: StandardOutput | None = None
    """Receives finished files if standard output is the output."""

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
        self._errors = ErrorWatch(plan.stages, options.max_errors, _total(run))
        view = make_progress(options.progress, interval_s=executor.logging_interval_s)
        self._is_silent = isinstance(view, NoProgress)
        self.progress: Progress = view if options.watcher is None else WithWatcher(view, options.watcher)
        executor.notify = self.progress.message

    def run(self, listed: Iterator[Unit], interrupts: Interrupts) -> RunResult:
        """Run from the first unit to the report."""
        prints = self.progress.worker_output()
        setup = WorkerSetup(self._plan, self._run.target, announce=self._announce(prints))
        if self.output is not None:
            prints = sys.stderr.fileno() if prints is None else prints
            self._recorder.on_commit = self.output.committed
        self._cluster.start(setup, prints)
        work = self._work_list(listed)
        spec = self._executor.run_spec(self._plan)
        log = self._open_log(spec)
        names = [stage.name for stage in self._plan.stages]
        metrics = Metrics(names, spec.ops, self._restored, phases=len(self._plan.phase_starts))
        accounts = Accounts(self._plan, self._cluster, work, self._recorder, self._errors)
        driver = Driver(Scheduler(spec), self._cluster, work, accounts, self._errors, log, metrics)
        driver.memory_limit = self._limits.memory_bytes
        driver.commits_externally = self._executor.schedules_itself
        driver.progress = self.progress
        if self._plan.sink is not None and self._plan.sink.settles_schema:
            accounts.after_commit = lambda: self._after_commit(work)
        self.progress.start(self._info())
        if self._options.watcher is not None:
            self.progress.message(f"metrics at http://{self._options.watcher.address}/metrics")
        for text in self._run.warnings:
            self.progress.message(text)
        try:
            with self._dashboard():
                status = driver.run(interrupts)
            self._warn_at_end()
        finally:
            if self._options.watcher is not None:
                self._options.watcher.update(driver.snapshot())
            if isinstance(log, EventLog):
                log.close()
            self.progress.finish(None)
        if status == "stopped":
            self._end_early(driver, work, interrupts)
        return self._finish(driver, work, accounts)

    def _warn_at_end(self) -> None:
        """Name what a run that finished may hide."""
        total = _total(self._run)
        for text in total.common_failures([stage.name for stage in self._plan.stages]):
            self.progress.message(f"warning: {text}")
        if total.extras:
            self.progress.message(f"warning: {extras_text(total.extras)}")

    @contextlib.contextmanager
    def _dashboard(self) -> Iterator[None]:
        """Serve the dashboard until the block ends, if it is wanted; outlets have none of their own."""
        run_dir = self._run.run_dir
        if not self._options.dashboard or self._options.origin is not None or run_dir is None:
            yield
        elif is_url(run_dir):
            self.progress.message(f"no dashboard: the events of {run_dir} are uploaded at the end; see it then")
            yield
        else:
            from thresher.runtime.dashboard_process import dashboard_beside

            with dashboard_beside(run_dir) as address:
                self.progress.message(f"dashboard: {address}" if address else "the dashboard does not start")
                yield

    def _info(self) -> RunInfo:
        return RunInfo(
            name=self._plan.name,
            executor=self._executor.name,
            run_dir=self._run.run_dir,
            workers=self._limits.shared_workers,
            units_resumed=self._resumed,
            branches=tuple(self._options.branches),
            outlet="" if self._options.origin is None else self._options.origin.outlet.rsplit("/", 1)[-1],
        )

    def _announce(self, output: int | None) -> str:
        """Return how the compilation of rules is announced; a live view redraws an unfinished line in place."""
        if self._is_silent or self._options.progress == "json":
            return "none"
        return "lines" if output is None else "bar"

    def _open_log(self, spec: Any) -> Log:
        folder = self._run.event_folder()
        if folder is None:
            return NoLog()
        log = EventLog(folder)
        names = [stage.name for stage in self._plan.stages]
        log.start(
            spec,
            plan={"name": self._plan.name, "stages": names, "phases": len(self._plan.phase_starts)},
            executor=self._executor.name,
            restored=self._restored,
        )
        return log

    # -- units --------------------------------------------------------------------------------------------------------

    def _work_list(self, listed: Iterator[Unit]) -> WorkList:
        done = frozenset(self._run.committed)
        later: list[Callable[[], list[Unit]]] = [
            functools.partial(self._phase_units, phase) for phase in range(1, len(self._plan.phase_starts))
        ]
        if "join" in self._plan.entries:
            later.append(self._join_units)
        tasks: dict[str, Task] = {}
        if self._plan.source is None:
            units, tasks = units_for_tasks(initial_tasks(self._options), self._plan.tasks_per_unit)
            listed = iter(units)
        self._cluster.mark_done(sorted(done))
        listed = self._checked_units(listed) if self._resumed else listed
        if self._executor.schedules_itself:
            listed = iter(list(listed))  # an engine receives all units at once
        work = WorkList(self._plan, listed, done, self._run.record_units, later, self._on_open())
        work.add_initial_tasks(tasks)
        return work

    def _on_open(self) -> Callable[[Unit], None]:
        return self.output.opened if self.output is not None else lambda unit: None

    def _phase_units(self, phase: int) -> list[Unit]:
        """Return the units of a phase that are not committed yet; if there are none, remove what the phase has read."""
        reader = self._plan.source_of(phase)
        assert isinstance(reader, PhaseReader), "every phase after the first begins with one"
        units = self._run.phase_units(phase, reader, self._plan.phase_writers[phase - 1].most_files)
        if not units:
            self._run.end_phase(phase)
        return units

    def _join_units(self) -> list[Unit]:
        """Decide the schema, if that is not done yet, and return the units that join parts."""
        self._decide_schema(None)
        return self._run.join_units()

    def _decide_schema(self, first_open: tuple[int, int] | None) -> None:
        """Decide the schema of the output files once the first unit with output, in input order, is committed."""
        proposal = self._run.first_schema(first_open)
        if proposal:
            source = self._plan.source.listed_schema() if self._plan.source is not None else None
            assert self._plan.sink is not None, "only a writer proposes a schema"
            self._run.keep_schema(self._plan.sink.settled_schema(proposal, source))

    def _after_commit(self, work: WorkList) -> None:
        source = self._plan.source
        if work.listed or source is None or not source.lists_schema:
            self._decide_schema(work.first_open())

    def _checked_units(self, listed: Iterator[Unit]) -> Iterator[Unit]:
        """Return the whole list after comparing it with that of the resumed attempt."""
        units = [as_stream(unit) if unit.stream else unit for unit in listed]
        previous = self._run.previous_units()
        change = None if previous is None else changed_inputs(previous, units)
        if change is not None and not self._options.accept_changes:
            refuse_changed_inputs(self._run.run_dir or "", change)
        done = [unit.work for unit in units if unit.id in self._run.committed]
        self._restored = Restored(len(done), sum(done), _total(self._run))
        total = "" if any(unit.stream for unit in units) else f" of {len(units):,}"
        self.progress.message(f"resuming: {self._resumed:,}{total} units done")
        return iter(units)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _end_early(self, driver: Driver, work: WorkList, interrupts: Interrupts) -> None:
        """Report what is done and how to resume, then raise with a note that prevents a second report."""
        self._recorder.sync()
        self._write_report(self._report(driver, work, "stopped", driver.stop_reason))
        driver.raise_if_over_budget()
        done = _input_units(self._run)
        resumes = "to go on" if self._run.run_dir else "to start over: this run keeps no run folder"
        so_far = f"{done:,} of {max(work.total, done):,} units are done"
        now = driver.snapshot()
        if now.phase > 1:
            so_far = f"{counted(now.phase - 1, 'phase')} of {now.phases} done, and a part of the next"
        if self._options.origin is not None:
            outlet = self._options.origin.outlet.rsplit("/", 1)[-1]
            so_far = f"the pipeline is done, and of its outlet {outlet} {so_far}"
        self.progress.message(f"{driver.stop_reason}; {so_far}. Run the same command again {resumes}.")
        try:
            interrupts.raise_if_any()
        except (KeyboardInterrupt, SystemExit) as end:
            end.add_note(driver.stop_reason or "interrupted")
            raise
        raise RunFailedError(f"the run was stopped: {driver.stop_reason}")

    def _finish(self, driver: Driver, work: WorkList, accounts: Accounts) -> RunResult:
        is_unchanged = bool(self._committed_before) and len(self._run.committed) == self._committed_before
        status = "nothing-to-do" if is_unchanged else "finished"
        self._cluster.close()
        report = self._report(driver, work, status)
        if not counts_add_up(report["counts"]) or _total(self._run).handed_on:
            raise RunFailedError(f"the counts do not add up, which is a fault of Thresher: {report['counts']}")
        failure = self._failure()
        if failure is not None:
            status = "failed"
            report |= {"status": status, "error": str(failure)}
        self._run.write_json("metrics.json", driver.snapshot())
        self._write_report(report)
        self._run.finish(status, 0 if failure is None else failure.exit_code)
        if failure is not None:
            raise failure
        results = None if self._plan.sink is not None else accounts.results()
        return RunResult(report, results, self._cluster.decode_result)

    def _write_report(self, report: dict[str, Any]) -> None:
        """Write the report as data and as a page; a page that cannot be drawn must not fail the run."""
        self._run.write_json("report.json", report)
        if self._options.progress == "json":
            self.progress.finish(report)  # the caller prints the summary for people
        store = self._run.store
        if store is None:
            return
        from thresher.runtime.report_file import LONG_RUN_S, write_page

        try:
            # Nobody who stops a run waits for pictures.
            scores = report["status"] == "finished" and report["wall_s"] > LONG_RUN_S
            write_page(store, report, with_scores=scores, events=self._run.event_folder())
        except Exception as error:
            self.progress.message(f"warning: report.html could not be written: {error_line(error)}")

    def _failure(self) -> TooManyErrorsError | None:
        """Check the losses of all attempts together."""
        return self._errors.verdict_at_end(_total(self._run), self._run.run_dir)

    def _report(self, driver: Driver, work: WorkList, status: str, error: str | None = None) -> dict[str, Any]:
        facts = RunFacts(
            run_id=self._run.run_id,
            run_dir=self._run.run_dir,
            name=self._plan.name,
            status=status,
            executor=self._executor.name,
            stage_names=tuple(stage.name for stage in self._plan.stages),
            stage_workers=(self._limits.shared_workers,) * len(self._plan.stages),
            output_paths=tuple(self._run.output_paths()) if self.output is None else (STANDARD_STREAM,),
            has_writer=self._plan.sink is not None,
            dropped_to=self._run.dropped_to,
            units_total=work.total,
            units_resumed=work.resumed,
            wall_s=time.monotonic() - self._started,
            peak_memory_bytes=driver.peak_memory,
            memory_limit_bytes=self._limits.memory_bytes,
            error=error,
            slowest_units=slowest_units(self._run.committed.values()),
        )
        return build_report(facts, _total(self._run))


def _total(run: OpenRun) -> Tally:
    """Return the sum of the counts of all committed units."""
    total = Tally(stages={})
    for record in run.committed.values():
        total.add(record.tally)
    return total


def slowest_units(records: Iterable[CommitRecord], most: int = SLOWEST_UNITS) -> tuple[dict[str, Any], ...]:
    """Return the units of the first phase that took the longest, the slowest first."""
    times = ((sum(s.busy_s for s in r.tally.stages.values()), r) for r in records if not r.phase and not r.joined)
    found = heapq.nlargest(most, times, key=lambda item: item[0])
    return tuple({"unit": r.unit, "busy_s": round(s, 3), "read": r.read, "written": r.written} for s, r in found if s)


def _input_units(run: OpenRun) -> int:
    """Return the number of committed input units."""
    return sum(1 for unit, record in run.committed.items() if not record.phase and is_input_unit(unit))
