# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: N999 - the module of a command has its name
"""`thresher import`: write the recipe that says what a configuration of another tool says."""

from __future__ import annotations

import argparse

from thresher.cli.printing import print_json, print_note, print_result
from thresher.errors import UsageError

DESCRIPTION = "Translate a simple configuration of another tool into a recipe, and say what could not be translated."
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("tool", metavar="TOOL", help="datatrove, data-juicer or dolma")
    parser.add_argument("config", metavar="CONFIG", help="the script or configuration file; a script is not run")
    parser.add_argument("--output", metavar="FILE", help="write the recipe there (default: standard output)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Translate the configuration."""
    from thresher.compat.importing.read import read_config, recipe_text

    made = read_config(arguments.tool, arguments.config)
    text = recipe_text(made, f"a configuration of {arguments.tool}")
    if arguments.output:
        try:
            with open(arguments.output, "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            raise UsageError(f"{arguments.output} exists and is left as it is; name another file") from None
        except OSError as error:
            raise UsageError(f"{arguments.output} cannot be written: {error.strerror}") from None
    if arguments.json:
        print_json({"recipe": made.recipe(), "missing": made.missing, "differences": made.differences})
    else:
        print_result(arguments.output or text.rstrip("\n"))
    for kind, notes in (("not translated", made.missing), ("different", made.differences)):
        for note in notes:
            print_note(f"{kind}: {note}")
    if any(value == "???" for value in made.params.values()):
        print_note("give what is ??? on the command line of `thresher run`, or write it into the recipe")
    return 0
