# SPDX-License-Identifier: Apache-2.0
"""Retry the quarantined records of a run through the pipeline, in the same run folder and under its lock.

The quarantined records of a unit are retried as a unit of their own, `<unit>-retry-N`, with its own output file. Its
commit record subtracts the counts that its records had when they were quarantined, so that the sums over the ledger
remain the counts of the run.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec

from thresher.core.arguments.options import ErrorBudget, RunOptions
from thresher.core.arguments.sizes import counted
from thresher.core.files.filesystem import join
from thresher.core.pipeline import Pipeline, RunResult
from thresher.core.planning.fingerprint import fingerprint
from thresher.core.planning.plan import Plan
from thresher.core.stage import SourceStage
from thresher.core.tally import Tally
from thresher.core.unit import Unit, stream_id
from thresher.errors import OutputRefusedError, UsageError
from thresher.inspect.retry_source import Retried, RetrySource, may_be_retried
from thresher.ledger.folder.find import read_commits, read_json, read_run, read_units
from thresher.ledger.folder.open_run import OpenRun
from thresher.ledger.folder.opening import open_run
from thresher.ledger.folder.request import RunRequest, changed_parts
from thresher.ledger.quarantine import archive_replaced, current_files, read_entries, retries_due
from thresher.ledger.records import latest_retries, retry_id
from thresher.ledger.stores.store import open_store
from thresher.runtime.accounts import UnitAccount
from thresher.runtime.closing import closing_attempt
from thresher.runtime.driver import Interrupts
from thresher.runtime.run import RunAttempt
from thresher.runtime.run_request import plan_facts
from thresher.runtime.work_list import WorkList, is_input_unit
from thresher.version import __version__

if TYPE_CHECKING:
    from thresher.runtime.executor import Executor

_SAFE_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class RetryOptions:
    """Options of a retry."""

    storage_options: dict[str, Any] = field(default_factory=dict)
    """Options for opening the run folder, if it is a URL."""
    progress: str = "auto"
    """Progress mode, as for a run."""
    recipe: dict[str, Any] | None = None
    """The resolved recipe, for the run folder."""


@dataclass(frozen=True)
class RetryResult:
    """Result of a retry."""

    tried: int
    """Number of retried records."""
    left: int
    """Number of records that are still in quarantine."""
    skipped: int
    """Number of those that cannot be retried, because they are not records of the input or were not stored."""
    changes: list[str]
    """Changes of the pipeline since the run, as text."""
    run: RunResult | None
    """Result of the attempt; `None` if there was nothing to retry."""


class _Retryable(msgspec.Struct):
    """Quarantined records of one unit that can be retried."""

    file: str
    """Id of their quarantine file."""
    counts: dict[tuple[str, str, bool], int] = {}
    """Number of records by stage, error, and whether they are children."""


@dataclass(frozen=True)
class _RetryWork:
    """The work of a retry."""

    waiting: dict[str, _Retryable]
    """Records to retry by the id of the retry unit, in input order."""
    units: dict[str, Unit]
    """Retry units by id."""
    retried: dict[str, Retried]
    """Input of each retry unit."""
    skipped: int
    """Number of quarantined records that cannot be retried."""

    @property
    def tried(self) -> int:
        """Return the number of records to retry."""
        return sum(n for waiting in self.waiting.values() for n in waiting.counts.values())


def retry_run(executor: Executor, pipeline: Pipeline, run_dir: str, options: RetryOptions) -> RetryResult:
    """Retry the quarantined records; raise a `ThresherError` if the attempt itself fails."""
    with executor.connected():
        return _retry(executor, pipeline, run_dir, options)


def _retry(executor: Executor, pipeline: Pipeline, run_dir: str, options: RetryOptions) -> RetryResult:
    state = read_run(run_dir, options.storage_options)
    run_options = RunOptions(
        max_errors=ErrorBudget(share=1.0),
        dropped_to=state.dropped_to or _report_of(run_dir, options).get("dropped_to"),
        progress=options.progress,
        recipe=options.recipe,
    )
    if pipeline.outlets:
        raise UsageError(
            f"{run_dir}: a retried record could go to an outlet ({', '.join(pipeline.outlets)}), and these have been "
            f"run. Mend what failed, and start over: {_start_over(run_dir, options)}"
        )
    plan = executor.plan(pipeline, run_options)
    _refuse_other_stages(plan, run_dir, options)
    _refuse_unfinished(run_dir, options)
    changes = changed_parts(state.fingerprint_parts, fingerprint(plan.stages, __version__, plan.outlets))
    due = _due(plan, run_dir, options)
    if not due.units:
        return RetryResult(0, due.skipped, due.skipped, changes, None)
    with Interrupts() as interrupts:
        run = open_run(_request(executor, plan, run_dir, state.output, run_options))
        with closing_attempt(run) as parts:
            due = _due(plan, run.run_dir or "", options)  # looked at again now that nobody else can change it
            parts.cluster = executor.make_cluster(executor.limits())
            attempt = RetryAttempt(executor, _retry_plan(plan, run, due), run_options, run, parts.cluster)
            attempt.due, parts.attempt = due, attempt
            result = attempt.run(iter(()), interrupts)
    left = result.counts["quarantined"]
    return RetryResult(due.tried, left, due.skipped, changes, result)


# -- what may be tried again ------------------------------------------------------------------------------------------


def _report_of(run_dir: str, options: RetryOptions) -> dict[str, Any]:
    found = read_json(run_dir, "report.json", options.storage_options)
    return found if isinstance(found, dict) else {}


def _start_over(run_dir: str, options: RetryOptions) -> str:
    """Return what runs the whole pipeline again."""
    if options.recipe is None:
        return "pipeline.run(…, fresh=True)"
    return f"thresher run {shlex.quote(join(run_dir, 'recipe.yaml'))} --fresh"


def _refuse_other_stages(plan: Plan, run_dir: str, options: RetryOptions) -> None:
    if plan.source is None or plan.sink is None:
        raise UsageError(f"{run_dir}: a retry needs a pipeline with a reader and a writer, so that its output joins it")
    if plan.phase_writers:
        raise UsageError(
            f"{run_dir}: {plan.phase_writers[0].name} needs all documents, so records cannot be retried after it has "
            f"put the others in order. Mend what failed, and start over: {_start_over(run_dir, options)}"
        )
    facts = read_json(run_dir, "plan.json", options.storage_options)
    before = facts.get("stages") if isinstance(facts, dict) else None
    now = [stage.name for stage in plan.stages]
    if before != now:
        was = ", ".join(map(str, before)) if isinstance(before, list) else "unknown"
        raise OutputRefusedError(
            f"{run_dir}: a retry needs the stages of the run in their order; parameters and code may change. "
            f"They were: {was}. They are: {', '.join(now)}. Run the new pipeline to another output path"
        )


def _refuse_unfinished(run_dir: str, options: RetryOptions) -> None:
    units = read_units(run_dir, options.storage_options)
    done = {record.unit for record in read_commits(run_dir, options.storage_options)}
    left = [unit for unit in units if unit.id not in done]
    if left or not units:
        how_far = (
            f"{len(left):,} of {len(units):,} units are open" if units else "its input was never listed to the end"
        )
        raise UsageError(
            f"{run_dir}: the run is not finished ({how_far}). Go on with the same `thresher run` command, then retry"
        )


def _due(plan: Plan, run_dir: str, options: RetryOptions) -> _RetryWork:
    store = open_store(run_dir, options.storage_options)
    records = read_commits(run_dir, options.storage_options)
    latest = latest_retries(record.unit for record in records)
    names = {stage.name for stage in plan.stages}
    waiting: dict[str, _Retryable] = {}
    skipped = 0
    for waiting_unit, file in current_files(store, latest).items():
        found = _Retryable(file, {})
        for entry in read_entries(store, file):
            if may_be_retried(entry, names):
                key = (entry.stage, entry.error, entry.is_child)
                found.counts[key] = found.counts.get(key, 0) + entry.count
            else:
                skipped += entry.count
        if found.counts:
            waiting[waiting_unit] = found
    numbers = retries_due(latest, waiting)
    listed = {unit.id: unit for unit in read_units(run_dir, options.storage_options)}
    order = [record.unit for record in records if record.unit in numbers]
    due = _RetryWork({}, {}, {}, skipped)
    for unit_id in order:
        new_id = retry_id(unit_id, numbers[unit_id])
        unit, reads = _units_of(unit_id, listed)
        if not _SAFE_NAME.fullmatch(f"{unit.stem}-{new_id}"):  # run folders are untrusted, and this becomes a file name
            raise UsageError(
                f"{run_dir}: unit {unit_id!r} has a name that no run gives ({unit.stem!r}); nothing was done"
            )
        due.waiting[new_id] = waiting[unit_id]
        due.units[new_id] = msgspec.structs.replace(unit, id=new_id, stream=False)
        due.retried[new_id] = Retried(waiting[unit_id].file, reads, unit_id if reads.stream else "")
    return due


def _units_of(unit_id: str, listed: dict[str, Unit]) -> tuple[Unit, Unit]:
    """Return a committed unit, and the unit or stream to read its records from."""
    found = listed.get(unit_id)
    if found is not None:
        return found, found
    stream = listed.get(stream_id(unit_id))
    number = unit_id.rpartition("-")[2]
    if stream is None or not number.isdigit():
        raise UsageError(
            f"unit {unit_id} is in the ledger but not in the list of units, so its records cannot be found again; "
            "start over with `thresher run --fresh`"
        )
    return stream.block(int(number)), stream


# -- the attempt ------------------------------------------------------------------------------------------------------


def _request(executor: Executor, plan: Plan, run_dir: str, output: str | None, options: RunOptions) -> RunRequest:
    sink = plan.sink
    assert sink is not None, "checked before"
    return RunRequest(
        name=plan.name,
        run_dir=run_dir,
        sink_path=output,
        storage_options=sink.storage_options,
        extension=sink.extension(),
        suffixes=sink.suffixes(),
        dropped_to=options.dropped_to,
        fingerprint=fingerprint(plan.stages, __version__, plan.outlets),
        recipe=dict(options.recipe or {}),
        plan=plan_facts(plan),
        executor=executor.name,
        accept_changes=True,
        schema_mode="kept" if sink.settles_schema else "",
    )


def _retry_plan(plan: Plan, run: OpenRun, due: _RetryWork) -> Plan:
    """Return the plan with a reader that emits only the retried records; stages keep their indices."""
    assert isinstance(plan.source, SourceStage)
    assert run.run_dir is not None, "a retry has a run folder"
    source = RetrySource(plan.source, run.run_dir, run.target.storage_options, due.retried, plan.stages)
    # One task per call, because the tasks of a group may enter at different stages.
    ops = tuple(msgspec.structs.replace(op, batch_size=1) for op in plan.ops)
    names = [stage.name for stage in plan.stages]
    return dataclasses.replace(
        plan,
        stages=(source, *plan.stages[1:]),
        ops=ops,
        entries={"unit": plan.entries["unit"]},
        corrections={unit: correction(names, waiting.counts) for unit, waiting in due.waiting.items()},
    )


class RetryAttempt(RunAttempt):
    """An attempt whose units are quarantined records."""

    due: _RetryWork

    def run(self, listed: Iterator[Unit], interrupts: Interrupts) -> RunResult:
        """Run the attempt; workers correct the counts of their commits, and the recorder those without a worker."""
        self._recorder = cast(Any, _CorrectingRecorder(self._recorder, self._plan.corrections))
        return super().run(listed, interrupts)

    def _work_list(self, listed: Iterator[Unit]) -> WorkList:
        self.progress.message(f"retrying {counted(self.due.tried, 'record')} of {counted(len(self.due.units), 'unit')}")
        done = frozenset(self._run.committed)
        return WorkList(self._plan, iter(self.due.units.values()), done, lambda units, last: None)

    def _report(self, *arguments: Any, **named: Any) -> dict[str, Any]:
        report = super()._report(*arguments, **named)
        units = sum(1 for unit in self._run.committed if is_input_unit(unit))
        return {**report, "units_total": units, "units_resumed": units}

    def _failure(self) -> None:
        """Do nothing: the error budget was applied when the run ended."""

    def _finish(self, *arguments: Any) -> RunResult:
        self._recorder.sync()
        target = self._run.target
        assert target.run_dir is not None, "a retry has a run folder"
        archive_replaced(open_store(target.run_dir, target.storage_options), latest_retries(self._run.committed))
        return super()._finish(*arguments)


def correction(stage_names: list[str], counts: dict[tuple[str, str, bool], int]) -> Tally:
    """Return the counts to add to a retry, so that the sums over run and retry equal those of a run without failures.

    A record quarantined at stage k was counted as read, as in and out of each stage before k, as in at k, and as
    quarantined there. The retry counts it again from the reader on; a child enters at k and not before.
    """
    numbers = {name: number for number, name in enumerate(stage_names)}
    tally = Tally(stages={})
    for (stage, error, is_child), n in counts.items():
        k = numbers[stage]
        tally.read -= n
        before = tally.stage(0)
        before.in_docs -= n
        before.out_docs -= n if k else 0
        for number in range(1, 1 if is_child else k):
            passed = tally.stage(number)
            passed.in_docs -= n
            passed.out_docs -= n
        failed = tally.stage(k)
        failed.in_docs -= n if k else 0
        failed.quarantined -= n
        failed.errors[error] = failed.errors.get(error, 0) - n
    return tally


class _CorrectingRecorder:
    """A recorder that corrects the counts of commits without a worker."""

    def __init__(self, inner: Any, corrections: dict[str, Tally]) -> None:
        self._inner = inner
        self._corrections = corrections

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def commit_here(self, unit: Unit, epoch: int, state: UnitAccount) -> Any:
        """Commit a unit of which nothing was written."""
        state.tally.add(self._corrections[unit.id])
        return self._inner.commit_here(unit, epoch, state)
