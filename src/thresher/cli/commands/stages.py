# SPDX-License-Identifier: Apache-2.0
"""`thresher stages`: list what a recipe may name, or show the parameters of one."""

from __future__ import annotations

import argparse
import inspect
from typing import Any

from thresher.cli.printing import heading, print_json, print_result, table

DESCRIPTION = "List stages, filters and modifiers, or show the parameters of one."
PLANNED_FLAGS = ()
_PLURALS = {
    "reader": "readers",
    "writer": "writers",
    "stage": "stages",
    "filter": "filters, which drop records (a recipe wraps them in ScoreFilter)",
    "modifier": "modifiers, which change text (a recipe wraps them in Modify)",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("name", metavar="NAME", nargs="?", help="show this one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Print the list, or one entry."""
    if arguments.name is None:
        return _show_all(arguments.json)
    facts = facts_of(arguments.name)
    if arguments.json:
        print_json(facts)
    else:
        print_result("\n".join(_lines(facts)))
    return 0


def _show_all(as_json: bool) -> int:
    from thresher.core.registry import entries

    known = entries().values()
    if as_json:
        print_json({"stages": [{"name": e.name, "kind": e.kind, "summary": e.summary()} for e in known]})
        return 0
    lines: list[str] = []
    for kind, plural in _PLURALS.items():
        rows = [(entry.name, entry.summary()) for entry in known if entry.kind == kind]
        if rows:
            lines += ["", heading(plural), *table(rows)]
    lines += ["", "`thresher stages NAME` shows the parameters of one."]
    print_result("\n".join(lines[1:]))
    return 0


def facts_of(name: str) -> dict[str, Any]:
    """Return everything that is known about one entry."""
    from thresher.core.recipes.stages import SETTINGS
    from thresher.core.registry import WRAPPERS, lookup
    from thresher.core.stage import ProcessingStage

    entry = lookup(name)
    cls = entry.load()
    wrapper = WRAPPERS.get(entry.kind)
    own = _parameters(cls)
    taken = {parameter["name"] for parameter in own}
    wrapping = _parameters(lookup(wrapper).load())[1:] if wrapper is not None else []
    settings = [p for p in _parameters(ProcessingStage.with_) if p["name"] in SETTINGS]
    return {
        "name": name,
        "kind": entry.kind,
        "summary": entry.summary(),
        "doc": inspect.getdoc(cls) or "",
        "parameters_doc": _own_doc(cls),
        "parameters": own,
        "wrapper": wrapper,
        "wrapper_parameters": [p for p in wrapping if p["name"] not in taken],
        "settings": [{"name": p["name"], "type": p["type"]} for p in settings if p["name"] not in taken],
    }


def _parameters(target: Any) -> list[dict[str, Any]]:
    from thresher.core.arguments.parameters import REQUIRED, describe, parameters_of

    found = []
    for parameter in parameters_of(target).values():
        facts = {"name": parameter.name, "type": describe(parameter.hint), "required": parameter.default is REQUIRED}
        if parameter.default is not REQUIRED:
            facts["default"] = parameter.default
        found.append(facts)
    return found


def _own_doc(cls: type[Any]) -> str:
    """Return the docstring of the constructor, which describes the parameters."""
    constructor = next((vars(c)["__init__"] for c in cls.__mro__ if "__init__" in vars(c)), None)
    # Only its own docstring: `inspect.getdoc` would fall back on that of `object`.
    return inspect.cleandoc(getattr(constructor, "__doc__", None) or "") if constructor is not object.__init__ else ""


def _lines(facts: dict[str, Any]) -> list[str]:
    lines = [f"{heading(facts['name'])} ({facts['kind']})", *_indented(facts["doc"])]
    lines += ["", heading("parameters"), *(table(map(_row, facts["parameters"])) or ["  none"])]
    if facts["parameters_doc"]:
        lines += _indented(facts["parameters_doc"])
    if facts["wrapper_parameters"]:
        lines += ["", heading(f"parameters of {facts['wrapper']}, which a recipe wraps it in")]
        lines += table(map(_row, facts["wrapper_parameters"]))
    lines += ["", heading("settings of any stage")]
    lines += table((setting["name"], setting["type"]) for setting in facts["settings"])
    return [*lines, "", heading("in a recipe"), f"  - {_example(facts)}"]


def _row(parameter: dict[str, Any]) -> tuple[str, str, str]:
    from thresher.core.arguments.parameters import show_value

    default = "required" if parameter["required"] else f"default {show_value(parameter['default'])}"
    return parameter["name"], default, parameter["type"]


def _example(facts: dict[str, Any]) -> str:
    required = [f"{p['name']}: …" for p in facts["parameters"] if p["required"]]
    return f"{facts['name']}: {{{', '.join(required)}}}" if required else str(facts["name"])


def _indented(text: str) -> list[str]:
    return [f"  {line}".rstrip() for line in text.splitlines()]
