# SPDX-License-Identifier: Apache-2.0
"""`thresher replay`: feed the events of a run to the scheduler again and check that it decides the same actions."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import Any

from thresher.cli.printing import print_json, print_result
from thresher.core.arguments.sizes import counted
from thresher.errors import CheckFailedError, UsageError

DESCRIPTION = "Check that the event log of a run leads to the same decisions again. Exit code 5 on a difference."
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("run", metavar="RUN", help="a run folder, an output folder, or a run id")
    parser.add_argument("--attempt", metavar="N", help="only this attempt, such as 1; by default all of them")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Replay every attempt of a run."""
    from thresher.ledger.folder.find import find_run
    from thresher.observe.event_log import read_log
    from thresher.simulate.recorded import LogError, replay

    run_dir = str(find_run(arguments.run))
    results: list[dict[str, Any]] = []
    for attempt, folder in _attempts(run_dir, arguments.attempt):
        lines = _Counted(read_log(folder))
        try:
            difference = replay(lines)
        except (LogError, OSError) as error:
            raise CheckFailedError(f"attempt {attempt}: {folder} cannot be replayed: {error}") from None
        if difference is not None:
            raise CheckFailedError(f"attempt {attempt}: {difference}")
        results.append({"attempt": attempt, "lines": lines.number, "difference": None})
    if arguments.json:
        print_json({"run_dir": run_dir, "attempts": results})
    else:
        for result in results:
            print_result(f"attempt {result['attempt']}: {counted(result['lines'], 'line')} replayed, no difference")
    return 0


def _attempts(run_dir: str, wanted: str | None) -> list[tuple[str, str]]:
    """Return number and folder of the attempts to replay, in order."""
    events = os.path.join(run_dir, "events")
    found = sorted(os.listdir(events)) if os.path.isdir(events) else []
    if not found:
        raise UsageError(f"{run_dir} has no event log: there is nothing to replay")
    if wanted is None:
        return [(name, os.path.join(events, name)) for name in found]
    chosen = [name for name in found if name.lstrip("0") == wanted.lstrip("0")]
    if not chosen:
        raise UsageError(f"--attempt {wanted}: the run has no such attempt. It has: {', '.join(found)}")
    return [(name, os.path.join(events, name)) for name in chosen]


class _Counted:
    """Lines of a log, with a count of those read."""

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self.number = 0

    def __iter__(self) -> Iterator[bytes]:
        for line in self._lines:
            self.number += 1
            yield line
