# SPDX-License-Identifier: Apache-2.0
"""What the ledger must know to open the run folder of a plan: paths, options, and the fingerprint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.arguments.options import RunOptions
from thresher.core.outlets import DROPPED, INPUT, ORIGIN
from thresher.core.phases import copying_phases, last_readers
from thresher.core.planning.fingerprint import fingerprint, tasks_digest
from thresher.core.planning.plan import Plan
from thresher.core.scores import column_name, rules_of
from thresher.core.task import EmptyTask, Task
from thresher.ledger.folder.request import RunRequest
from thresher.version import __version__

if TYPE_CHECKING:
    from thresher.runtime.executor import Executor


def run_request(executor: Executor, plan: Plan, options: RunOptions) -> RunRequest:
    """Return what the ledger needs to open the run."""
    sink = plan.sink
    return RunRequest(
        name=plan.name,
        run_dir=options.run_dir,
        sink_path=sink.path if sink is not None else None,
        mode=sink.mode if sink is not None else "error",
        storage_options=sink.storage_options if sink is not None else None,
        extension=sink.extension() if sink is not None else "",
        suffixes=sink.suffixes() if sink is not None else ("",),
        dropped_to=options.dropped_to,
        fingerprint=fingerprint(plan.stages, __version__, plan.outlets)
        | _tasks_part(plan, options)
        | _origin_parts(options),
        recipe=dict(options.recipe or {}),
        plan=plan_facts(plan),
        executor=executor.name,
        fresh=options.fresh,
        skip_done=options.skip_done,
        keep_scores=options.keep_scores,
        accept_changes=options.accept_changes,
        ledger=options.ledger,
        target_file_size=sink.target_file_size if sink is not None else None,
        schema_mode=_schema_mode(plan),
        phase_extensions=tuple(writer.extension() for writer in plan.phase_writers),
        phase_readers=last_readers(plan.stages),
        copying_phases=copying_phases(plan.stages),
        outlets=(*plan.outlets, *([DROPPED] if plan.settings.keep_dropped and options.dropped_to is None else [])),
    )


def initial_tasks(options: RunOptions) -> Sequence[Task]:
    """Return the tasks that the first stage gets if there is no reader."""
    return options.initial_tasks if options.initial_tasks is not None else [EmptyTask()]


def _tasks_part(plan: Plan, options: RunOptions) -> dict[str, str]:
    """Return the part of the fingerprint that covers the initial tasks; empty if the run cannot be resumed anyway."""
    resumes = plan.sink is not None or options.skip_done
    if plan.source is not None or not resumes or not options.ledger:
        return {}
    return {"initial_tasks": tasks_digest(initial_tasks(options), plan.tasks_per_unit)}


def _origin_parts(options: RunOptions) -> dict[str, str]:
    """Return the parts of the fingerprint that cover the outlet that the run is made for."""
    return {} if options.origin is None else {ORIGIN: options.origin.outlet, INPUT: options.origin.digest}


def _schema_mode(plan: Plan) -> str:
    """Return how the schema of the output files is decided."""
    if plan.sink is None or not plan.sink.settles_schema:
        return ""
    return "listed" if plan.source is not None and plan.source.lists_schema else "first"


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Return the content of plan.json."""
    return {
        "name": plan.name,
        "stages": [stage.name for stage in plan.stages],
        "intermediate": [stage.name for stage in plan.stages if getattr(stage, "intermediate", False)],
        "groups": plan.groups(),
        "entries": plan.entries,
        "ops": [
            {
                "index": op.index,
                "steps": [[step.kind, step.stage] for step in op.steps],
                "next": op.next,
                "own_workers": op.dedicated or op.workers is not None,
                "on_device": op.resources.requires_gpu,
            }
            for op in plan.ops
        ],
        "rules": [
            {"column": column_name(stage.name, rule.rule), "bounds": rule.bounds}
            for stage in plan.stages
            for rule in rules_of(stage)
        ],
    }
