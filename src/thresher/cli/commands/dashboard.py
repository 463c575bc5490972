# SPDX-License-Identifier: Apache-2.0
"""`thresher dashboard`: show a live or finished run in the browser."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
import threading

from thresher.cli.arguments import read_settings, whole_number
from thresher.cli.printing import flush_results, print_json, print_note, print_result
from thresher.cli.saved_recipe import add_storage_argument
from thresher.errors import UsageError

DESCRIPTION = (
    "Show a run in the browser while it runs or after its end, until Ctrl-C. Pages are served on loopback only; "
    "--host serves them elsewhere, and then only to those who have the token."
)
PLANNED_FLAGS = ()
PORT = 8377
"""Port of the dashboard, unless it is taken or another one is given."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("run", metavar="RUN", help="a run folder, an output folder, or a run id")
    parser.add_argument("--port", metavar="P", type=whole_number, help=f"port (default {PORT}, or a free one; 0: free)")
    parser.add_argument("--host", metavar="H", default="127.0.0.1", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--token", metavar="T", help="what every request must know (default with --host: a random one)")
    parser.add_argument("--wait", action="store_true", help="RUN is a run folder that may not be there yet")
    parser.add_argument("--until-eof", action="store_true", help="end when standard input ends")
    add_storage_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the address as one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Serve the dashboard until it is interrupted."""
    from thresher.dashboard.run_view import RunView
    from thresher.dashboard.server import LOOPBACK, DashboardServer
    from thresher.ledger.folder.find import find_run

    options = read_settings(arguments.storage_option)
    run_dir = os.path.abspath(arguments.run) if arguments.wait else find_run(arguments.run, options)
    token = arguments.token
    if token is not None and (
        len(token) < 8 or not token.isascii() or not token.replace("-", "").replace("_", "").isalnum()
    ):
        raise UsageError("--token: give at least 8 letters, digits, - and _")
    if token is None and arguments.host not in LOOPBACK:
        token = secrets.token_urlsafe(16)
    view = RunView(run_dir, options)
    try:
        server = DashboardServer(view, arguments.host, PORT if arguments.port is None else arguments.port, token)
    except UsageError:
        if arguments.port is not None:
            raise
        server = DashboardServer(view, arguments.host, 0, token)
    if arguments.json:
        print_json({"url": server.url, "run_dir": run_dir})
    else:
        print_result(server.url)
    flush_results()
    if arguments.until_eof:
        threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    elif not arguments.json:
        print_note("Ctrl-C ends the dashboard; the run goes on")
    with server:
        try:
            server.serve_forever(0.25)
        except KeyboardInterrupt:
            return 0
        except SystemExit as end:
            end.add_note("the dashboard was ended")  # so that nobody is told to resume a run
            raise
    return 0


def _end_with_input(server: object) -> None:
    """End the server when standard input ends, as it does when the run that started it ends."""
    while sys.stdin.buffer.read(4096):
        pass
    os._exit(0)
