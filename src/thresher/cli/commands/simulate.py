# SPDX-License-Identifier: Apache-2.0
"""`thresher simulate`: predict how long a recipe would take on other machines."""

from __future__ import annotations

import argparse
import dataclasses
import os
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import add_trust_argument, read_settings
from thresher.cli.commands.run import put_trusted_on_path
from thresher.cli.printing import heading, print_json, print_note, print_result, table
from thresher.core.arguments.sizes import counted
from thresher.errors import RunFailedError, UsageError

if TYPE_CHECKING:
    from thresher.scheduler.model import OpSpec, RunSpec
    from thresher.simulate.inputs import Cost, LaterPhase, NodeText
    from thresher.simulate.profile import RunProfile
    from thresher.simulate.rehearsal import Rehearsal

DESCRIPTION = (
    "Predict a run on other machines: the same scheduler in virtual time, with the costs that an earlier run "
    "measured. Only the files named here are read or written."
)
PLANNED_FLAGS = ()
NOT_FOR_A_REHEARSAL = ("name", "workers", "memory", "gpus", "cpu_allocation_percentage", "address", "dashboard")
"""Options of an executor that the simulated machines replace."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe file, or the name of a built-in recipe")
    parser.add_argument(
        "settings",
        metavar="key=value",
        nargs="*",
        help="as for `thresher run`; required params default to those of the profile",
    )
    parser.add_argument(
        "--profile", metavar="RUN", help="the run that was measured: a run folder, its output, or its id"
    )
    parser.add_argument(
        "--cost",
        metavar="STAGE=S_PER_MB",
        action="append",
        default=[],
        help="let a stage take this many seconds per 10^6 bytes instead of the measured time; repeatable",
    )
    parser.add_argument("--nodes", metavar="N", default="1", help="number of machines (default 1)")
    parser.add_argument(
        "--node",
        metavar="TEXT",
        help='what each has, such as "64cpu,512GB,8gpu,80GB": a size is the memory of what stands before it '
        "(default: the cores and the memory of this machine)",
    )
    parser.add_argument(
        "--workers", metavar="N", help="shared CPU workers on all machines together (default: one per core)"
    )
    parser.add_argument(
        "--data", metavar="SIZE", help="how much input, such as 10TB (default: as much as was measured)"
    )
    parser.add_argument("--file-size", metavar="SIZE", help="size of each input file (default: as they were measured)")
    parser.add_argument("--failures-per-hour", metavar="F", default="0", help="number of machines that fail per hour")
    parser.add_argument("--repair-s", metavar="S", default="300", help="time until a machine is back (default 300)")
    parser.add_argument("--price-per-hour", metavar="X", help="price of one machine for an hour")
    parser.add_argument("--seed", metavar="N", default="0", help="seed of random draws (default 0)")
    parser.add_argument("--svg", metavar="FILE", help="draw utilisation over time")
    parser.add_argument("--html", metavar="FILE", help="the same as one page, with tables")
    add_trust_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Plan the recipe for the machines, run the scheduler in virtual time and print the result."""
    from thresher.core.recipes.recipe import load_recipe
    from thresher.ledger.folder.find import find_run
    from thresher.simulate.inputs import cluster_plan, cost_of, later_phases, make_phase_units, make_units
    from thresher.simulate.rehearsal import Failures, rehearse

    put_trusted_on_path(arguments)
    nodes = _whole("--nodes", arguments.nodes, 1)
    workers = None if arguments.workers is None else _whole("--workers", arguments.workers, 1)
    price = None if arguments.price_per_hour is None else _number("--price-per-hour", arguments.price_per_hour)
    failures = Failures(
        _number("--failures-per-hour", arguments.failures_per_hour), _number("--repair-s", arguments.repair_s)
    )
    machine = _machine(arguments.node)
    run_dir = None if arguments.profile is None else find_run(arguments.profile)
    recipe = load_recipe(arguments.recipe, _settings(arguments, run_dir), frozenset(arguments.trust))
    plan, spec = cluster_plan(recipe.pipeline(), _limits(recipe), machine, nodes, workers)
    block_bytes = getattr(plan.source, "blocksize", None)
    phases = later_phases(plan, spec.ops)
    entries = [_entry(spec, phases), *(phase.entry for phase in phases)]
    profile = _profile(arguments, run_dir, spec, ([stage.name for stage in plan.stages], entries, block_bytes))
    units = make_units(
        profile,
        spec.ops,
        data_bytes=_size("--data", arguments.data),
        file_bytes=_size("--file-size", arguments.file_size),
        block_bytes=block_bytes,
    )
    later = make_phase_units(profile, phases, sum(unit.nbytes for unit in units))
    found = rehearse(spec, units, profile, failures, _whole("--seed", arguments.seed, 0), later)
    cost = None if price is None else cost_of(found.wall_s, nodes, found.data_bytes, price)
    _draw(arguments, found, recipe.name, str(machine))
    if not arguments.json:
        print_result("\n".join([*_lines(found, recipe.name, machine, cost), *_outlet_lines(recipe)]))
    if found.status != "finished":
        raise RunFailedError(f"the simulated run failed: {found.status}")
    if arguments.json:
        print_json(_facts(found, cost))
    return 0


