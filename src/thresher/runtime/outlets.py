# SPDX-License-Identifier: Apache-2.0
"""Run a pipeline and then its outlets, each as a run of its own over what the units of the pipeline have sent there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import OutletOrigin, RunOptions
from thresher.core.files.filesystem import STANDARD_STREAM, join
from thresher.core.outlets import DROPPED, QUARANTINED, SCORES, Branch, running_branch, with_sent
from thresher.core.pipeline import Pipeline, RunResult, Stage
from thresher.core.planning.plan import Plan, writer_of
from thresher.core.registry import OUTLET_READER, lookup, resolve
from thresher.errors import PlanError
from thresher.ledger.folder.opening import refuse_unusable
from thresher.ledger.folder.outlets import OutletInput, belongs_to, mark_done, outlet_input, refuse_unlike
from thresher.ledger.folder.request import check_apart, run_folder
from thresher.runtime.run import run_plan
from thresher.runtime.run_request import run_request

if TYPE_CHECKING:
    from thresher.runtime.executor import Executor

_READERS = {DROPPED: "JsonlReader", QUARANTINED: "JsonlReader", SCORES: "ParquetReader"}
"""Readers of what the framework keeps, by outlet."""


def run_with_outlets(executor: Executor, pipeline: Pipeline, options: RunOptions) -> RunResult:
    """Run a pipeline and its outlets. All of them are planned and checked before the first one starts."""
    if SCORES in pipeline.outlets:
        options = replace(options, keep_scores=True)
    if pipeline.outlets and not options.branches:
        options = replace(options, branches=branches_of(pipeline))
    with executor.connected():
        plan = executor.plan(pipeline, options)
        main = _Folders(executor, plan, options) if pipeline.outlets else None
        if main is not None:
            _check(executor, pipeline, main)
        if options.origin is not None:
            options = replace(options, fresh=_is_outdated(executor, plan, options))
        result = run_plan(executor, plan, options)
    if options.branches:
        _end_branch(options.branches, result)
    if main is not None:
        for name, branch in pipeline.outlets.items():
            result.outlets[name] = _run_outlet(executor, name, branch, main)
    return result


def branches_of(pipeline: Pipeline, name: str = "", depth: int = 0) -> list[Branch]:
    """Return a pipeline and its outlets in the order in which they run."""
    found = [Branch(name or pipeline.name, depth)]
    for outlet, branch in pipeline.outlets.items():
        found += branches_of(branch, outlet, depth + 1)
    return found


def _end_branch(branches: list[Branch], result: RunResult) -> None:
    """Take in the result of the branch that has run."""
    sent = Counter({DROPPED: result.counts["dropped"], QUARANTINED: result.counts["quarantined"]})
    for stage in result.stages:
        sent.update(stage.get("sent", {}))
    branches[:] = with_sent(branches, sent)
    running = running_branch(branches)
    branches[running] = branches[running]._replace(written=result.counts["written"])


def _is_outdated(executor: Executor, plan: Plan, options: RunOptions) -> bool:
    """Return True if an earlier run of the same outlet has read something else."""
    assert options.origin is not None, "the run of an outlet"
    request = run_request(executor, plan, options)
    is_ours, digest = belongs_to(run_folder(request, ""), options.origin.outlet, request.options)
    return is_ours and digest != options.origin.digest


class _Folders:
    """The folders of a run that has outlets."""

    def __init__(self, executor: Executor, plan: Plan, options: RunOptions) -> None:
        sink = plan.sink
        if sink is None or sink.path == STANDARD_STREAM or not options.ledger:
            reason = "a pipeline with outlets needs a writer" if sink is None else "outlets need a run folder"
            fix = "add one" if sink is None else "write to files, with a ledger"
            raise PlanError(f"{plan.name}: {reason}, where what is sent to them is kept until they run; {fix}")
        self.options, self.source = options, plan.source
        self.storage_options: dict[str, Any] = dict(sink.storage_options or {})
        self.run_dir = run_folder(run_request(executor, plan, options), "")

    def origin(self, name: str) -> str:
        """Return what identifies an outlet."""
        return join(self.run_dir, name)

    def outlet_options(self, name: str, given: OutletInput | None = None) -> RunOptions:
        """Return the options of the run of an outlet."""
        origin = OutletOrigin(self.origin(name), "" if given is None else given.digest)
        run_dir = None if self.options.run_dir is None else f"{self.options.run_dir.rstrip('/')}-{name}"
        return replace(
            self.options,
            initial_tasks=None,
            run_dir=run_dir,
            fresh=False,
            keep_scores=False,
            known_scores=None,
            dropped_to=None,
            recipe=None,
            origin=origin,
        )


def _check(executor: Executor, pipeline: Pipeline, main: _Folders) -> None:
    """Plan all outlets and check their folders, before anything is created."""
    outputs = {"output": _output(pipeline), "folder for dropped records": main.options.dropped_to}
    for name, branch in pipeline.outlets.items():
        options = main.outlet_options(name)
        plan = plan_outlet(executor, name, branch, options)
        refuse_unusable(run_request(executor, plan, options), main.origin(name))
        outputs[f"output of the outlet {name}"] = _output(branch)
        if branch.outlets:
            _check(executor, branch, _Folders(executor, plan, options))
    check_apart(outputs)


def plan_outlet(executor: Executor, name: str, branch: Pipeline, options: RunOptions | None = None) -> Plan:
    """Return the plan of an outlet as far as it is known before anything was sent there."""
    if writer_of(branch.stages) is None:
        raise PlanError(f"the outlet {name} has no writer; add one as its last stage")
    return executor.plan(with_reader(branch, resolve(OUTLET_READER)(name)), options)


def _output(pipeline: Pipeline) -> str:
    sink = writer_of(pipeline.stages)
    assert sink is not None, "checked before"
    return sink.path


def _run_outlet(executor: Executor, name: str, branch: Pipeline, main: _Folders) -> RunResult:
    given = outlet_input(main.run_dir, name, main.storage_options)
    options = main.outlet_options(name, given)
    branch = with_reader(branch, _reader(name, given, main))
    sink = writer_of(branch.stages)
    assert sink is not None, "checked before"
    refuse_unlike(main.run_dir, name, given, main.storage_options, sink.storage_options or {})
    result = run_with_outlets(executor, branch, options)
    assert result.run_dir is not None, "an outlet has a run folder"
    mark_done(main.run_dir, name, given, result.run_dir, main.storage_options)
    return result


def with_reader(branch: Pipeline, reader: Stage) -> Pipeline:
    """Return the pipeline of an outlet with a reader as its first stage."""
    copy = branch.snapshot()
    copy.stages.insert(0, reader)
    return copy


def _reader(name: str, given: OutletInput, main: _Folders) -> Stage:
    """Return the reader of what a run has for an outlet."""
    options = main.storage_options or None
    reader: Stage
    if name in _READERS and given.files:
        reader = lookup(_READERS[name]).load()(given.paths(), storage_options=options)
    else:
        columns = None if main.source is None else main.source.listed_schema()
        reader = resolve(OUTLET_READER)(name, given.files, options).with_schema(columns)
    return reader
