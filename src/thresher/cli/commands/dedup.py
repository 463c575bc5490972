# SPDX-License-Identifier: Apache-2.0
"""`thresher dedup`: remove duplicates from a data set."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from thresher.cli.arguments import add_executor_arguments, executor_options, read_settings
from thresher.cli.printing import (
    print_json,
    print_note,
    print_result,
    print_warning,
    result_width,
    shown,
    table,
    wants_color,
)
from thresher.cli.saved_recipe import add_storage_argument, run_folder
from thresher.core.unit import file12
from thresher.errors import UsageError, nearest
from thresher.runtime.processes.launch import launch_early

DESCRIPTION = "Remove duplicates. The same command resumes an interrupted run."
PLANNED_FLAGS = ()

METHODS: dict[str, str] = {
    "exact": "ExactDeduplicationWorkflow",
    "fuzzy": "FuzzyDeduplicationWorkflow",
    "bloom": "BloomDeduplicationWorkflow",
    "lines": "LineDeduplicationWorkflow",
    "semantic": "SemanticDeduplicationWorkflow",
    "text-semantic": "TextSemanticDeduplicationWorkflow",
    "substring": "SubstringDeduplicationWorkflow",
    "index": "DeduplicationIndexWorkflow",
}
"""Methods, and the workflow in `thresher.workflows` that each runs."""
_MOST_FILES, _MOST_COMPARED, _TEXT_WIDTH = 20, 3, 300


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("method", metavar="METHOD", help=f"{', '.join(METHODS)}; or show, curve")
    parser.add_argument(
        "paths",
        metavar="INPUT OUTPUT key=value",
        nargs="*",
        help="input, output and arguments of the workflow; for show: RUN, and the ids of clusters; for curve: "
        "arguments such as threshold=0.8",
    )
    add_executor_arguments(parser)
    add_storage_argument(parser)
    parser.add_argument("--run-dir", metavar="DIR", help="where to keep the run folder")
    parser.add_argument("--fresh", action="store_true", help="start over: replace what an earlier run wrote")
    parser.add_argument("--max-errors", metavar="N|P%", help="stop when more records fail than this (default 5%%)")
    parser.add_argument("--dropped-to", metavar="DIR", help="keep duplicates there, with the document that was kept")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def execute(arguments: argparse.Namespace) -> int:
    """Run a method."""
    method = arguments.method
    others = {"show": _show, "curve": _curve}
    if method in others:
        return others[method](arguments)
    if method not in METHODS:
        known = [*METHODS, *others]
        raise UsageError(f"{method!r} is not a method.{nearest(method, known)} Methods: {', '.join(known)}")
    return _run(method, arguments)


def _run(method: str, arguments: argparse.Namespace) -> int:
    """Run the workflow of a method and print the result."""
    if arguments.executor in (None, "local"):
        launch_early()  # imports what workers need while the workflow is made
    from thresher.core.recipes.executors import make_executor
    from thresher.runtime.processes.zygote import preload_early

    workflow = _workflow(method, arguments.paths, read_settings(arguments.storage_option))
    preload_early(workflow.pipeline().stages)
    given = {"name": "local", **executor_options(arguments)}
    executor = make_executor(given.pop("name"), given, print_warning if arguments.allow_unsupported else None)
    options: dict[str, Any] = {"fresh": arguments.fresh, "progress": "none" if arguments.quiet else "auto"}
    options |= {
        key: value for key in ("run_dir", "max_errors", "dropped_to") if (value := getattr(arguments, key)) is not None
    }
    if not arguments.quiet and getattr(workflow, "threshold", None) is not None:
        print_note(_curve_of({"threshold": workflow.threshold}))
    report = workflow.run(executor, **options).run.to_dict()
    if arguments.json:
        print_json(report)
    elif not arguments.quiet:
        from thresher.observe.summary import summary_text

        print_result(summary_text(report, wants_color(sys.stdout), result_width()))
    return 0


def _workflow(method: str, given: list[str], storage_options: dict[str, Any]) -> Any:
    """Return the workflow of a method with its arguments."""
    import thresher.workflows
    from thresher.core.arguments.parameters import find_problems

    if len(given) < 2:
        raise UsageError(f"thresher dedup {method} needs INPUT and OUTPUT; `thresher dedup --help` shows the usage")
    workflow = getattr(thresher.workflows, METHODS[method])
    values = read_settings(given[2:]) | {"input_path": given[0], "output_path": given[1]}
    values |= {"storage_options": storage_options} if storage_options else {}
    if problems := find_problems(workflow, values):
        raise UsageError("; ".join(map(str, problems)))
    return workflow(**values)


# -- the other uses ---------------------------------------------------------------------------------------------------


def _curve(arguments: argparse.Namespace) -> int:
    """Draw which share of similar documents is found."""
    print_result(_curve_of(read_settings(arguments.paths)))
    return 0


def _curve_of(settings: dict[str, Any]) -> str:
    from thresher.core.arguments.parameters import find_problems
    from thresher.stages.dedup.banding import curve_text
    from thresher.stages.dedup.fuzzy import FuzzyDeduplication

    if problems := find_problems(FuzzyDeduplication, settings):
        raise UsageError("; ".join(map(str, problems)))
    return curve_text(FuzzyDeduplication(**settings).banding)


def _show(arguments: argparse.Namespace) -> int:
    """Print the clusters of a run, with the differences between their documents."""
    from thresher.inspect.duplicates import read_duplicates
    from thresher.ledger.folder.find import read_units

    ids = [text for text in arguments.paths if "=" not in text]
    if not ids:
        raise UsageError("thresher dedup show needs RUN; `thresher dedup --help` shows the usage")
    arguments.run = ids[0]
    settings = read_settings([text for text in arguments.paths if "=" in text])
    field = str(settings.pop("text_field", "text"))
    if settings:
        raise UsageError(f"thresher dedup show has no argument {next(iter(settings))!r}; it has text_field")
    run_dir, options = run_folder(arguments)
    found = read_duplicates(run_dir, options, ids[1:])
    units = list(read_units(run_dir, options))
    files = {file12(piece.relative): piece.relative for unit in units for piece in unit.pieces}
    by_files = {
        (files.get(one, one), files.get(other, other)): n
        for (one, other), n in sorted(found.by_files.items(), key=lambda pair: -pair[1])
    }
    if arguments.json:
        rows = [{"file": one, "kept_in": other, "duplicates": n} for (one, other), n in by_files.items()]
        listed = {cluster: [vars(one) for one in some] for cluster, some in found.members.items()}
        print_json({"sizes": found.sizes, "files": rows, "largest": found.largest, "members": listed})
        return 0
    lines = ["clusters by size", *table((f"{size:,}", f"{n:,}") for size, n in found.sizes.items())]
    lines += ["", "duplicates by file, and the file of the document that was kept"]
    lines += table((f"{n:,}", one, other) for (one, other), n in list(by_files.items())[:_MOST_FILES])
    for cluster, members in found.members.items():
        lines += ["", *_cluster_lines(cluster, found.largest[cluster], members, units, field)]
    print_result("\n".join(lines))
    return 0


def _cluster_lines(cluster: str, size: int, members: Sequence[Any], units: Sequence[Any], field: str) -> list[str]:
    """Return a cluster as text: the document that was kept, and how some others differ from it."""
    from thresher.inspect.duplicates import differences, text_of

    kept, *others = members
    here = {file12(piece.relative) for unit in units for piece in unit.pieces}
    lines = [f"cluster {cluster}: {size:,} documents"]
    if kept.id.partition(":")[0] not in here:
        return [*lines, f"  kept {kept.id}, which is in an index"]
    kept_text = text_of(kept.id, units, field)
    lines.append(f"  kept {kept.id}  {shown(kept_text, _TEXT_WIDTH)}")
    for one in others[:_MOST_COMPARED]:
        similar = "" if one.similarity is None else f" ({one.similarity:.2f})"
        lines.append(
            f"  {one.id}{similar}  {shown(differences(kept_text, text_of(one.id, units, field)), _TEXT_WIDTH)}"
        )
    if size - 1 > _MOST_COMPARED:
        lines.append(f"  … and {size - 1 - _MOST_COMPARED:,} more")
    return lines
