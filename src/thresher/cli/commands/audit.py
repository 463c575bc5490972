# SPDX-License-Identifier: Apache-2.0
"""`thresher audit`: verify the counts of a run and its output files."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from thresher.cli.printing import (
    ProgressLine,
    painted,
    print_error,
    print_json,
    print_note,
    print_result,
    shown,
    wrapped,
)
from thresher.cli.saved_recipe import add_run_argument, run_folder
from thresher.core.arguments.sizes import counted
from thresher.errors import CheckFailedError, DamagedRunError

if TYPE_CHECKING:
    from thresher.inspect.audit_checks import Check

DESCRIPTION = (
    "Verify a run: that the counts add up for the run and for each stage, that ledger, manifest and report agree, and "
    "that every output file has the size, SHA-256 and records it was committed with. Exit code 5 on a difference."
)
PLANNED_FLAGS = ()
_GREEN, _RED = "\033[32m", "\033[31m"
_SHOWN = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_run_argument(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Run all checks and print the results; return 5 if anything differs."""
    from thresher.inspect.audit import audit_run
    from thresher.stages.io.finished_files import count_records_in

    try:
        run_dir, options = run_folder(arguments)
    except DamagedRunError as error:
        raise CheckFailedError(str(error)) from None
    note = ProgressLine("audit", quiet=arguments.json)
    try:
        found = audit_run(run_dir, options, count_records_in, lambda what, done, total: note.update(done, total))
    finally:
        note.close()
    differences = found.differences
    if arguments.json:
        print_json(
            {
                "run_dir": run_dir,
                "run_id": found.run_id,
                "status": "different" if differences else "proven",
                "checks": [
                    {
                        "name": check.name,
                        "proven": None if check.differences else check.proven,
                        "differences": check.differences,
                    }
                    for check in found.checks
                ],
                "notes": found.notes,
            }
        )
    else:
        print_result("\n".join(line for check in found.checks for line in _lines(check)))
        for text in found.notes:
            print_note(shown(text))
    if differences:
        print_error(f"{run_dir}: {counted(len(differences), 'difference')}")
        return CheckFailedError.exit_code
    if not arguments.json:
        print_result("no difference")
    return 0


def _lines(check: Check) -> list[str]:
    mark = painted("✗", _RED, sys.stdout) if check.differences else painted("✓", _GREEN, sys.stdout)
    if not check.differences:
        first, *rest = wrapped(f"{check.name:<15} {check.proven}", " " * 18)
        return [f"{mark}{first[1:]}", *rest]
    lines = [f"{mark} {check.name}"]
    for difference in check.differences[:_SHOWN]:
        lines += wrapped(f"    {shown(difference)}", " " * 8)
    hidden = len(check.differences) - _SHOWN
    return lines + ([f"      and {hidden:,} more"] if hidden > 0 else [])
