# SPDX-License-Identifier: Apache-2.0
"""Search of input records by their text or by the value of a field, for `thresher why`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.cli.printing import ProgressLine, print_json, print_result, shown
from thresher.core.arguments.sizes import counted
from thresher.errors import UsageError

if TYPE_CHECKING:
    from thresher.core.documents.batch import DocumentBatch
    from thresher.core.planning.plan import Plan

_AROUND = 40


@dataclass(frozen=True)
class Match:
    """A record that was found."""

    id: str
    """Record id."""
    text: str
    """Excerpt around the match."""


Rows = Callable[["DocumentBatch"], Iterator[tuple[int, str]]]
"""Yields the matching rows of a batch, each with an excerpt."""


@dataclass(frozen=True)
class Wanted:
    """A search for records."""

    rows: Rows
    """Finds the records in a batch."""
    how: str
    """Way in which a record was found, for display after "found"."""
    none: str
    """Message if nothing was found."""


def with_words(words: str) -> Wanted:
    """Search for records that contain these words anywhere."""
    if not words:
        raise UsageError("--text: give some words to look for")
    needles = {json.dumps(words, ensure_ascii=ascii)[1:-1].encode() for ascii in (False, True)}

    def rows(batch: DocumentBatch) -> Iterator[tuple[int, str]]:
        for row, line in enumerate(batch.json_lines()):
            raw = bytes(line)
            place = max(raw.find(needle) for needle in needles)
            if place >= 0:
                around = raw[max(0, place - _AROUND) : place + len(words.encode()) + _AROUND]
                yield row, around.decode("utf-8", "replace")

    return Wanted(rows, "by these words", "no record of the input contains these words")


def with_field(name: str, value: str) -> Wanted:
    """Search for records whose field is this text, or a number written like it."""

    def rows(batch: DocumentBatch) -> Iterator[tuple[int, str]]:
        for row, found in enumerate(batch.values(name)):
            if found == value or (isinstance(found, int | float) and json.dumps(found) == value):
                line = bytes(batch.take([row]).json_lines()[0])
                yield row, line[: 2 * _AROUND].decode("utf-8", "replace")

    none = f"no record of the input has {value!r} in its field {name!r}"
    return Wanted(rows, f"by its field {name!r}, which is {value!r}", none)


def search(
    arguments: argparse.Namespace, run_dir: str, options: dict[str, Any], plan: Plan | None, wanted: Wanted
) -> list[Match]:
    """Read the input of a run again and return the matching records, at most `--limit`."""
    if plan is None or plan.source is None:
        raise UsageError(
            "only the id that Thresher gave a record is found without the recipe: to look for words or for the value "
            "of a field the input is read again. Name the recipe with --recipe FILE"
        )
    from thresher.core.documents.batch import DocumentBatch
    from thresher.inspect.recompute import batches_of
    from thresher.ledger.folder.find import read_units

    units = read_units(run_dir, options)
    total = sum(unit.nbytes for unit in units)
    note = ProgressLine("searching the input", quiet=arguments.json)
    found: list[Match] = []
    done = 0
    try:
        for unit in units:
            for _, batch in batches_of(plan.source, unit):
                for row, text in (
                    wanted.rows(batch) if isinstance(batch, DocumentBatch) and batch.ids is not None else ()
                ):
                    assert batch.ids is not None
                    found.append(Match(batch.ids.at(row), text))
                    if len(found) >= arguments.limit:
                        return found
            done += unit.nbytes
            note.update(done, total)
    finally:
        note.close()
    return found


def print_matches(arguments: argparse.Namespace, found: list[Match], wanted: Wanted) -> None:
    """Print the records that were found."""
    if arguments.json:
        matches = [{"id": match.id, "text": match.text} for match in found]
        print_json({"matched": wanted.how, "matches": matches, "limit_reached": len(found) >= arguments.limit})
        return
    if not found:
        print_result(wanted.none)
        return
    print_result("\n".join(f"{match.id}  …{shown(match.text)}…" for match in found))
    count = f"{'the first ' * (len(found) >= arguments.limit)}{counted(len(found), 'record')}"
    print_result(
        f"\n{count}, each found {wanted.how}; `thresher why {shown(arguments.run)} ID` tells what happened to one"
    )
