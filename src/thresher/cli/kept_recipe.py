# SPDX-License-Identifier: Apache-2.0
"""The RUN argument of commands that look at a run, and the recipe that its folder keeps."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from thresher.cli.arguments import read_settings
from thresher.errors import UsageError

MAX_BYTES = 1_000_000
_HIDDEN = "***"


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """What every command takes that looks at a run."""
    parser.add_argument("run", metavar="RUN", help="a run folder, an output folder, or a run id")
    parser.add_argument(
        "--storage-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="how to open a URL, as fsspec takes it, such as endpoint_url=…; may be given several times",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_kept_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """What a command takes that runs stages of a recipe again."""
    parser.add_argument(
        "settings", metavar="key=value", nargs="*", help="a param or Stage.parameter that should differ from the run's"
    )
    parser.add_argument("--recipe", metavar="FILE", help="a recipe in place of the one that the run folder keeps")
    parser.add_argument(
        "--trust",
        metavar="MODULE",
        action="append",
        default=[],
        help="let the recipe run code of this module (for _target_); may be given several times",
    )


def run_folder(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """The run folder that is meant, and how to open it if it is a URL."""
    from thresher.ledger.find import find_run

    options = read_settings(arguments.storage_option)
    return find_run(arguments.run, options), options


def load_kept_recipe(arguments: argparse.Namespace, run_dir: str, options: dict[str, Any]) -> Any:
    """The recipe of a run: the one that its folder keeps, or the one that the arguments name."""
    from thresher.core.recipe import load_recipe

    source: Any = arguments.recipe
    if source is None:
        source = _kept(run_dir, options)
    return load_recipe(source, read_settings(arguments.settings), frozenset(arguments.trust))


def _kept(run_dir: str, options: dict[str, Any]) -> dict[str, Any]:
    from thresher.core.yaml_text import read_yaml
    from thresher.ledger.store import open_store

    content = open_store(run_dir, options).read("recipe.yaml") or b""
    if len(content) > MAX_BYTES:
        raise UsageError(f"{run_dir}/recipe.yaml: larger than {MAX_BYTES:,} bytes, so not a recipe")
    data, _ = read_yaml(content.decode("utf-8", "replace"), f"{run_dir}/recipe.yaml")
    if not isinstance(data, dict) or not data.get("stages"):
        raise UsageError(
            f"{run_dir}: the run was started from Python, so its folder keeps no recipe. "
            "Write the same stages as a recipe and name it with --recipe FILE"
        )
    if _holds_hidden(data):
        raise UsageError(
            f"{run_dir}: the recipe that the run folder keeps has its secrets replaced by {_HIDDEN}. "
            "Name the recipe itself with --recipe FILE, and its params with key=value"
        )
    return {key: value if key == "params" else _literal(value) for key, value in data.items()}


def _holds_hidden(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(_holds_hidden(item) for item in value.values())
    if isinstance(value, list):
        return any(_holds_hidden(item) for item in value)
    return isinstance(value, str) and _HIDDEN in value


def _literal(value: Any) -> Any:
    """Everything was filled in when it was kept: what looks like a reference now is text."""
    if isinstance(value, Mapping):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
