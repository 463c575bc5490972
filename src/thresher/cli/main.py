# SPDX-License-Identifier: Apache-2.0
"""Entry point of the command `thresher`: dispatches to a command module and maps every outcome to an exit code.

A command is a module of `cli.commands` with `DESCRIPTION`, `PLANNED_FLAGS`, `add_arguments(parser)` and
`execute(arguments)`.
"""

from __future__ import annotations

import importlib
import itertools
import signal
import sys
from collections.abc import Sequence
from typing import Any

from thresher.cli.printing import (
    flush_results,
    log_as_json,
    make_streams_usable,
    print_error,
    print_json,
    print_note,
    print_result,
    silence_stdout,
)
from thresher.credentials import error_line, print_traceback
from thresher.errors import RunFailedError, ThresherError, UsageError, nearest
from thresher.stage_errors import TERMINATED, signals_raise
from thresher.version import __version__

COMMANDS: dict[str, str] = {
    "run": "run a recipe, or resume an interrupted run",
    "plan": "show what a run would do: stages, fusion, workers, memory, units",
    "stages": "list stages, filters and modifiers, or show one",
    "recipes": "list the built-in recipes",
    "init": "write a recipe to start from",
    "import": "translate a configuration of datatrove, Data-Juicer or Dolma into a recipe",
    "report": "show the report of a run",
    "audit": "verify the counts of a run and the hashes of its output files",
    "why": "explain what happened to a document",
    "quarantine": "list the quarantined records, and why they failed",
    "retry": "process quarantined records again; their output is added to the rest",
    "rethreshold": "write the output of a run with other thresholds, from its saved scores",
    "compare": "show what is different in two runs",
    "dedup": "remove duplicates from a data set, or show those of a run",
    "merge-tokens": "merge files of token ids into one pair for training",
    "replay": "check that the event log of a run leads to the same decisions again",
    "simulate": "predict a run on other machines: time, bottleneck, cost",
    "top": "watch a running run from another terminal",
    "dashboard": "show a live or finished run in the browser",
    "trace": "send what a run did, and when, to an OpenTelemetry collector",
    "monitor": "write the configuration of Prometheus and Grafana for runs, and start them",
    "warm-up": "compile all text rules for this machine now, so that no run waits for it",
}
"""Commands and their summaries; the module of each has `_` instead of `-`."""

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code."""
    if argv is None:
        make_streams_usable()
    arguments = list(sys.argv[1:] if argv is None else argv)
    # With --json, errors are printed as one JSON object too.
    wants_json = "--json" in arguments
    log_as_json("--log-format=json" in arguments or ("--log-format", "json") in itertools.pairwise(arguments))
    try:
        with signals_raise(signal.SIGINT, signal.SIGTERM):
            code = _dispatch(arguments)
            flush_results()
            return code
    except ThresherError as error:
        print_error(str(error))
        return _ended(str(error), error.exit_code, wants_json)
    except KeyboardInterrupt as end:
        _print_how_to_continue("interrupted", end)
        return _ended("interrupted", INTERRUPTED, wants_json)
    except BrokenPipeError:  # the reader of our output has closed the pipe
        silence_stdout()
        return 0
    except SystemExit as end:
        if end.code != TERMINATED:  # --help
            return end.code if isinstance(end.code, int) else 0
        _print_how_to_continue("ended by SIGTERM", end)
        return _ended("ended by SIGTERM", TERMINATED, wants_json)
    except Exception as error:
        message = f"unexpected {error_line(error)}"
        print_traceback(error)
        print_error(f"{message}\nThis is a bug in Thresher: please report the lines above and the command that was run")
        return _ended(message, 1, wants_json)


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print_result(_help())
        return 0 if arguments else UsageError.exit_code
    if arguments[0] in ("-V", "--version"):
        print_result(f"thresher {__version__}")
        return 0
    name = arguments[0]
    if name not in COMMANDS:
        raise UsageError(f"{name!r} is not a command.{nearest(name, COMMANDS)} Commands: {', '.join(COMMANDS)}")
    from thresher.cli.arguments import Parser

    command: Any = importlib.import_module(f"thresher.cli.commands.{name.replace('-', '_')}")
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
        "`thresher COMMAND --help` shows the flags of a command, `thresher --version` the version.\n"
        "Start with: thresher init my-recipe.yaml"
    )


def _print_how_to_continue(what: str, end: BaseException) -> None:
    if not getattr(end, "__notes__", ()):  # a run that ended cleanly has printed its own message
        print_note(f"{what}; run the same command again to continue")


def _ended(message: str, code: int, wants_json: bool) -> int:
    if wants_json:
        status = "stopped" if code in (INTERRUPTED, TERMINATED) else "failed"
        try:
            print_json({"status": status, "error": message, "exit_code": code})
            flush_results()
        except BrokenPipeError:
            silence_stdout()
        except RunFailedError as error:
            if str(error) != message:
                print_error(str(error))
    return code
