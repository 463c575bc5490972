# SPDX-License-Identifier: Apache-2.0
"""`thresher why`: what happened to a document."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.cli.kept_recipe import add_kept_recipe_arguments, add_run_argument, load_kept_recipe, run_folder
from thresher.cli.printing import heading, print_json, print_result, print_warning
from thresher.cli.progress_note import ProgressNote
from thresher.cli.run import put_trusted_on_path
from thresher.cli.shown_text import shown, shown_lines
from thresher.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from thresher.core.plan import Plan
    from thresher.runtime.account import Account, End
    from thresher.runtime.story import Visit

DESCRIPTION = (
    "Tell what happened to a document: where it was read, what each stage did with it, the scores of each rule against "
    "its threshold, and where and why it ended. The recipe's stages run again on that one record, in this process."
)
PLANNED_FLAGS = ()
_RECORD_CHARACTERS = 240
_AROUND = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    add_run_argument(parser)
    parser.add_argument("id", metavar="ID", nargs="?", help="the id of a record, such as 3f2a9c01d4e5:1048576")
    parser.add_argument("--text", metavar="WORDS", help="look in the input for records that hold these words")
    parser.add_argument("--limit", metavar="N", type=int, default=10, help="stop after so many (default 10)")
    add_kept_recipe_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Find the record, tell its story."""
    from thresher.ledger.locate import refuse_no_id

    settings = [text for text in (arguments.id, *arguments.settings) if text and "=" in text]
    ids = [text for text in (arguments.id, *arguments.settings) if text and "=" not in text]
    if (len(ids) != 1) if arguments.text is None else bool(ids):
        raise UsageError("give either the ID of one record or --text WORDS; `thresher why --help` shows what is legal")
    arguments.settings = settings
    for text in ids:
        refuse_no_id(text)
    put_trusted_on_path(arguments)
    run_dir, options = run_folder(arguments)
    plan = _plan(arguments, run_dir, options)
    if arguments.text is not None:
        found = _search(arguments, run_dir, options, plan)
        if len(found) != 1:
            _print_found(arguments, found)
            return 0
        ids = [found[0][0]]
    account = _account(ids[0], run_dir, options, plan)
    if arguments.json:
        print_json(_as_json(account))
    else:
        print_result("\n".join(_lines(account)))
    return 0


def _plan(arguments: argparse.Namespace, run_dir: str, options: dict[str, Any]) -> Plan | None:
    """The pipeline of the run; `None`, with a warning, where the recipe is not at hand."""
    from thresher.core.plan import PlanSettings, make_plan

    try:
        return make_plan(load_kept_recipe(arguments, run_dir, options).pipeline(), PlanSettings(whole_records=True))
    except RefusedError as error:
        if arguments.recipe is not None or arguments.settings or arguments.trust:
            raise
        print_warning("\n".join(["the stages cannot be run again:", *(f"  {line}" for line in shown_lines(error))]))
        return None


def _account(record_id: str, run_dir: str, options: dict[str, Any], plan: Plan | None) -> Account:
    from thresher.runtime.account import Asked, account_of
    from thresher.stages.io.find_line import find_line
    from thresher.stages.text.judged import judged_rules

    return account_of(record_id, Asked(run_dir, options, plan, judged_rules, find_line))


# -- looking for words ------------------------------------------------------------------------------------------------


def _search(
    arguments: argparse.Namespace, run_dir: str, options: dict[str, Any], plan: Plan | None
) -> list[tuple[str, str]]:
    """Ids of records that hold the words, each with the text around them."""
    if plan is None or plan.source is None:
        raise UsageError("--text reads the input again, and for that the recipe is needed: name it with --recipe FILE")
    if not arguments.text:
        raise UsageError("--text: give some words to look for")
    from thresher.ledger.find import read_units

    units = read_units(run_dir, options)
    total = sum(unit.nbytes for unit in units)
    note = ProgressNote("looking through the input", quiet=arguments.json)
    found: list[tuple[str, str]] = []
    done = 0
    try:
        for unit in units:
            for match in _in_unit(plan.source, unit, arguments.text):
                found.append(match)
                if len(found) >= max(1, arguments.limit):
                    return found
            done += unit.nbytes
            note.update(done, total)
    finally:
        note.close()
    return found


