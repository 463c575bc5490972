# SPDX-License-Identifier: Apache-2.0
"""Parsing of arguments that commands share, with errors that suggest the nearest flag."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from thresher.errors import UsageError, nearest

EXECUTOR_NAMES = "local (default), serial, ray, actor-pool, ray-data or xenna"
"""What `--executor` takes, for people; a test compares it with the registry, which is not loaded for this."""


class Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError` in place of ending the process, and knows flags that are still to come."""

    def __init__(self, prog: str, description: str, planned: Sequence[str] = ()) -> None:
        # No abbreviations: a flag that is added later must not change what an old script means.
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action="store_true", help="show this and end")
        self._planned = planned

    def error(self, message: str) -> NoReturn:
        """Refuse, and say where help is."""
        # argparse counts `key=value` among the required ones, although there may be none.
        raise UsageError(f"{message.replace(', key=value', '')}. `{self.prog} --help` shows what is legal")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Flags and `key=value` in any order."""
        if "-h" in arguments or "--help" in arguments:
            # Here and not by argparse, which stumbles over itself where flags and positions are mixed.
            self.print_help()
            raise SystemExit(0)
        for argument in arguments:
            flag = argument.partition("=")[0]
            if flag in self._planned:
                raise UsageError(f"{flag} is planned and not there yet. `{self.prog} --help` shows what is")
        known, unknown = self.parse_known_intermixed_args(list(arguments))
        if unknown:
            flags = [flag for action in self._actions for flag in action.option_strings]
            flag = unknown[0].partition("=")[0]
            raise UsageError(
                f"{self.prog} has no flag {flag!r}.{nearest(flag, flags)} `{self.prog} --help` shows what is legal"
                if flag.startswith("-")
                else f"{self.prog} takes no argument {unknown[0]!r}. `{self.prog} --help` shows what is legal"
            )
        return known


def add_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command takes that reads a recipe."""
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe file, or the name of a built-in recipe")
    parser.add_argument(
        "settings",
        metavar="key=value",
        nargs="*",
        help="a param, Stage.parameter, executor.option or options.option; the value is read as YAML",
    )
    add_executor_arguments(parser)


def add_executor_arguments(parser: argparse.ArgumentParser) -> None:
    """What every command takes that makes an executor."""
    parser.add_argument("--executor", metavar="NAME", help=f"what runs it: {EXECUTOR_NAMES}")
    parser.add_argument(
        "--address", metavar="A", help="the Ray cluster to use: auto or host:port (default: a private one)"
    )
    parser.add_argument("--workers", metavar="N", type=_whole_number, help="number of shared CPU workers")
    parser.add_argument("--memory", metavar="SIZE", help="ceiling for driver and workers together, such as 4GB")
    parser.add_argument(
        "--gpus", metavar="N", type=_whole_number, help="number of accelerators (default: what NVML finds)"
    )
    parser.add_argument(
        "--trust",
        metavar="MODULE",
        action="append",
        default=[],
        help="let the recipe run code of this module (for _target_); may be given several times",
    )
    parser.add_argument(
        "--allow-unsupported", action="store_true", help="leave out settings that the executor cannot honour"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def read_settings(settings: Sequence[str]) -> dict[str, Any]:
    """`key=value` arguments as a dict; the last of equal keys counts."""
    from thresher.core.yaml_text import read_scalar

    found = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise UsageError(f"{setting!r} is no key=value; write a param as name=value, for example min_words=80")
        found[key] = read_scalar(value, key)
    return found


def executor_options(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the command line says about the executor."""
    given = {
        "name": arguments.executor,
        "workers": arguments.workers,
        "memory": arguments.memory,
        "gpus": arguments.gpus,
        "address": arguments.address,
    }
    return {key: value for key, value in given.items() if value is not None}


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
