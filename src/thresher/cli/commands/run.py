# SPDX-License-Identifier: Apache-2.0
"""`thresher run`: run a recipe to its end."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import Any

from thresher.cli.arguments import add_recipe_arguments, executor_options, read_settings, whole_number
from thresher.cli.printing import print_json, print_result, print_warning, result_width, wants_color
from thresher.errors import UsageError
from thresher.runtime.processes.launch import launch_early

DESCRIPTION = "Run a recipe. The same command resumes an interrupted run."
PLANNED_FLAGS = ()
MOST_READ = 1_000_000
"""Bytes of a recipe that are searched for names of another curator."""
_NEMO_CURATOR = re.compile(rb"_target_[\"']?\s*:\s*[\"']?nemo_curator\.")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_recipe_arguments(parser)
    parser.add_argument("--run-dir", metavar="DIR", help="where to keep the run folder")
    parser.add_argument("--fresh", action="store_true", help="start over: replace what an earlier run wrote")
    parser.add_argument("--accept-changes", action="store_true", help="continue although recipe or input changed")
    parser.add_argument("--max-errors", metavar="N|P%", help="stop when more records fail than this (default 5%%)")
    parser.add_argument(
        "--keep-scores", action="store_true", default=None, help="keep every score, for `thresher rethreshold`"
    )
    parser.add_argument("--dropped-to", metavar="DIR", help="keep dropped records there, with their reasons")
    parser.add_argument("--no-ledger", action="store_true", help="keep no run folder; the run cannot be resumed")
    parser.add_argument(
        "--dashboard", action="store_true", help="show the run in the browser of this machine meanwhile"
    )
    parser.add_argument("--otel", action="store_true", help="send a trace at the end, to $OTEL_EXPORTER_OTLP_ENDPOINT")
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="json: one JSON object a line on stderr"
    )
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument(
        "--metrics-port", metavar="P", type=whole_number, help="serve metrics for Prometheus there; 0 takes a free port"
    )
    parser.add_argument("--metrics-host", metavar="HOST", help="listen on this address (default 127.0.0.1)")
    parser.add_argument(
        "--metrics-linger",
        metavar="S",
        type=float,
        help="wait up to S seconds at the end until the last figures are fetched (default 0)",
    )


def execute(arguments: argparse.Namespace) -> int:
    """Load the recipe, run it and print the result."""
    metrics = metrics_options(arguments)  # a mistake there is told before anything starts
    put_trusted_on_path(arguments)
    if arguments.executor in (None, "local"):
        # Import what workers need while the recipe is read; a recipe without workers wastes this.
        launch_early()
    recipe = load(arguments)
    from thresher.core.files.filesystem import STANDARD_STREAM
    from thresher.runtime.processes.zygote import preload_early

    preload_early([*recipe.stages, *(stage for stages in recipe.outlets.values() for stage in stages)])
    executor = recipe.make_executor(executor_options(arguments), print_warning if arguments.allow_unsupported else None)
    options: dict[str, Any] = {
        **recipe.options,
        "run_dir": arguments.run_dir or recipe.options.get("run_dir"),
        "fresh": arguments.fresh,
        "accept_changes": arguments.accept_changes,
        "ledger": not arguments.no_ledger,
        "dashboard": arguments.dashboard,
        "otel": arguments.otel,
        "progress": "none" if arguments.quiet else "json" if arguments.log_format == "json" else "auto",
        "recipe": recipe.resolved or None,
        **metrics,
    }
    options |= {
        key: value
        for key in ("max_errors", "dropped_to", "keep_scores")
        if (value := getattr(arguments, key)) is not None
    }
    report = recipe.pipeline().run(executor, **options).to_dict()
    # Standard output may have been the output of the run.
    stream = sys.stderr if report["output_paths"] == [STANDARD_STREAM] else sys.stdout
    if arguments.json:
        print_json(report, stream)
    elif not arguments.quiet:
        from thresher.observe.summary import summary_text

        print_result(summary_text(report, wants_color(stream), result_width()), stream)
    return 0


def metrics_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options of the metrics endpoint that the flags give."""
    is_about_port = arguments.metrics_host is not None or arguments.metrics_linger is not None
    if is_about_port and arguments.metrics_port is None:
        raise UsageError("--metrics-host and --metrics-linger are about --metrics-port; give that, too (0: a free one)")
    if arguments.metrics_port is None:
        return {}
    from thresher.core.arguments.options import MetricsOptions

    host = MetricsOptions.host if arguments.metrics_host is None else arguments.metrics_host
    checked = MetricsOptions(arguments.metrics_port, host, arguments.metrics_linger or 0.0)
    return {"metrics_port": checked.port, "metrics_host": checked.host, "metrics_linger_s": checked.linger_s}


def put_trusted_on_path(arguments: argparse.Namespace) -> None:
    """Add the current folder to the module path if a module is trusted; workers get the same path."""
    if arguments.trust and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def load(arguments: argparse.Namespace) -> Any:
    """Load the recipe that the arguments name, with their settings; a configuration of NeMo Curator is one, too."""
    from thresher.core.recipes.recipe import load_recipe

    settings = read_settings(arguments.settings)
    if names_nemo_curator(arguments.recipe):
        from thresher.compat.nemo.hydra import is_hydra, load_hydra

        if is_hydra(arguments.recipe):
            return load_hydra(arguments.recipe, settings, frozenset(arguments.trust))
    return load_recipe(arguments.recipe, settings, frozenset(arguments.trust))


def names_nemo_curator(path: str) -> bool:
    """Return True if a file has classes of NeMo Curator, as its configurations have."""
    try:
        with open(path, "rb") as file:
            return _NEMO_CURATOR.search(file.read(MOST_READ)) is not None
    except OSError:
        return False
