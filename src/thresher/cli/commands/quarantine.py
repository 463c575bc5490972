# SPDX-License-Identifier: Apache-2.0
"""`thresher quarantine`: list the quarantined records and the reasons."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from thresher.cli.arguments import whole_number
from thresher.cli.printing import heading, print_json, print_result, shown, shown_lines
from thresher.cli.saved_recipe import add_run_argument, run_folder
from thresher.core.arguments.sizes import counted
from thresher.core.tally import unknown_losses_text
from thresher.errors import UsageError, nearest

if TYPE_CHECKING:
    from thresher.ledger.quarantine import QuarantineEntry

DESCRIPTION = "List the quarantined records: by stage and error, then one by one."
PLANNED_FLAGS = ()
_EXAMPLE_CHARACTERS = 300
_RECORD_CHARACTERS = 120


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    add_run_argument(parser)
    parser.add_argument("--stage", metavar="NAME", help="only records that this stage quarantined")
    parser.add_argument("--error", metavar="NAME", help="only this kind of error")
    parser.add_argument(
        "--limit", metavar="N", type=whole_number, default=20, help="number of entries to show (default 20)"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Group the entries and print them."""
    from thresher.ledger.folder.find import read_quarantine

    if arguments.limit < 0:
        raise UsageError(f"--limit {arguments.limit}: give a number of entries, 0 for the groups alone")
    run_dir, options = run_folder(arguments)
    listing = _Listing(arguments)
    for entry in read_quarantine(run_dir, options):
        listing.add(entry)
    listing.refuse_unknown_names()
    if arguments.json:
        print_json({"run_dir": run_dir, **listing.as_json()})
    else:
        print_result("\n".join(listing.lines(run_dir)))
    return 0


class _Listing:
    """Groups of all requested entries, and the first entries of each."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._all: dict[str, set[str]] = {"stage": set(), "error": set()}
        self.total = 0
        self.matching = 0
        self.unknown = 0
        self.hidden = 0
        self.groups: dict[tuple[str, str], list[Any]] = {}
        self.entries: list[QuarantineEntry] = []

    def add(self, entry: QuarantineEntry) -> None:
        """Add an entry."""
        self.total += entry.count
        self._all["stage"].add(entry.stage)
        self._all["error"].add(entry.error)
        asked = self._arguments
        if asked.stage not in (None, entry.stage) or asked.error not in (None, entry.error):
            return
        self.matching += entry.count
        self.unknown += entry.records is None
        self.hidden += 1
        group = self.groups.setdefault((entry.stage, entry.error), [0, entry])
        group[0] += entry.count
        if len(self.entries) < asked.limit:
            self.entries.append(entry)
            self.hidden -= 1

    def refuse_unknown_names(self) -> None:
        """Raise `UsageError` for a name that no entry has, unless there are no entries at all."""
        for what, known in self._all.items():
            given = getattr(self._arguments, what)
            if given is not None and known and given not in known:
                raise UsageError(
                    f"--{what} {given}: no quarantined record has that name.{nearest(given, known)} "
                    f"There is: {', '.join(shown(name) for name in sorted(known))}"
                )

    def _sorted(self) -> list[tuple[tuple[str, str], int, QuarantineEntry]]:
        groups = [(key, n, example) for key, (n, example) in self.groups.items()]
        return sorted(groups, key=lambda group: (-group[1], group[0]))

    def as_json(self) -> dict[str, Any]:
        """Return the listing as JSON data."""
        import msgspec

        return {
            "quarantined": self.total,
            "matching": self.matching,
            "unknown_losses": self.unknown,
            "groups": [
                {"stage": key[0], "error": key[1], "count": n, "example": example.message}
                for key, n, example in self._sorted()
            ],
            "entries": [msgspec.to_builtins(entry) for entry in self.entries],
        }

    def lines(self, run_dir: str) -> list[str]:
        """Return the listing as text."""
        if not self.total:
            return ["nothing is in quarantine"]
        chosen = "" if self.matching == self.total else f", {self.matching:,} of them as asked for"
        lines = [heading(f"{counted(self.total, 'record')} in quarantine{chosen}")]
        if self.unknown:
            lines.append(f"{unknown_losses_text(self.unknown)}, each counted as 1 above")
        lines.append("")
        for (stage, error), n, example in self._sorted():
            lines.append(f"{n:>10,}  {shown(stage)}/{shown(error)}")
            lines.append(f"            {shown(example.message, _EXAMPLE_CHARACTERS)}")
        for entry in self.entries:
            lines += ["", *_entry_lines(entry)]
        if self.hidden:
            most = self.hidden + len(self.entries)
            lines += ["", f"{self.hidden:,} more: --limit {most} shows all, --stage and --error choose among them"]
        lines += ["", f"the files are in {shown(run_dir)}/quarantine; after mending the cause: thresher retry RUN"]
        return lines


def _extent(entry: QuarantineEntry) -> str:
    """Describe what an entry covers, if that is not one record."""
    if entry.records is None:
        return "  (an unknown number of records)"
    if entry.records == 1 or entry.position is None:
        return ""
    return f" to {entry.position + entry.records - 1}  ({counted(entry.records, 'record')})"


def _entry_lines(entry: QuarantineEntry) -> list[str]:
    where = "" if entry.source is None else f"  {shown(entry.source)}:{entry.position}"
    tries = f"tried {entry.attempts} times" if entry.attempts > 1 else "tried once"
    lines = [
        f"{heading(shown(entry.id))}{where}{_extent(entry)}",
        f"  {shown(entry.stage)}/{shown(entry.error)}, {tries}: {shown(entry.message, _EXAMPLE_CHARACTERS)}",
    ]
    last_frame = [line for line in shown_lines(entry.traceback) if line.lstrip().startswith("File ")][-1:]
    lines += [f"  {line.strip()}" for line in last_frame]
    if entry.record is not None:
        lines.append(f"  {shown(entry.record, _RECORD_CHARACTERS)}")
    elif entry.record_base64 is not None:
        lines.append(f"  {shown(entry.line, _RECORD_CHARACTERS)}")
    elif entry.record_file is not None:
        lines.append(f"  quarantine/{shown(entry.record_file.path)}, {counted(entry.record_file.bytes, 'byte')}")
    return lines
