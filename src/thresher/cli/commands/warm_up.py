# SPDX-License-Identifier: Apache-2.0
"""`thresher warm-up`: compile all text rules for this machine."""

from __future__ import annotations

import argparse
import sys

from thresher.cli.printing import print_json, print_result
from thresher.errors import RunFailedError

DESCRIPTION = (
    "Compile all text rules for this machine now, so that no run waits for it. "
    "For container images and for machines that are prepared in advance."
)
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def execute(arguments: argparse.Namespace) -> int:
    """Compile the kernels that are missing and print their folder."""
    from thresher.kernels.build import cache
    from thresher.kernels.build.compile import CannotCompile, compile_all
    from thresher.kernels.build.progress import Announcer

    style = "none" if arguments.quiet else "bar" if sys.stderr.isatty() else "lines"
    try:
        compiled = compile_all(Announcer(style))
    except CannotCompile as error:
        raise RunFailedError(str(error)) from error
    if arguments.json:
        print_json({"folder": cache.folder(), "compiled": compiled})
    elif not arguments.quiet:
        print_result(f"all text rules are compiled, in {cache.folder()}")
    return 0
