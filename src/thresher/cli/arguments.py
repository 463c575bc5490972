# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share, and a parser whose errors suggest the nearest flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from thresher.cli.printing import flush_results, print_result
from thresher.errors import UsageError, nearest

EXECUTOR_NAMES = "local (default), serial, ray, actor-pool, ray-data or xenna"
"""Names for the help of `--executor`; a test compares them with the registry, which is not loaded for the help."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` instead of exiting, and recognizes planned flags."""

    def __init__(self, prog: str, description: str, planned: Sequence[str] = ()) -> None:
        # No abbreviations: a flag that is added later must not change what an old script means.
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action="store_true", help="show this help and exit")
        self._planned = planned

    def error(self, message: str) -> NoReturn:
        """Raise `UsageError` and point to the help."""
        # argparse counts `key=value` among the required ones, although there may be none.
        raise UsageError(f"{message.replace(', key=value', '')}. `{self.prog} --help` shows the usage")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Parse flags and `key=value` arguments in any order."""
        if "-h" in arguments or "--help" in arguments:
            # argparse fails on --help where flags and positional arguments are mixed.
            print_result(self.format_help())
            flush_results()
            raise SystemExit(0)
        for argument in arguments:
            flag = argument.partition("=")[0]
            if flag in self._planned:
                raise UsageError(f"{flag} is planned and not available yet. `{self.prog} --help` lists the flags")
        known, unknown = self.parse_known_intermixed_args(list(arguments))
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            flag = unknown[0].partition("=")[0]
            raise UsageError(
                f"{self.prog} has no flag {flag!r}.{_nearest_flag(flag, flags)} `{self.prog} --help` lists the flags"
                if flag.startswith("-")
                else f"{self.prog} takes no argument {unknown[0]!r}. `{self.prog} --help` shows the usage"
            )
        empty = next((name for name in ("recipe", "run") if getattr(known, name, None) == ""), None)
        if empty is not None:
            self.error(f"{empty.upper()} is empty; a shell variable that is not set looks like this")
        return known


def _nearest_flag(flag: str, flags: Sequence[str]) -> str:
    """Return a hint at the nearest flag. Dashes are ignored: they would make all short flags similar."""
    names = [name.lstrip("-") for name in flags]
    wanted = flag.lstrip("-")
    if wanted in ("input", "output", "input-path", "output-path"):
        return f" Paths are params of the recipe: write {wanted.removesuffix('-path')}_path=PATH."
    return nearest(wanted, names).replace("'", "'--", 1)


def add_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that read a recipe."""
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe file, or the name of a built-in recipe")
    parser.add_argument(
        "settings",
        metavar="key=value",
        nargs="*",
        help="a param, Stage.parameter, executor.option or options.option; the value is read as YAML",
    )
    add_executor_arguments(parser)


def add_executor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that create an executor for a recipe."""
    add_worker_arguments(parser)
    parser.add_argument(
        "--gpus", metavar="N", type=whole_number, help="number of accelerators (default: those that NVML finds)"
    )
    add_trust_argument(parser)
    parser.add_argument(
        "--allow-unsupported", action="store_true", help="ignore settings that the executor does not support"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose an executor and its workers."""
    parser.add_argument("--executor", metavar="NAME", help=f"what runs it: {EXECUTOR_NAMES}")
    parser.add_argument(
        "--address",
        metavar="A",
        help="the Ray cluster to use: auto or host:port (default: $RAY_ADDRESS, else a private one)",
    )
    parser.add_argument("--workers", metavar="N", type=whole_number, help="number of shared CPU workers")
    parser.add_argument("--memory", metavar="SIZE", help="memory limit for driver and workers together, such as 4GB")


def add_trust_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument that lets a recipe run code."""
    parser.add_argument(
        "--trust",
        metavar="MODULE",
        action="append",
        default=[],
        help="let the recipe run code of this module (for _target_); may be given several times",
    )


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """Return `key=value` arguments as a dict; the last of equal keys wins."""
    from thresher.core.recipes.yaml_text import read_scalar

    found = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(
                f"{setting!r} is not of the form key=value; write a param as name=value, for example min_words=80"
            )
        found[key] = read_scalar(value, key)
    return found


def executor_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the executor options given on the command line."""
    given = {key: getattr(arguments, key, None) for key in ("workers", "memory", "gpus", "address")}
    given["name"] = arguments.executor
    return {key: value for key, value in given.items() if value is not None}


def whole_number(text: str) -> int:
    """Parse a whole number; argparse prints the error."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
