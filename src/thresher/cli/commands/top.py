# SPDX-License-Identifier: Apache-2.0
"""`thresher top`: watch a run from another terminal. The figures are folded from its event log."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from typing import TYPE_CHECKING, Any

from thresher.cli.printing import print_json, print_result, result_width, shown
from thresher.cli.saved_recipe import add_run_argument, run_folder
from thresher.errors import UsageError

if TYPE_CHECKING:
    from thresher.ledger.folder.request import Attempt
    from thresher.observe.follow import FollowedRun
    from thresher.observe.progress import RunInfo, Snapshot

DESCRIPTION = (
    "Watch a run from another terminal until it ends. RUN is a run folder, an output folder, or a run id under "
    ".thresher/runs. --json shows the state once."
)
PLANNED_FLAGS = ()
READ_S = 0.25
"""Time between two looks at the log, which is written twice a second."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_run_argument(parser)
    parser.add_argument("--once", action="store_true", help="show the state once, and exit")


def execute(arguments: argparse.Namespace) -> int:
    """Show the run until it ends, or once."""
    from thresher.ledger.folder.find import read_run
    from thresher.observe.follow import FollowedRun

    run_dir, options = run_folder(arguments)
    attempt = read_run(run_dir, options).attempts[-1]
    folder = os.path.join(run_dir, "events", f"{attempt.number:03d}")
    followed = FollowedRun(folder)
    snapshot = followed.read()
    if snapshot is None and not os.path.isdir(folder):
        raise UsageError(
            f"{run_dir} has no event log on this machine: of a run on an object store, it is where the driver runs"
        )
    if arguments.json or arguments.once:
        _show_once(followed, snapshot, as_json=arguments.json)
        return 0
    ended = _watch(followed, attempt)
    state = f"the run has {ended}" if ended else "the process of the run has ended without a word"
    print_result(f"{state}. `thresher report {arguments.run}` shows the report" if ended == "finished" else f"{state}.")
    return 0


def _show_once(followed: FollowedRun, snapshot: Snapshot | None, *, as_json: bool) -> None:
    import msgspec

    from thresher.observe.layout import frame

    if snapshot is None or followed.info is None:
        raise UsageError("the run has not begun to write its event log; try again in a second")
    if as_json:
        facts: Any = msgspec.to_builtins(snapshot)
        print_json({"name": followed.info.name, "executor": followed.info.executor, **facts})
        return
    width = result_width() or 100
    info, snapshot = _harmless(followed.info, snapshot)
    lines = ["".join(span.text for span in line).rstrip() for line in frame(info, snapshot, width)]
    print_result("\n".join(lines))


def _harmless(info: RunInfo, snapshot: Snapshot) -> tuple[RunInfo, Snapshot]:
    """Spell out control characters: a run folder may come from somebody else."""
    from msgspec.structs import replace

    stages = tuple(replace(stage, name=shown(stage.name)) for stage in snapshot.stages)
    messages = tuple(replace(message, text=shown(message.text)) for message in snapshot.messages)
    return (
        replace(info, name=shown(info.name), executor=shown(info.executor)),
        replace(snapshot, stages=stages, messages=messages),
    )


def _watch(followed: FollowedRun, attempt: Attempt) -> str:
    """Show the run until it ends; return its status, or an empty text if its process has vanished."""
    from thresher.observe.progress import make_progress

    view = make_progress("auto", sys.stdout)
    started = False
    try:
        while True:
            vanished = _is_gone(attempt)  # before the log is read for the last time
            snapshot = followed.read()
            if snapshot is not None and followed.info is not None:
                info, snapshot = _harmless(followed.info, snapshot)
                if not started:
                    view.start(info)
                    started = True
                if snapshot.status != "running":
                    return snapshot.status
                if view.due(snapshot.elapsed_s):
                    view.update(snapshot)
            if vanished:
                return ""
            time.sleep(READ_S)
    finally:
        view.finish(None)


def _is_gone(attempt: Attempt) -> bool:
    """Return True if the process of the run is known to have ended: it ran on this machine, and is not there."""
    if attempt.end is not None or attempt.host != socket.gethostname():
        return attempt.end is not None
    try:
        os.kill(attempt.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
