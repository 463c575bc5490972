# SPDX-License-Identifier: Apache-2.0
"""`thresher plan`: show what a run would do, without running it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import add_recipe_arguments, executor_options
from thresher.cli.commands.run import load, put_trusted_on_path
from thresher.cli.printing import heading, print_json, print_result, print_warning, table, wrapped
from thresher.core.arguments.sizes import counted

if TYPE_CHECKING:
    from thresher.core.planning.plan import Plan

DESCRIPTION = "Show what a run would do: stages, fusion, resources, workers, memory, units. Nothing is written."
PLANNED_FLAGS = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_recipe_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Load the recipe, plan it and list its units."""
    from thresher.core.arguments.options import RunOptions

    put_trusted_on_path(arguments)
    recipe = load(arguments)
    executor = recipe.make_executor(executor_options(arguments), print_warning if arguments.allow_unsupported else None)
    asked = {key: recipe.options[key] for key in ("dropped_to", "keep_scores") if key in recipe.options}
    pipeline = recipe.pipeline()
    plan = executor.plan(pipeline, RunOptions(**asked))
    limits = executor.limits()
    facts = {
        "name": recipe.name,
        "description": recipe.description,
        "executor": {
            "name": executor.name,
            "workers": limits.shared_workers,
            "memory_bytes": limits.memory_bytes or None,
            "execution_mode": "batch" if limits.barrier else "streaming",
        },
        "stages": [_stage_facts(stage) for stage in plan.stages],
        "routes": _routes(plan),
        "units": _unit_facts(plan),
        "output": plan.sink.path if plan.sink is not None else None,
    }
    if pipeline.outlets:
        facts["outlets"] = {name: _outlet_facts(executor, name, its) for name, its in pipeline.outlets.items()}
    if arguments.json:
        print_json(facts)
    else:
        print_result("\n".join(_lines(facts)))
    return 0


def _outlet_facts(executor: Any, name: str, branch: Any) -> dict[str, Any]:
    """Return the stages and the output of an outlet."""
    from thresher.runtime.outlets import plan_outlet

    plan = plan_outlet(executor, name, branch)
    return {
        "stages": [_stage_facts(stage) for stage in plan.stages],
        "routes": _routes(plan),
        "output": plan.sink.path if plan.sink is not None else None,
    }


def _stage_facts(stage: Any) -> dict[str, Any]:
    from dataclasses import asdict

    from thresher.core.planning.task_types import task_types

    taken, given = task_types(stage)
    return {
        "name": stage.name,
        "class": type(stage).__name__,
        "takes": taken.__name__,
        "gives": given.__name__,
        "resources": {key: value for key, value in asdict(stage.resources).items() if value},
        "batch_size": stage.batch_size,
        "num_workers": stage.num_workers(),
    }


def _routes(plan: Plan) -> dict[str, list[dict[str, Any]]]:
    """Return the fused ops of each kind of input, in order."""
    routes: dict[str, list[dict[str, Any]]] = {}
    for route, entry in plan.entries.items():
        number: int | None = entry
        routes[route] = []
        while number is not None:
            op = plan.ops[number]
            names = [plan.stages[n].name for n in dict.fromkeys(step.stage for step in op.steps)]
            steps = [step.kind for step in op.steps]
            routes[route].append({"stages": names, "steps": steps, "dedicated": op.dedicated, "workers": op.workers})
            number = op.next
    return routes


def _unit_facts(plan: Plan) -> dict[str, Any] | None:
    """Return how the input is split into units; `None` without a reader."""
    if plan.source is None:
        return None
    units = streams = nbytes = 0
    files: set[str] = set()
    for unit in plan.source.list_units():
        units += 1
        streams += unit.stream
        nbytes += unit.nbytes
        files.update(piece.relative for piece in unit.pieces)
    return {"units": units, "streams": streams, "files": len(files), "bytes": nbytes}


_ROUTE_NAMES = {
    "unit": "files that can be split",
    "stream": "files that must be unpacked from their start",
    "join": "at the end, to make files of the target size",
    "task": "each task",
}


def _lines(facts: dict[str, Any]) -> list[str]:
    from thresher.core.arguments.sizes import show_size

    executor, units = facts["executor"], facts["units"]
    memory = show_size(executor["memory_bytes"]) if executor["memory_bytes"] else "no ceiling"
    lines = [heading(facts["name"]) + (f": {facts['description']}" if facts["description"] else "")]
    lines += ["", heading("executor")]
    lines += table(
        [
            ("name", executor["name"]),
            ("workers", f"{executor['workers']} shared"),
            ("memory", memory),
            ("mode", executor["execution_mode"]),
        ]
    )
    lines += ["", heading("stages"), *table(map(_stage_row, facts["stages"]))]
    hidden = [route for route in facts["routes"] if route.startswith("join-")] + ["stream"] * (not _has_streams(units))
    shown = {route: groups for route, groups in facts["routes"].items() if route not in hidden}
    for route, groups in shown.items():
        name = _ROUTE_NAMES.get(route) or route.replace("-", " ")
        lines += ["", heading(f"groups of stages that run in one call ({name})")]
        for number, group in enumerate(groups, start=1):
            lines += wrapped(f"{number}. {_group_workers(group)}: {_group_name(group)}", "     ")
    lines += ["", heading("input"), f"  {_unit_line(units)}"]
    without = "no writer: the tasks of the last stage are the result"
    lines += ["", heading("output"), f"  {_output_name(facts['output']) or without}"]
    for name, outlet in facts.get("outlets", {}).items():
        lines += ["", heading(f"outlet {name}"), *table(map(_stage_row, outlet["stages"][1:]))]
        lines += wrapped(f"  output  {_output_name(outlet['output'])}", "     ")
    return lines


def _output_name(path: str | None) -> str | None:
    return "standard output" if path == "-" else path


def _has_streams(units: dict[str, Any] | None) -> bool:
    return bool(units and units["streams"])


def _stage_row(stage: dict[str, Any]) -> tuple[str, ...]:
    needs = ", ".join(f"{key} {value:g}" for key, value in stage["resources"].items() if isinstance(value, int | float))
    notes = [needs or "no resources"]
    notes += [f"batch size {stage['batch_size']}"] if stage["batch_size"] > 1 else []
    kind = "" if stage["class"] == stage["name"] else stage["class"]
    return stage["name"], kind, f"{stage['takes']} -> {stage['gives']}", ", ".join(notes)


def _group_name(group: dict[str, Any]) -> str:
    only = {("read",): " (unpacks)", ("parse",): " (parses)"}.get(tuple(group["steps"]), "")
    return " + ".join(group["stages"]) + only


def _group_workers(group: dict[str, Any]) -> str:
    if not group["dedicated"]:
        return "any shared worker"
    return (
        f"{counted(group['workers'], 'worker')} of its own"
        if group["workers"]
        else "workers of its own, as many as it needs"
    )


def _unit_line(units: dict[str, Any] | None) -> str:
    from thresher.core.arguments.sizes import show_size

    if units is None:
        return "no reader: the first stage makes the tasks"
    if units["streams"] and not units["bytes"]:
        return "standard input, cut into units as it is read"
    whole = units["units"] - units["streams"]
    parts = [counted(whole, "unit")] if whole or not units["streams"] else []
    if units["streams"]:
        parts.append(f"{counted(units['streams'], 'compressed file')}, cut into units as they are read")
    return f"{counted(units['files'], 'file')}, {show_size(units['bytes'])}: {' and '.join(parts)}"
