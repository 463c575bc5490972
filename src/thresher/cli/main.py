# SPDX-License-Identifier: Apache-2.0
"""The command `thresher`: finds the command that is asked for and turns every end into an exit code.

A command is a module of this package with `SUMMARY`, `PLANNED_FLAGS`, `add_arguments(parser)` and `execute(arguments)`.
"""

from __future__ import annotations

import importlib
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from thresher.cli.printing import (
    flush_results,
    make_streams_usable,
    print_error,
    print_json,
    print_note,
    print_result,
    silence_stdout,
)
from thresher.errors import ThresherError, UsageError, nearest
from thresher.version import __version__

COMMANDS: dict[str, str] = {
    "run": "run a recipe, or go on with a run that was ended",
    "plan": "show what a run would do: stages, fusion, workers, memory, units",
    "stages": "list stages, filters and modifiers, or show one",
    "recipes": "list the recipes that come with Thresher",
    "init": "write a recipe to start from",
    "report": "show the report of a run",
    "audit": "prove the counts of a run and the hashes of its output files",
    "why": "tell what happened to a document",
    "quarantine": "show the records that were set aside, and why",
    "retry": "try the records in quarantine again; their output joins the rest",
    "rethreshold": "write the output of a run with other thresholds, from the scores that it kept",
    "replay": "check that the event log of a run leads to the same decisions again",
    "simulate": "rehearse a recipe on machines that are not there: time, bottleneck, cost",
}
"""Name and what it does; each is a module of this package."""

PLANNED = (
    "compare",
    "top",
    "dashboard",
    "monitor",
    "import",
    "dedup",
)
"""Commands that are not there yet; their names are kept for them."""

INTERRUPTED, TERMINATED = 130, 143


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    if argv is None:
        make_streams_usable()
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Also for errors the caller finds one JSON object on stdout.
    wants_json = "--json" in arguments
    try:
        with _sigterm_ends():
            code = _dispatch(arguments)
            flush_results()
            return code
    except ThresherError as error:
        print_error(str(error))
        return _ended(str(error), error.exit_code, wants_json)
    except KeyboardInterrupt:
        print_note("interrupted; the same command goes on from what is done")
        return _ended("interrupted", INTERRUPTED, wants_json)
    except BrokenPipeError:  # who read our output has seen enough
        silence_stdout()
        return 0
    except SystemExit as end:
        if end.code != TERMINATED:  # --help
            return end.code if isinstance(end.code, int) else 0
        print_note("ended by SIGTERM; the same command goes on from what is done")
        return _ended("ended by SIGTERM", TERMINATED, wants_json)
    except Exception as error:
        message = f"unexpected {type(error).__name__}: {error}"
        traceback.print_exc()
        print_error(
            f"{message}\nThis is a fault in Thresher: please report the lines above and the command that was run"
        )
        return _ended(message, 1, wants_json)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print_result(_help())
        return 0 if arguments else UsageError.exit_code
    if arguments[0] in ("-V", "--version"):
        print_result(f"thresher {__version__}")
        return 0
    name = arguments[0]
    if name in PLANNED:
        raise UsageError(f"`thresher {name}` is planned and not there yet. There is now: {', '.join(COMMANDS)}")
    if name not in COMMANDS:
        raise UsageError(f"{name!r} is no command.{nearest(name, COMMANDS)} There is: {', '.join(COMMANDS)}")
    from thresher.cli.arguments import Parser

    command: Any = importlib.import_module(f"thresher.cli.{name}")
    parser = Parser(prog=f"thresher {name}", description=command.DESCRIPTION, planned=command.PLANNED_FLAGS)
    command.add_arguments(parser)
    code: int = command.execute(parser.parse(arguments[1:]))
    return code


def _help() -> str:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {summary}" for name, summary in COMMANDS.items())
    return (
        "usage: thresher COMMAND …\n\nTurns raw data into training data.\n\n"
        f"commands:\n{commands}\n\n"
        f"planned, not there yet: {', '.join(PLANNED)}\n\n"
        "`thresher COMMAND --help` shows the flags of a command, `thresher --version` the version.\n"
        "Start with: thresher init my-recipe.yaml"
    )


def _ended(message: str, code: int, wants_json: bool) -> int:
    if wants_json:
        status = "stopped" if code in (INTERRUPTED, TERMINATED) else "failed"
        print_json({"status": status, "error": message, "exit_code": code})
    return code


@contextmanager
def _sigterm_ends() -> Iterator[None]:
    """SIGTERM unwinds the stack as Ctrl-C does, so that everything is put away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