def _in_unit(reader: Any, unit: Any, words: str) -> Iterator[tuple[str, str]]:
    from thresher.runtime.story import batches_of

    needles = {json.dumps(words, ensure_ascii=ascii)[1:-1].encode() for ascii in (False, True)}
    for _, batch in batches_of(reader, unit):
        for row, line in enumerate(batch.json_lines()):
            raw = bytes(line)
            place = max(raw.find(needle) for needle in needles)
            if place >= 0 and batch.ids is not None:
                around = raw[max(0, place - _AROUND) : place + len(words.encode()) + _AROUND]
                yield batch.ids.at(row), around.decode("utf-8", "replace")


def _print_found(arguments: argparse.Namespace, found: list[tuple[str, str]]) -> None:
    if arguments.json:
        print_json({"matches": [{"id": record_id, "text": around} for record_id, around in found]})
    elif not found:
        print_result("no record of the input holds these words")
    else:
        print_result("\n".join(f"{record_id}  …{shown(around)}…" for record_id, around in found))
        print_result(f"\n{len(found):,} records; `thresher why {shown(arguments.run)} ID` tells what happened to one")


# -- the account ------------------------------------------------------------------------------------------------------


def _lines(account: Account) -> list[str]:
    located = account.located
    place = "row" if located.is_row else "byte"
    attempt = "not committed yet" if account.commit is None else f"committed by attempt {account.commit.attempt}"
    lines = [
        heading(account.id),
        f"  read from  {shown(located.piece.path)}, {place} {located.position:,}",
        f"  unit       {account.unit}, {attempt}",
    ]
    if account.record:
        lines.append(f"  record     {shown(account.record.decode('utf-8', 'replace'), _RECORD_CHARACTERS)}")
    lines.append("")
    for visit in account.visits:
        lines += _visit_lines(visit, account.id)
    for end in account.ends:
        lines += ["", *_end_lines(end)]
    return lines + [""] * bool(account.notes) + [f"note: {shown(text)}" for text in account.notes]


def _visit_lines(visit: Visit, wanted: str) -> list[str]:
    results = {
        "became": f"became {len(visit.children):,} records: {', '.join(visit.children[:5])}",
        "dropped": "dropped",
        "failed": f"fails: {visit.reason}",
        "set aside": visit.reason,
        "not recomputed": f"not done again: {visit.reason}",
    }
    who = "" if visit.id == wanted else f"{visit.id} "
    lines = [f"  {shown(visit.stage):<24} {who}{shown(results.get(visit.result, visit.result))}"]
    for rule in visit.rules:
        verdict = "keeps" if rule.kept else "drops"
        allowed = "" if rule.threshold is None else f"  allowed {_threshold(rule.threshold)}"
        lines.append(f"    {shown(rule.rule):<22} score {shown(_score(rule.score), 40)}{allowed}  {verdict}")
    return lines


def _score(score: Any) -> str:
    return f"{score:.6g}" if isinstance(score, float) else str(score)


def _threshold(threshold: Any) -> str:
    if isinstance(threshold, dict):
        return shown(", ".join(f"{name}={value}" for name, value in threshold.items()))
    return shown(threshold)


def _end_lines(end: End) -> list[str]:
    lines = [heading(f"{end.id}: {shown(end.text)}")]
    if end.entry is not None:
        lines += [f"    {line}" for line in shown_lines(end.entry.traceback)]
    return lines


def _as_json(account: Account) -> dict[str, Any]:
    import msgspec

    located = account.located
    return {
        "id": account.id,
        "source": located.piece.path,
        "position": located.position,
        "unit": account.unit,
        "attempt": None if account.commit is None else account.commit.attempt,
        "record": account.record.decode("utf-8", "replace") or None,
        "stages": [
            {
                "stage": visit.stage,
                "id": visit.id,
                "result": visit.result,
                "children": list(visit.children),
                "reason": visit.reason or None,
                "rules": [
                    {"rule": rule.rule, "score": rule.score, "threshold": rule.threshold, "kept": rule.kept}
                    for rule in visit.rules
                ],
            }
            for visit in account.visits
        ],
        "ends": [
            {
                "id": end.id,
                "end": end.kind,
                "text": end.text,
                "file": end.file,
                "line": end.line,
                "entry": None if end.entry is None else msgspec.to_builtins(end.entry),
            }
            for end in account.ends
        ],
        "notes": account.notes,
    }
