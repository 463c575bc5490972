# SPDX-License-Identifier: Apache-2.0
"""Read a configuration of another tool, and write the recipe with its notes as text."""

from __future__ import annotations

import re
from pathlib import Path

from thresher.compat.importing import data_juicer, datatrove, dolma
from thresher.compat.importing.operators import Imported
from thresher.core.recipes.yaml_text import read_yaml
from thresher.errors import UsageError, nearest
from thresher.ledger.folder.opening import yaml_text

TOOLS = {
    "datatrove": "a Python script with an executor",
    "data-juicer": "a YAML file with a list `process`",
    "dolma": "a YAML file for `dolma tag`, `mix` or `dedupe`",
}
"""Tools, and what their configurations are."""


def read_config(tool: str, path: str) -> Imported:
    """Return the recipe for a configuration."""
    if tool not in TOOLS:
        raise UsageError(f"{tool!r} is not a tool that is known.{nearest(tool, TOOLS)} Tools: {', '.join(TOOLS)}")
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    name = re.sub(r"[^A-Za-z0-9_-]", "_", Path(path).stem) or "imported"
    if tool == "datatrove":
        return datatrove.read(text, name)
    data, _ = read_yaml(text, path)
    if not isinstance(data, dict):
        raise UsageError(f"{path}: not a configuration of {tool}, which is {TOOLS[tool]}")
    made = data_juicer.read(data, name) if tool == "data-juicer" else dolma.read(data, name)
    made.name = re.sub(r"[^A-Za-z0-9_-]", "_", made.name)
    return made


def recipe_text(made: Imported, origin: str) -> str:
    """Return the recipe as YAML, with what is missing or different as comments on top."""
    lines = [f"# Made from {origin}. What it does not have:"] if made.missing else [f"# Made from {origin}."]
    lines += [f"#   - {text}" for text in made.missing]
    if made.differences:
        lines += ["# What is not quite the same:", *(f"#   - {text}" for text in made.differences)]
    return "\n".join([*lines, yaml_text(made.recipe())])
