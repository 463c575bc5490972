# SPDX-License-Identifier: Apache-2.0
"""`thresher monitor up`: Prometheus and Grafana for the runs of this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

from thresher.cli.arguments import whole_number
from thresher.cli.printing import print_note, print_result
from thresher.errors import MissingPackageError, UsageError

DESCRIPTION = (
    "Write the configuration of Prometheus, alert rules and a Grafana dashboard to DIR, and start both programs if "
    "they are installed. Ctrl-C ends them. Nothing is downloaded."
)
PLANNED_FLAGS = ()
INTERRUPTED = 130
_FOLDER = ".thresher/monitor"
_PORTS = range(1, 2**16)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("action", metavar="up", choices=["up"], help="the only action")
    parser.add_argument("folder", metavar="DIR", nargs="?", default=_FOLDER, help=f"where to write (default {_FOLDER})")
    parser.add_argument(
        "--target",
        metavar="HOST:PORT",
        action="append",
        help="where a run serves its metrics (default 127.0.0.1:9464); may be given several times",
    )
    parser.add_argument("--prometheus-port", metavar="P", type=whole_number, default=9090, help="default 9090")
    parser.add_argument("--grafana-port", metavar="P", type=whole_number, default=3000, help="default 3000")
    parser.add_argument("--write-only", action="store_true", help="write the files and start nothing")


def execute(arguments: argparse.Namespace) -> int:
    """Write the files, start the programs and wait for Ctrl-C."""
    from thresher.observe.prometheus.stack import DEFAULT_TARGET, HOW_TO_GET, Stack, started, watch

    for port in (arguments.prometheus_port, arguments.grafana_port):
        if port not in _PORTS:
            raise UsageError(f"{port} is not a port: a number from 1 to 65535")
    targets = tuple(arguments.target or [DEFAULT_TARGET])
    for target in targets:
        host, _, number = target.rpartition(":")
        if not host or not number.isdigit() or int(number) not in _PORTS:
            raise UsageError(f"--target {target!r} is not of the form HOST:PORT, such as {DEFAULT_TARGET}")
    folder = Path(arguments.folder)
    stack = Stack(folder, targets, arguments.prometheus_port, arguments.grafana_port)
    stack.write()
    print_result("\n".join(str(folder / name) for name in stack.files()))
    if arguments.write_only:
        return 0
    programs = stack.programs()
    names = {program.name for program in programs}
    missing = [f"{name} is not installed. {how}" for name, how in HOW_TO_GET.items() if name not in names]
    if "prometheus" not in names:
        raise MissingPackageError("the files are written, but nothing can be started:\n" + "\n".join(missing))
    for text in missing:
        print_note(text)
    with started(programs, folder) as running:
        for program in programs:
            print_note(f"{program.name}: {program.url}")
        print_note(f"scraping {', '.join(targets)}; start runs with --metrics-port. Ctrl-C ends the programs")
        try:
            watch(programs, running, folder)
        except KeyboardInterrupt:
            return INTERRUPTED
    return 0
