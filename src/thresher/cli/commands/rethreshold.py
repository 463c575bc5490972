# SPDX-License-Identifier: Apache-2.0
"""`thresher rethreshold`: write the output of a run with other thresholds, without computing its scores again."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import add_executor_arguments, executor_options, read_settings
from thresher.cli.commands.run import put_trusted_on_path
from thresher.cli.printing import print_json, print_note, print_result, print_warning, result_width, wants_color
from thresher.cli.saved_recipe import fills, hidden_parameters, read_saved_recipe, refuse_hidden
from thresher.errors import UsageError
from thresher.runtime.processes.launch import launch_early

if TYPE_CHECKING:
    from thresher.core.planning.plan import Plan
    from thresher.core.recipes.recipe import Recipe
    from thresher.core.stage import ProcessingStage

DESCRIPTION = (
    "Write what a run would have written with other thresholds. Scores are those that RUN saved (--keep-scores); "
    "only missing ones are computed. The output is that of a full run, byte for byte."
)
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("run", metavar="RUN", help="a run folder, an output folder, or a run id")
    parser.add_argument(
        "settings", metavar="STAGE.PARAM=VALUE", nargs="*", help="a threshold of a stage; the value is read as YAML"
    )
    parser.add_argument("--output", metavar="DIR", required=True, help="where to write; not the output of RUN")
    parser.add_argument("--dropped-to", metavar="DIR", help="keep dropped records there, with their reasons")
    parser.add_argument("--keep-scores", action="store_true", help="keep the scores in the new run folder too")
    parser.add_argument("--fresh", action="store_true", help="start over: replace what an earlier command wrote")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    add_executor_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run the recipe again with the saved scores and the new thresholds, and print the result."""
    from thresher.core.arguments.options import ErrorBudget, RunOptions
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
        from thresher.observe.summary import summary_text

        print_result(f"{summary_text(report, wants_color(sys.stdout), result_width())}\n{_scores_line(report)}")
    return 0


def _scores_line(report: dict[str, Any]) -> str:
    from thresher.runtime.worker.score_keeper import MISSING, REUSED

    counts = [stage.get("user_counts") or {} for stage in report["stages"]]
    reused, missing = (sum(count.get(name, 0) for count in counts) for name in (REUSED, MISSING))
    return f"scores: {reused:,} taken from the run, {missing:,} not there"


# -- the recipe -------------------------------------------------------------------------------------------------------


def _recipe(arguments: argparse.Namespace) -> tuple[str, Recipe]:
    """Return the run folder, and the recipe of its run with the new thresholds and the new output."""
    from thresher.core.recipes.recipe import load_recipe
    from thresher.ledger.folder.find import find_run
    from thresher.ledger.folder.request import refuse_own_output
    from thresher.ledger.stores.store import open_store

    run_dir = find_run(arguments.run)
    kept = read_saved_recipe(run_dir, {}, "Run its script again with the new thresholds")
    if not open_store(run_dir).names("scores"):
        raise UsageError(
            f"{run_dir}: this run kept no scores. Run it with --keep-scores (keep_scores=True) once, to another output "
            "path or with --fresh; after that rethreshold can use them"
        )
    settings = read_settings(arguments.settings)
    trust = frozenset(arguments.trust)
    hidden = hidden_parameters(kept)
    again = {key: value for key, value in settings.items() if any(fills(key, place) for place in hidden)}
    before = load_recipe(kept, again, trust)
    _refuse_settings({key: value for key, value in settings.items() if key not in again}, before)
    output = f"{before.stages[-1].name}.path"
    refuse_hidden(run_dir, hidden, {**settings, output: arguments.output})
    sink: Any = before.stages[-1]
    refuse_own_output(arguments.output, run_dir, sink.path)
    return run_dir, load_recipe(kept, {**settings, output: arguments.output}, trust)


def _stage_of(key: str, stages: Any) -> ProcessingStage[Any, Any] | None:
    """Return the stage that `Stage.parameter` names: the longest match, since a name may contain dots."""
    fitting = [stage for stage in stages if key.startswith(f"{stage.name}.")]
    return max(fitting, key=lambda stage: len(stage.name), default=None)


def _refuse_settings(settings: dict[str, Any], recipe: Recipe) -> None:
    """Refuse settings other than thresholds: any other change would change the scores."""
    from thresher.core.planning.plan import writer_of
    from thresher.core.scores import JudgingStage

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
    if writer_of(recipe.stages) is None:
        raise UsageError("the run has no writer at its end, so there is no output to write again")


# -- what would make the output another one ---------------------------------------------------------------------------


def _refuse_order(plan: Plan, settings: list[str]) -> None:
    """Refuse to change a rule before a stage that looks at several records at a time: it would get other records."""
    from thresher.core.scores import JudgingStage

    for stage in plan.stages:
        if not stage.deterministic:
            raise UsageError(
                f"{stage.name} is not deterministic (deterministic=False): the output of a full run cannot be "
                "derived from scores. Use `thresher run` with the changed recipe"
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
    """Refuse changed input: scores belong to records by their position in the input."""
    from thresher.ledger.folder.find import read_units
    from thresher.ledger.folder.request import changed_inputs

    previous = read_units(run_dir)
    if not previous:
        raise UsageError(
            f"{run_dir}: the run did not reach the end of its list of input files; resume it first, with the same "
            "`thresher run` command"
        )
    assert plan.source is not None, "a run that kept scores has a reader"
    change = changed_inputs(previous, plan.source.list_units())
    if change is not None:
        raise UsageError(
            f"{run_dir}: the input is not what it was when its scores were kept ({change}). Use `thresher run` with "
            "the changed recipe"
        )
