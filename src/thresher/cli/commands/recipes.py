# SPDX-License-Identifier: Apache-2.0
"""`thresher recipes`: list the built-in recipes."""

from __future__ import annotations

import argparse

from thresher.cli.printing import print_json, print_result, table

DESCRIPTION = "List the built-in recipes. Run one with `thresher run NAME key=value …`."
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Print names, descriptions and params."""
    from thresher.core.recipes.recipe import built_in_recipes
    from thresher.core.recipes.yaml_text import read_yaml

    found = {}
    for name, path in built_in_recipes().items():
        data, _ = read_yaml(path.read_text(encoding="utf-8"), str(path))
        found[name] = {
            "description": data.get("description", ""),
            "params": data.get("params") or {},
            "path": str(path),
        }
    if arguments.json:
        print_json({"recipes": found})
        return 0
    lines = []
    for name, facts in found.items():
        lines += [f"{name}: {facts['description']}"]
        rows = [(param, "must be given" if value == "???" else str(value)) for param, value in facts["params"].items()]
        lines += table(rows, indent="    ")
    print_result("\n".join(lines))
    return 0
