# SPDX-License-Identifier: Apache-2.0
"""`thresher audit`: verify the counts of a run and its output files."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

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
from thresher.errors import CheckFailedError, DamagedRunError, UsageError

if TYPE_CHECKING:
    from thresher.inspect.audit import Audit
    from thresher.inspect.audit_checks import AuditCheck

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
    audits: dict[str, tuple[str, Audit]] = {}
    waiting = [("", run_dir)]
    note = ProgressLine("audit", quiet=arguments.json)
    try:
        while waiting:
            name, folder = waiting.pop(0)
            found = audit_run(folder, options, count_records_in, lambda what, done, total: note.update(done, total))
            audits[name] = folder, found
            waiting += [(f"{name}/{outlet}".lstrip("/"), its) for outlet, its in found.outlets.items()]
    except UsageError as error:  # the run folder of an outlet is gone
        raise CheckFailedError(str(error)) from None
    finally:
        note.close()
    if arguments.json:
        facts, *_ = outlets = [_facts(folder, found) for folder, found in audits.values()]
        print_json(facts | ({"outlets": dict(zip(list(audits)[1:], outlets[1:], strict=True))} if outlets[1:] else {}))
    else:
        for name, (_, found) in audits.items():
            print_result("\n".join([f"outlet {name}"] * bool(name) + [row for c in found.checks for row in _lines(c)]))
            for text in found.notes:
                print_note(shown(text))
    differences = sum(len(found.differences) for _, found in audits.values())
    if differences:
        print_error(f"{run_dir}: {counted(differences, 'difference')}")
        return CheckFailedError.exit_code
    if not arguments.json:
        print_result("no difference")
    return 0


def _facts(run_dir: str, found: Audit) -> dict[str, Any]:
    """Return the result of an audit for `--json`."""
    return {
        "run_dir": run_dir,
        "run_id": found.run_id,
        "status": "different" if found.differences else "proven",
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


def _lines(check: AuditCheck) -> list[str]:
    mark = painted("✗", _RED, sys.stdout) if check.differences else painted("✓", _GREEN, sys.stdout)
    if not check.differences:
        first, *rest = wrapped(f"{check.name:<15} {check.proven}", " " * 18)
        return [f"{mark}{first[1:]}", *rest]
    lines = [f"{mark} {check.name}"]
    for difference in check.differences[:_SHOWN]:
        lines += wrapped(f"    {shown(difference)}", " " * 8)
    hidden = len(check.differences) - _SHOWN
    return lines + ([f"      and {hidden:,} more"] if hidden > 0 else [])
