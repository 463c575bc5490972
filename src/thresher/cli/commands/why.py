# SPDX-License-Identifier: Apache-2.0
"""`thresher why`: explain what happened to a document."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import whole_number
from thresher.cli.commands.run import put_trusted_on_path
from thresher.cli.document_search import Wanted, print_matches, search, with_field, with_words
from thresher.cli.printing import heading, print_json, print_result, print_warning, shown, shown_lines
from thresher.cli.saved_recipe import (
    add_run_argument,
    add_saved_recipe_arguments,
    load_saved_recipe,
    refuse_outlet,
    run_folder,
)
from thresher.core.arguments.sizes import counted
from thresher.core.unit import file12
from thresher.errors import RefusedError, UsageError

if TYPE_CHECKING:
    from thresher.inspect.account import Account, Branch
    from thresher.inspect.ends import End
    from thresher.inspect.recompute import Visit

DESCRIPTION = (
    "Explain what happened to a document: where it was read, what each stage did with it, the score of each rule and "
    "its threshold, and where and why it ended. The recipe's stages run again on that one record, in this process."
)
PLANNED_FLAGS = ()
_RECORD_CHARACTERS = 240


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_run_argument(parser)
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        help="the id of a record, such as 3f2a9c01d4e5:1048576, or the value of its own field `id`",
    )
    parser.add_argument("--field", metavar="NAME=VALUE", help="search the input for records whose field NAME is VALUE")
    parser.add_argument("--text", metavar="WORDS", help="search the input for records that contain these words")
    parser.add_argument(
        "--limit", metavar="N", type=whole_number, default=10, help="maximum number of records (default 10)"
    )
    add_saved_recipe_arguments(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Find the record and print its history."""
    from thresher.inspect.recompute import ID_FORMAT

    settings = [text for text in (arguments.id, *arguments.settings) if text and "=" in text]
    ids = [text for text in (arguments.id, *arguments.settings) if text and "=" not in text]
    if len(ids) + (arguments.text is not None) + (arguments.field is not None) != 1:
        raise UsageError(
            "give the ID of one record, --field NAME=VALUE or --text WORDS; `thresher why --help` shows what is legal"
        )
    if arguments.limit < 1:
        raise UsageError(f"--limit {arguments.limit}: give a number of records, 1 or more")
    arguments.settings = settings
    put_trusted_on_path(arguments)
    run_dir, options = run_folder(arguments)
    branch = _branch(arguments, run_dir, options)
    record_id, how = _own_id(ids[0], run_dir, options) if ids else ("", "")
    if not record_id:
        wanted = _wanted(arguments, ids)
        how, found = wanted.how, search(arguments, run_dir, options, None if branch is None else branch.plan, wanted)
        if ids and not found:
            raise UsageError(
                f"{ids[0]!r} is not the id of a record, and {wanted.none}. {ID_FORMAT}; "
                "--field NAME=VALUE looks at another field, --text WORDS at all of them"
            )
        if len(found) != 1:
            print_matches(arguments, found, wanted)
            return 0
        record_id = found[0].id
    account = _account(record_id, run_dir, options, branch)
    if arguments.json:
        print_json(_as_json(account, how))
    else:
        print_result("\n".join(_lines(account, how)))
    return 0


def _own_id(text: str, run_dir: str, options: dict[str, Any]) -> tuple[str, str]:
    """Return the record id that `text` is, or ends with as `AddId` writes it, and how it was found.

    Both are empty if the text is something else, such as a value of the user's own field.
    """
    from thresher.ledger.folder.find import read_units
    from thresher.ledger.quarantine import RECORD_ID

    if RECORD_ID.fullmatch(text):
        return text, "by its record id"
    own = RECORD_ID.fullmatch(text.rpartition("_")[2])
    files = {file12(piece.relative) for unit in read_units(run_dir, options) for piece in unit.pieces} if own else ()
    return (own[0], f"by the record id that {text!r} ends with") if own and own[1] in files else ("", "")


def _wanted(arguments: argparse.Namespace, ids: Sequence[str]) -> Wanted:
    """Return the search that the arguments ask for."""
    if arguments.text is not None:
        return with_words(arguments.text)
    name, equals, value = ("id", "=", ids[0]) if ids else arguments.field.partition("=")
    if not equals or not name:
        raise UsageError(f"--field: {arguments.field!r} is not NAME=VALUE, such as url=https://example.org/page")
    return with_field(name, value)


def _branch(arguments: argparse.Namespace, run_dir: str, options: dict[str, Any]) -> Branch | None:
    """Return the pipeline of the run; `None`, with a warning, if the recipe is not available."""
    from thresher.inspect.account import planned

    refuse_outlet(run_dir, options, "The run of the pipeline follows documents into its outlets: thresher why {run} ID")
    try:
        return planned(load_saved_recipe(arguments, run_dir, options).pipeline())
    except RefusedError as error:
        if arguments.recipe is not None or arguments.settings or arguments.trust:
            raise
        print_warning("\n".join(["the stages cannot be run again:", *(f"  {line}" for line in shown_lines(error))]))
        return None


def _account(record_id: str, run_dir: str, options: dict[str, Any], branch: Branch | None) -> Account:
    from thresher.inspect.account import AccountRequest, account_of
    from thresher.stages.io.finished_files import find_line
    from thresher.stages.text.judging.score_filter import judged_rules

    return account_of(record_id, AccountRequest(run_dir, options, branch, judged_rules, find_line))


# -- the account ------------------------------------------------------------------------------------------------------


def _lines(account: Account, how: str) -> list[str]:
    located = account.located
    place = "row" if located.is_row else "byte"
    attempt = "not committed yet" if account.commit is None else f"committed by attempt {account.commit.attempt}"
    lines = [
        heading(account.id),
        f"  found      {shown(how)}",
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
        "became": f"became {counted(len(visit.children), 'record')}: {', '.join(visit.children[:5])}",
        "dropped": "dropped",
        "copied": f"passed, and copied to the outlet {visit.reason}",
        "sent": f"sent to the outlet {visit.reason}",
        "failed": f"fails: {visit.reason}",
        "set aside": visit.reason,
        "not recomputed": f"not done again: {visit.reason}",
    }
    who = "" if visit.id == wanted else f"{visit.id} "
    lines = [f"  {shown(visit.stage):<24} {who}{shown(results.get(visit.result, visit.result))}"]
    for rule in visit.rules:
        verdict = "kept" if rule.kept else "dropped"
        bounds = "" if rule.threshold is None else f" with {_threshold(rule.threshold)}"
        lines.append(f"    {shown(rule.rule):<22} {verdict}: score {shown(_score(rule.score), 40)}{bounds}")
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


def _as_json(account: Account, how: str) -> dict[str, Any]:
    import msgspec

    located = account.located
    return {
        "id": account.id,
        "matched": how,
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
                "outlet": end.outlet or None,
                "entry": None if end.entry is None else msgspec.to_builtins(end.entry),
            }
            for end in account.ends
        ],
        "notes": account.notes,
    }