# -- what is asked ----------------------------------------------------------------------------------------------------


def _machine(text: str | None) -> NodeText:
    from thresher.simulate.inputs import NodeText, parse_node

    if text is not None:
        return parse_node(text)
    from thresher.runtime.memory.usage import available_memory

    return NodeText(float(len(os.sched_getaffinity(0))), available_memory())


def _limits(recipe: Any) -> Any:
    """Return the limits from the recipe's executor, apart from those that the machines set."""
    asked = {key: value for key, value in recipe.executor.items() if key not in NOT_FOR_A_REHEARSAL}
    return dataclasses.replace(recipe, executor=asked).make_executor().limits()


def _settings(arguments: argparse.Namespace, run_dir: str | None) -> dict[str, Any]:
    """Return the settings of the command line; required params not given are taken from the measured run."""
    from thresher.core.recipes.params import MISSING
    from thresher.core.recipes.recipe import written_params

    given = read_settings(arguments.settings)
    measured_with = None if run_dir is None else os.path.join(run_dir, "recipe.yaml")
    if measured_with is None or not os.path.isfile(measured_with):
        return given
    missing = {name for name, value in written_params(arguments.recipe).items() if value == MISSING}
    return {name: value for name, value in written_params(measured_with).items() if name in missing} | given


def _profile(
    arguments: argparse.Namespace,
    run_dir: str | None,
    spec: RunSpec,
    planned: tuple[list[str], list[OpSpec], int | None],
) -> RunProfile:
    """Return the measured costs, or those given. `planned`: stages, where phases begin, and bytes of a unit."""
    from thresher.simulate.profile import check_fits, check_routes, given_profile, with_costs
    from thresher.simulate.recorded import load_profile

    stages, entries, block_bytes = planned
    costs = _costs(arguments.cost)
    if run_dir is not None:
        profile = load_profile(run_dir)
        check_fits(profile, stages, arguments.profile)
        check_routes(profile, spec.ops, arguments.profile)
        return with_costs(profile, costs)
    if not costs or arguments.data is None:
        raise UsageError(
            "without --profile RUN nothing is known about the cost of the stages. Run the recipe once on a little data "
            "and give that run, or give --data SIZE and --cost STAGE=SECONDS_PER_MB for the stages that count"
        )
    block = block_bytes or 64 * 10**6
    return with_costs(given_profile(spec.ops, stages, entries, block, spec.ops[0].output_bytes), costs)


def _entry(spec: RunSpec, phases: list[LaterPhase]) -> OpSpec:
    """Return the op where splittable input enters: the source with the shortest route to the end."""
    later = {phase.entry.index for phase in phases}
    sources = (op for op in spec.ops if op.source and op.stages and op.index not in later)
    return min(sources, key=lambda op: (-len(op.stages), op.index))


