# SPDX-License-Identifier: Apache-2.0
"""`thresher report`: show what a run did."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from thresher.cli.printing import print_json, print_result, result_width, wants_color
from thresher.cli.saved_recipe import add_run_argument, run_folder
from thresher.errors import DamagedRunError, UsageError

DESCRIPTION = "Show the report of a run. RUN is a run folder, an output folder, or a run id under .thresher/runs."
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_run_argument(parser)
    parser.add_argument("--html", action="store_true", help="draw report.html again, with the scores that were kept")


def execute(arguments: argparse.Namespace) -> int:
    """Print report.json, as text or as JSON."""
    from thresher.ledger.folder.find import read_json

    run_dir, options = run_folder(arguments)
    report = read_json(run_dir, "report.json", options)
    if report is None:
        raise UsageError(
            f"{arguments.run}: the run in {run_dir} has no report.json: it is still under way, or was ended before its "
            "end. The same `thresher run` command goes on with it"
        )
    if not isinstance(report, dict):
        raise DamagedRunError(f"{run_dir}/report.json is damaged: it is no report")
    if arguments.html:
        return _draw(report, run_dir, options)
    report = with_outlets(report, run_dir, options)
    if arguments.json:
        print_json(report)
        return 0
    from thresher.observe.summary import report_text

    try:
        text = report_text(report, wants_color(sys.stdout), result_width())
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        missing = f"{type(error).__name__}: {error}"
        raise DamagedRunError(f"{run_dir}/report.json is damaged: it is no report ({missing})") from None
    print_result(text)
    return 0


def _draw(report: dict[str, Any], run_dir: str, options: dict[str, Any]) -> int:
    """Draw the page of a run again, and print where it is."""
    from thresher.core.files.filesystem import join
    from thresher.ledger.stores.errors import writing
    from thresher.ledger.stores.store import open_store
    from thresher.runtime.report_file import REPORT_PAGE, write_page

    try:
        with writing(run_dir):
            write_page(open_store(run_dir, options), report, with_scores=True)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        missing = f"{type(error).__name__}: {error}"
        raise DamagedRunError(f"{run_dir}/report.json is damaged: it is no report ({missing})") from None
    print_result(join(run_dir, REPORT_PAGE))
    return 0


def with_outlets(report: dict[str, Any], run_dir: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return a report with those of the outlets that were run to their end."""
    from thresher.ledger.folder.find import read_json
    from thresher.ledger.folder.outlets import finished_outlets

    outlets = {}
    for name, folder in finished_outlets(run_dir, options).items():
        found = read_json(folder, "report.json", options)
        if isinstance(found, dict):
            outlets[name] = with_outlets(found, folder, options)
    return {**report, "outlets": outlets} if outlets else report
