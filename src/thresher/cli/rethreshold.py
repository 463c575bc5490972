# SPDX-License-Identifier: Apache-2.0
"""`thresher rethreshold`: the output of a run with other thresholds, without computing its scores again."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import add_executor_arguments, executor_options, read_settings
from thresher.cli.printing import print_json, print_note, print_result, print_warning, wants_color
from thresher.cli.run import put_trusted_on_path
from thresher.errors import RecipeError, UsageError
from thresher.runtime.launch import launch_early

if TYPE_CHECKING:
    from thresher.core.plan import Plan
    from thresher.core.recipe import Recipe
    from thresher.core.stage import ProcessingStage

DESCRIPTION = (
    "Write what a run would have written with other thresholds. Scores come from RUN, which kept them (--keep-scores); "
    "only those that it lacks are computed. The output is that of a full run, byte for byte."
)
PLANNED_FLAGS = ()
_HIDDEN = "***"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("run", metavar="RUN", help="a run folder, an output folder, or a run id")
    parser.add_argument(
        "settings", metavar="STAGE.PARAM=VALUE", nargs="*", help="a parameter of a stage that judges; read as YAML"
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="where to write; not the output of RUN")
    parser.add_argument("--dropped-to", metavar="DIR", help="keep dropped records there, with their reasons")
    parser.add_argument("--keep-scores", action="store_true", help="keep the scores in the new run folder too")
    parser.add_argument("--fresh", action="store_true", help="start over: replace what an earlier command wrote")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    add_executor_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Find the run, set the thresholds, run with its scores, print what happened."""
    from thresher.core.options import ErrorBudget, RunOptions
    from thresher.core.scores import ScoreSource

    put_trusted_on_path(arguments)
    if arguments.executor in (None, "local"):
        launch_early()
    run_dir, recipe = _recipe(arguments)
    executor = recipe.make_executor(executor_options(arguments), print_warning if arguments.allow_unsupported else None)
    sink: Any = recipe.stages[-1]
    options = RunOptions(
        fresh=arguments.fresh,
        max_errors=ErrorBudget.parse(recipe.options.get("max_errors", "5%")),
        keep_scores=arguments.keep_scores or bool(recipe.options.get("keep_scores")),
        known_scores=ScoreSource(run_dir, dict(sink.storage_options or {})),
        dropped_to=arguments.dropped_to,
        progress="none" if arguments.quiet else "auto",
        recipe=recipe.resolved,
    )
    plan = executor.plan(recipe.pipeline(), options)
    _refuse_order(plan, arguments.settings)
    _refuse_changed_input(plan, run_dir)
    if recipe.options.get("dropped_to") and arguments.dropped_to is None and not arguments.quiet:
        print_note("the run kept its dropped records; add --dropped-to DIR to keep those of this one too")
    report = executor.execute(recipe.pipeline(), options).to_dict()
    if arguments.json:
        print_json(report)
    elif not arguments.quiet:
        from thresher.observe.report import summary_text

        print_result(f"{summary_text(report, wants_color(sys.stdout))}\n{_scores_line(report)}")
    return 0


def _scores_line(report: dict[str, Any]) -> str:
    from thresher.runtime.score_keeper import MISSING, REUSED

    counts = [stage.get("user_counts") or {} for stage in report["stages"]]
    reused, missing = (sum(count.get(name, 0) for count in counts) for name in (REUSED, MISSING))
    return f"scores: {reused:,} taken from the run, {missing:,} not there"


# -- the recipe -------------------------------------------------------------------------------------------------------


def _recipe(arguments: argparse.Namespace) -> tuple[str, Recipe]:
    """The run folder, and the recipe of its run with the new thresholds and the new output."""
    from thresher.core.recipe import MAX_BYTES, load_recipe
    from thresher.ledger.find import find_run
    from thresher.ledger.store import open_store

    run_dir = find_run(arguments.run)
    store = open_store(run_dir)
    content = store.read("recipe.yaml") or b""
    if len(content) > MAX_BYTES:
        raise UsageError(f"{run_dir}: recipe.yaml is larger than {MAX_BYTES:,} bytes, so not a recipe")
    if not content.strip() or content.strip() == b"{}":
        raise UsageError(
            f"{run_dir}: this run was not started from a recipe, so its stages are not known here; "
            "run its script again with the new thresholds"
        )
    if not store.names("scores"):
        raise UsageError(
            f"{run_dir}: this run kept no scores. Run it with --keep-scores (keep_scores=True) once, to another output "
            "path or with --fresh; after that rethreshold can use them"
        )
    settings = read_settings(arguments.settings)
    text = content.decode("utf-8", "replace")
    trust = frozenset(arguments.trust)
    before = load_recipe(text, _only_secrets(settings), trust)
    _refuse_settings(settings, before)
    writer = before.stages[-1]
    changed = load_recipe(text, {**settings, f"{writer.name}.path": arguments.output}, trust)
    _refuse_hidden(changed)
    return run_dir, changed


