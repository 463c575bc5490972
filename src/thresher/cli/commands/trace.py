# SPDX-License-Identifier: Apache-2.0
"""`thresher trace`: export what a run did, and when, as an OpenTelemetry trace."""

from __future__ import annotations

import argparse

from thresher.cli.arguments import whole_number
from thresher.cli.printing import print_json, print_result, shown
from thresher.cli.saved_recipe import add_run_argument, run_folder
from thresher.core.arguments.options import check_count
from thresher.core.arguments.sizes import counted
from thresher.errors import UsageError

DESCRIPTION = (
    "Send an attempt of a run to an OpenTelemetry collector (OTLP over HTTP), or write it to a file: spans of the run, "
    "its stages, and the failed and slowest tasks."
)
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_run_argument(parser)
    parser.add_argument(
        "--endpoint",
        metavar="URL",
        help="the collector (default: $OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318)",
    )
    parser.add_argument("--file", metavar="PATH", help="write lines of OTLP/JSON there instead")
    parser.add_argument("--attempt", metavar="N", type=whole_number, help="this attempt; by default the last one")
    parser.add_argument(
        "--tasks", metavar="N", type=whole_number, default=100, help="most task spans of a stage (default 100)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Export the trace of one attempt."""
    if arguments.endpoint is not None and arguments.file is not None:
        raise UsageError("--endpoint and --file are two places; name one of them")
    most_tasks = check_count("--tasks", arguments.tasks, least=0)
    from thresher.ledger.stores.store import open_store
    from thresher.observe.otlp import check_otel, json_lines, send
    from thresher.runtime.traces import read_trace

    if arguments.file is None:
        check_otel()  # before a long log is read
    run_dir, options = run_folder(arguments)
    trace = read_trace(open_store(run_dir, options), arguments.attempt, most_tasks)
    if arguments.file is None:
        place = send(trace, arguments.endpoint)
    else:
        place = arguments.file
        try:
            with open(place, "wb") as file:
                file.writelines(json_lines(trace))
        except OSError as error:
            raise UsageError(f"--file {place}: cannot be written: {error.strerror or error}") from None
    if arguments.json:
        print_json({"trace_id": trace.trace_id, "spans": len(trace.spans), "to": place})
    else:
        print_result(f"{counted(len(trace.spans), 'span')} of trace {trace.trace_id} to {shown(place)}")
    return 0
