# SPDX-License-Identifier: Apache-2.0
"""`thresher compare`: show what is different in two runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import read_settings
from thresher.cli.printing import ProgressLine, heading, print_json, print_result, shown
from thresher.cli.saved_recipe import add_storage_argument
from thresher.core.arguments.sizes import counted, show_size

if TYPE_CHECKING:
    from thresher.inspect.comparison import Change, Comparison

DESCRIPTION = (
    "Show what is different in two runs: counts, drop reasons, speed, recipes, and documents that one of them kept and "
    "the other one did not. Single documents are compared if both runs kept dropped records or scores."
)
PLANNED_FLAGS = ()
_MOVES_SHOWN = 12
_RECORD_CHARACTERS = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.add_argument("run", metavar="RUN1", help="a run folder, an output folder, or a run id")
    parser.add_argument("other", metavar="RUN2", help="the run to compare it with")
    add_storage_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(arguments: argparse.Namespace) -> int:
    """Compare the runs and print the differences."""
    from thresher.inspect.comparison import compare_runs
    from thresher.ledger.folder.find import find_run

    options = read_settings(arguments.storage_option)
    folders = [find_run(text, options) for text in (arguments.run, arguments.other)]
    note = ProgressLine("compare", quiet=arguments.json)
    try:
        found = compare_runs((folders[0], options), (folders[1], options), note.update)
    finally:
        note.close()
    if arguments.json:
        print_json(_as_json(found))
    else:
        print_result("\n".join(_lines(found)))
    return 0


def _as_json(found: Comparison) -> dict[str, Any]:
    import msgspec

    facts: dict[str, Any] = msgspec.to_builtins(found)
    for key in ("counts", "drop_reasons", "quarantine_reasons", "speed"):
        facts[key] = {change.name: {"before": change.before, "after": change.after} for change in getattr(found, key)}
    facts["recipe"] = {name: {"before": before, "after": after} for name, before, after in found.recipe}
    facts["moves"] = [{**move._asdict(), "examples": [one._asdict() for one in move.examples]} for move in found.moves]
    return facts


def _lines(found: Comparison) -> list[str]:
    lines = []
    for mark, run in zip("12", found.runs, strict=True):
        began = str(run["start"] or "").replace("T", " ")[:19]
        facts = f"{run['name']}, {run['status']}, {run['executor']}, {began}"
        lines.append(f"{heading(mark)}  {shown(run['run_dir'])}  ({shown(facts)})")
    lines += _table("counts", found.counts)
    lines += _table("dropped because of", found.drop_reasons)
    lines += _table("quarantined because of", found.quarantine_reasons)
    lines += _table("speed", found.speed)
    if found.recipe:
        lines += ["", heading("recipe")]
        lines += [f"  {shown(name)}: {shown(before)} → {shown(after)}" for name, before, after in found.recipe]
    lines += _move_lines(found)
    return lines + [""] * bool(found.notes) + [f"note: {shown(note)}" for note in found.notes]


def _table(title: str, changes: list[Change]) -> list[str]:
    if not changes:
        return []
    names = min(44, max(len(change.name) for change in changes))
    rows = [
        f"  {shown(change.name, names):<{names}} {_number(change.name, change.before):>12} "
        f"{_number(change.name, change.after):>12} {_difference(change):>9}"
        for change in changes
    ]
    return ["", heading(title), *rows]


def _number(name: str, value: float) -> str:
    if name == "peak memory":
        return show_size(value)
    if name.endswith("bytes/s"):
        return f"{show_size(value)}/s"
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"


def _difference(change: Change) -> str:
    if change.before == change.after:
        return ""
    if not change.before:
        return "new"
    return f"{(change.after - change.before) / change.before:+.1%}"


def _move_lines(found: Comparison) -> list[str]:
    if not found.moves:
        same = f"every document of {counted(found.units_compared, 'unit')} has the same fate in both"
        return ["", same] if found.units_compared else []
    lines = ["", heading("documents whose fate differs")]
    for move in found.moves[:_MOVES_SHOWN]:
        lines.append(f"  {counted(move.documents, 'document')}: {shown(move.before)} → {shown(move.after)}")
        for one in move.examples:
            score = "" if one.score is None else f", score {shown(one.score, 20)}"
            lines.append(f"    {shown(one.id)}{score}  {shown(one.record, _RECORD_CHARACTERS)}".rstrip())
    hidden = len(found.moves) - _MOVES_SHOWN
    lines += [f"  and {hidden:,} more ways; --json lists all"] if hidden > 0 else []
    return [*lines, "`thresher why RUN ID` explains each in full"]
