# SPDX-License-Identifier: Apache-2.0
"""`thresher report`: what a run did."""

from __future__ import annotations

import argparse
import sys

from thresher.cli.printing import print_json, print_result, wants_color
from thresher.errors import UsageError

DESCRIPTION = "Show the report of a run. RUN is a run folder, an output folder, or a run id under .thresher/runs."
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("run", metavar="RUN", help="a run folder, an output folder, or a run id")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Print report.json, for people or as it is."""
    from thresher.ledger.find import find_run, read_json

    run_dir = find_run(arguments.run)
    try:
        report = read_json(run_dir, "report.json")
    except ValueError as error:
        raise UsageError(f"{run_dir}: report.json cannot be read: {error}") from None
    if report is None:
        raise UsageError(
            f"{arguments.run}: the run in {run_dir} has no report.json: it is still under way, or was ended before its "
            "end. The same `thresher run` command goes on with it"
        )
    if arguments.json:
        print_json(report)
        return 0
    from thresher.observe.report import report_text

    print_result(report_text(report, wants_color(sys.stdout)))
    return 0