def _only_secrets(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if ".storage_options" in key}


def _stage_of(key: str, stages: Any) -> ProcessingStage[Any, Any] | None:
    """The stage that `Stage.parameter` names; a name may hold dots itself, so the longest that fits."""
    fitting = [stage for stage in stages if key.startswith(f"{stage.name}.")]
    return max(fitting, key=lambda stage: len(stage.name), default=None)


def _refuse_settings(settings: dict[str, Any], recipe: Recipe) -> None:
    """Only what judges may be changed: behind anything else every score would be another."""
    from thresher.core.scores import JudgingStage
    from thresher.core.stage import SinkStage

    judging = [s.name for s in recipe.stages if isinstance(s, JudgingStage) and s.only_judges]
    legal = f"Stages that judge here: {', '.join(judging) or 'none'}"
    if not settings:
        raise UsageError(
            f"nothing is changed; give STAGE.PARAM=VALUE, for example WordCountFilter.min_words=80. {legal}"
        )
    for key in settings:
        if key.startswith(("executor.", "options.")) or ".storage_options" in key:
            continue
        stage = _stage_of(key, recipe.stages)
        if "." not in key:
            raise UsageError(f"{key}: params are filled in already; write STAGE.PARAM=VALUE. {legal}")
        if stage is not None and stage.name not in judging:
            raise UsageError(
                f"{key}: {stage.name} does more than judge, so the texts and the scores behind it may change; "
                f"use `thresher run` with the changed recipe. {legal}"
            )
    if not isinstance(recipe.stages[-1], SinkStage):
        raise UsageError("the run has no writer at its end, so there is no output to write again")


def _refuse_hidden(recipe: Recipe) -> None:
    """Secrets are not in a run folder."""
    for stage in recipe.stages:
        hidden = [key for key, value in (getattr(stage, "storage_options", None) or {}).items() if value == _HIDDEN]
        if hidden:
            raise RecipeError(
                f"{stage.name}.storage_options.{hidden[0]}: secrets are not kept in the run folder; "
                f"add {stage.name}.storage_options.{hidden[0]}=VALUE"
            )


# -- what would make the output another one ---------------------------------------------------------------------------


def _refuse_order(plan: Plan, settings: list[str]) -> None:
    """Behind a changed rule other records arrive: a stage that looks at several at a time finds something else."""
    from thresher.core.scores import JudgingStage

    for stage in plan.stages:
        if not stage.deterministic:
            raise UsageError(
                f"{stage.name} is not deterministic (deterministic=False): the output of a full run cannot be "
                "told from scores. Use `thresher run` with the changed recipe"
            )
    named = [_stage_of(setting, plan.stages) for setting in settings]
    changed = [number for number, stage in enumerate(plan.stages) if stage in named and isinstance(stage, JudgingStage)]
    first = min(changed, default=0)
    for stage in plan.stages[first:]:
        if not stage.row_wise:
            raise UsageError(
                f"{stage.name} is not row-wise (row_wise=False) and follows {plan.stages[first].name}: what it does to "
                "a record depends on the others, which change with the threshold. Use `thresher run` with the changed "
                "recipe"
            )


def _refuse_changed_input(plan: Plan, run_dir: str) -> None:
    """Scores belong to records by their place in the input."""
    from thresher.ledger.checks import changed_inputs
    from thresher.ledger.find import read_units

    previous = read_units(run_dir)
    if not previous:
        raise UsageError(
            f"{run_dir}: the run did not get to the end of its list of input files; go on with it first, with the same "
            "`thresher run` command"
        )
    assert plan.source is not None, "a run that kept scores has a reader"
    change = changed_inputs(previous, plan.source.list_units())
    if change is not None:
        raise UsageError(
            f"{run_dir}: the input is not what it was when its scores were kept ({change}). Use `thresher run` with "
            "the changed recipe"
        )