def _costs(given: list[str]) -> dict[str, float]:
    costs = {}
    for text in given:
        stage, equals, value = text.partition("=")
        if not equals or not stage:
            raise UsageError(f"--cost: {text!r} is no STAGE=SECONDS_PER_MB, such as WordCountFilter=0.004")
        costs[stage] = _number(f"--cost {stage}", value)
    return costs


def _number(what: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise UsageError(f"{what}: {text!r} is not a number of 0 or more")
    return number


def _whole(what: str, text: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise UsageError(f"{what}: {text!r} is not a whole number of {least} or more")
    return int(text)


def _size(what: str, text: str | None) -> int | None:
    from thresher.core.arguments.sizes import parse_size

    return None if text is None else parse_size(text, what)


# -- what is answered -------------------------------------------------------------------------------------------------


def _draw(arguments: argparse.Namespace, found: Rehearsal, name: str, machine: str) -> None:
    from thresher.simulate.chart import html, svg

    for path, draw in ((arguments.svg, svg), (arguments.html, html)):
        if path is None:
            continue
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(draw(found, name, machine))
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None
        print_note(f"drawn to {path}")


def _facts(found: Rehearsal, cost: Cost | None) -> dict[str, Any]:
    from msgspec import to_builtins

    facts: dict[str, Any] = to_builtins(found)
    facts |= {"docs_per_s": found.docs_per_s, "bytes_per_s": found.bytes_per_s}
    return {**facts, "cost": None if cost is None else to_builtins(cost)}


def _lines(found: Rehearsal, name: str, machine: NodeText, cost: Cost | None) -> list[str]:
    from thresher.core.arguments.sizes import show_size
    from thresher.simulate.chart import show_rate, show_time
    from thresher.simulate.rehearsal import short_name

    records = f"{counted(found.docs, 'record')}, " if found.docs else ""
    rows = [
        ("machines", f"{found.nodes:,} with {machine}"),
        ("data", f"{show_size(found.data_bytes)}, {records}{found.units:,} files or blocks"),
        ("wall time", show_time(found.wall_s)),
        ("throughput", show_rate(found)),
        ("bottleneck", found.bottleneck),
        ("in flight", f"at most {show_size(found.inflight_bytes)} of batches between stages"),
    ]
    if found.failures_s:
        rows.append(("failures", f"{len(found.failures_s):,} machines failed on the way"))
    if cost is not None:
        rows.append(("cost", f"{cost.total:,.2f} in all, {cost.per_tb:,.2f} per TB"))
    lines = [heading(f"rehearsal of {name}"), *table(rows), "", heading("used")]
    lines += table(
        (use.name, f"{use.share:>6.1%}", _amounts(use.name, use.used, use.capacity)) for use in found.resources
    )
    lines += _phase_lines(found)
    lines += ["", heading("where the time goes")]
    lines += table(
        (
            short_name(use.name),
            f"{use.share:>6.1%}",
            f"{counted(use.workers, 'worker')} of its own" if use.workers else "shared workers",
        )
        for use in found.stages
    )
    return lines


def _phase_lines(found: Rehearsal) -> list[str]:
    """Return a row for each phase of a run that has several."""
    from thresher.core.arguments.sizes import show_size
    from thresher.simulate.chart import show_time

    rows = (
        (
            f"phase {number}",
            show_time(phase.wall_s),
            f"{show_size(phase.data_bytes)}, {counted(phase.units, 'unit')}",
            phase.bottleneck,
        )
        for number, phase in enumerate(found.phases, start=1)
    )
    return ["", heading("phases"), *table(rows)] if found.phases else []


def _outlet_lines(recipe: Any) -> list[str]:
    """Say that outlets are not part of the rehearsal."""
    names = ", ".join(recipe.outlets)
    return ["", f"not included: {names}. Each outlet runs afterwards, as a run of its own"] if names else []


def _amounts(name: str, used: float, capacity: float) -> str:
    from thresher.core.arguments.sizes import show_size

    if name == "memory":
        return f"{show_size(used)} of {show_size(capacity)} at most"
    return "of its time" if name == "driver" else f"{used:,.1f} of {capacity:,.0f} on average"
