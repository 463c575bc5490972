# SPDX-License-Identifier: Apache-2.0
"""`thresher retry`: process quarantined records again and add their output to the run's."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import add_worker_arguments, executor_options
from thresher.cli.commands.run import put_trusted_on_path
from thresher.cli.printing import print_json, print_note, print_result, result_width, wants_color
from thresher.cli.saved_recipe import (
    add_run_argument,
    add_saved_recipe_arguments,
    load_saved_recipe,
    refuse_outlet,
    run_folder,
)
from thresher.core.arguments.sizes import counted
from thresher.runtime.processes.launch import launch_early

if TYPE_CHECKING:
    from thresher.inspect.retry import RetryResult

DESCRIPTION = (
    "Process quarantined records again, after the code, the recipe or the machine was fixed. Records that succeed are "
    "written beside the other output files and removed from quarantine."
)
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_run_argument(parser)
    add_saved_recipe_arguments(parser)
    add_worker_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def execute(arguments: argparse.Namespace) -> int:
    """Process the quarantined records and print the result."""
    from thresher.inspect.retry import RetryOptions, retry_run

    put_trusted_on_path(arguments)
    run_dir, options = run_folder(arguments)
    again = "What it read is removed, so mend what failed and run the pipeline of {run} again with --fresh"
    refuse_outlet(run_dir, options, again)
    if arguments.executor in (None, "local"):
        launch_early()
    recipe = load_saved_recipe(arguments, run_dir, options)
    executor = recipe.make_executor(executor_options(arguments))
    result = retry_run(
        executor,
        recipe.pipeline(),
        run_dir,
        RetryOptions(
            storage_options=options,
            progress="none" if arguments.quiet else "auto",
            recipe=recipe.resolved,
        ),
    )
    if arguments.json:
        print_json(_as_json(result, run_dir))
    elif not arguments.quiet:
        _print(result)
    return 0


def _as_json(result: RetryResult, run_dir: str) -> dict[str, Any]:
    return {
        "run_dir": run_dir,
        "status": "nothing-to-do" if result.run is None else "finished",
        "tried": result.tried,
        "quarantined": result.left,
        "cannot_be_tried": result.skipped,
        "changed": result.changes,
        "report": None if result.run is None else result.run.to_dict(),
    }


def _print(result: RetryResult) -> None:
    if result.changes:
        print_note(f"changed since the run: {'; '.join(result.changes)}")
    if result.skipped:
        print_note(
            f"not retried: {counted(result.skipped, 'entry', 'entries')} in quarantine. Whole tasks, records that were "
            "not kept and the rest of damaged files cannot be retried; replace damaged files and run with --fresh"
        )
    if result.run is None:
        print_result("nothing to retry: no record in quarantine can be retried")
        return
    from thresher.observe.summary import summary_text

    print_result(summary_text(result.run.to_dict(), wants_color(sys.stdout), result_width()))
    print_result(
        f"retried {counted(result.tried, 'record')}; {result.left:,} in quarantine now"
        + ("" if not result.left else f": `thresher quarantine {result.run.run_dir}` shows them")
    )
