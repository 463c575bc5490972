# SPDX-License-Identifier: Apache-2.0
"""The RUN argument of commands that inspect a run, and the recipe saved in its folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thresher.cli.arguments import add_trust_argument, read_settings
from thresher.credentials import HIDDEN
from thresher.errors import DamagedRunError, UsageError

MAX_BYTES = 1_000_000


def add_run_argument(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that inspect a run."""
    parser.add_argument("run", metavar="RUN", help="a run folder, an output folder, or a run id")
    add_storage_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_storage_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument for opening URLs."""
    parser.add_argument(
        "--storage-option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="how to open a URL, as fsspec takes it, such as endpoint_url=…; may be given several times",
    )


def add_saved_recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of commands that run stages of a saved recipe again."""
    parser.add_argument(
        "settings", metavar="key=value", nargs="*", help="a param or Stage.parameter that should differ from the run's"
    )
    parser.add_argument("--recipe", metavar="FILE", help="a recipe to use instead of the one in the run folder")
    add_trust_argument(parser)


def run_folder(arguments: argparse.Namespace) -> tuple[str, dict[str, Any]]:
    """Return the run folder that the arguments name, and the options to open it."""
    from thresher.ledger.folder.find import find_run

    options = read_settings(arguments.storage_option)
    return find_run(arguments.run, options), options


def load_saved_recipe(arguments: argparse.Namespace, run_dir: str, options: dict[str, Any]) -> Any:
    """Load the recipe of a run: the one saved in its folder, or the one that the arguments name."""
    from thresher.core.recipes.recipe import load_recipe

    source: Any = arguments.recipe
    settings = read_settings(arguments.settings)
    if source is None:
        source = read_saved_recipe(run_dir, options, "Write the same stages as a recipe and name it with --recipe FILE")
        refuse_hidden(run_dir, hidden_parameters(source), settings)
    return load_recipe(source, settings, frozenset(arguments.trust))


def refuse_outlet(run_dir: str, options: dict[str, Any], instead: str) -> None:
    """Raise if the run is that of an outlet: its input is what another run sent there, and is removed.

    `instead`: what to do, with `{run}` for the folder of the other run.
    """
    from thresher.core.outlets import ORIGIN
    from thresher.ledger.folder.find import read_run

    before, _, outlet = read_run(run_dir, options).fingerprint_parts.get(ORIGIN, "").rpartition("/")
    if outlet:
        raise UsageError(f"{run_dir} is the run of the outlet {outlet}. {instead.format(run=before)}")


def read_saved_recipe(run_dir: str, options: dict[str, Any], otherwise: str) -> dict[str, Any]:
    """Return the recipe saved in a run folder, with all texts taken literally.

    `otherwise`: what to do about a run that was started from Python, for the error message.
    """
    from thresher.core.recipes.yaml_text import read_yaml
    from thresher.ledger.stores.store import open_store

    content = open_store(run_dir, options).read("recipe.yaml") or b""
    if len(content) > MAX_BYTES:
        raise UsageError(f"{run_dir}/recipe.yaml: larger than {MAX_BYTES:,} bytes, so not a recipe")
    data, _ = read_yaml(content.decode("utf-8", "replace"), f"{run_dir}/recipe.yaml")
    if data is not None and not (isinstance(data, dict) and isinstance(data.get("stages", []), list)):
        raise DamagedRunError(f"{run_dir}/recipe.yaml is damaged: it is not a recipe. {otherwise}")
    if data is None or not data.get("stages"):
        raise UsageError(f"{run_dir}: the run was started from Python, so its folder keeps no recipe. {otherwise}")
    return {key: value if key == "params" else _literal(value) for key, value in data.items()}


def hidden_parameters(data: Mapping[str, Any]) -> list[str]:
    """Return each `Stage.parameter` of a saved recipe that holds `***` instead of credentials."""
    from thresher.core.recipes.stages import StageProblems, name_items, read_item

    outlets = data.get("outlets")
    branches = {f"{name}.": listed for name, listed in outlets.items()} if isinstance(outlets, Mapping) else {}
    found: list[str] = []
    for prefix, listed in {"": data["stages"], **branches}.items():
        try:
            items = [read_item(value, ("stages", number)) for number, value in enumerate(listed)]
        except (StageProblems, TypeError):
            continue  # loading the recipe reports the error
        name_items(items)
        found += [f"{prefix}{item.name}.{key}" for item in items for key in _hidden_keys(item.parameters)]
    return found


def _hidden_keys(parameters: Mapping[str, Any]) -> Iterator[str]:
    for key, value in parameters.items():
        if isinstance(value, Mapping):
            yield from (f"{key}.{inner}" for inner in _hidden_keys(value))
        elif any(isinstance(text, str) and HIDDEN in text for text in (value if isinstance(value, list) else [value])):
            yield str(key)


def fills(key: str, place: str) -> bool:
    """Return True if the setting `key` gives a new value to the parameter at `place`."""
    return place == key or place.startswith(f"{key}.")


def refuse_hidden(run_dir: str, hidden: Sequence[str], settings: Mapping[str, Any]) -> None:
    """Raise `UsageError` if credentials of the run are missing, since its folder does not save them."""
    missing = [place for place in hidden if not any(fills(key, place) for key in settings)]
    if missing:
        raise UsageError(
            f"{run_dir}: credentials are not kept in the run folder. Give them again on the command line: "
            + " ".join(f"{place}=VALUE" for place in missing)
        )


def _literal(value: Any) -> Any:
    """Escape references: they were resolved before the recipe was saved, so what looks like one is text."""
    if isinstance(value, Mapping):
        return {key: _literal(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_literal(item) for item in value]
    return value.replace("${", "$${") if isinstance(value, str) else value
