# SPDX-License-Identifier: Apache-2.0
"""The end of a record: its recomputed passage through the stages, compared with the files of the run.

A result that is recomputed is reported as a fact only if it is found in the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from thresher.core.arguments.sizes import counted
from thresher.core.files.filesystem import StorageOptions, join
from thresher.core.outlets import DROPPED
from thresher.core.outlets import FOLDER as OUTLETS
from thresher.core.phases import PhaseReader
from thresher.inspect.recompute import Stage, Visit
from thresher.ledger.folder.find import output_folder
from thresher.ledger.folder.output_files import DATA_FILE
from thresher.ledger.folder.request import RunState
from thresher.ledger.quarantine import QuarantineEntry, dropped_start, without_id
from thresher.ledger.records import CommitRecord, OutputFile, split_retry
from thresher.ledger.stores.store import escapes_folder


class FindLine(Protocol):
    """A function that finds a line in a file."""

    def __call__(
        self, path: str, line: bytes, storage_options: StorageOptions = None, *, is_start: bool = False
    ) -> int | None:
        """Return the number of the line; `None` if there is none."""


@dataclass(frozen=True)
class End:
    """The end of a record."""

    id: str
    """Id of the record."""
    kind: str
    """`written`, `dropped`, `quarantined`, `merged`, `sent`, `not-reached`, `fails-now` or `unknown`."""
    text: str
    """Description for the user, with how certain it is."""
    file: str | None = None
    """File that holds it."""
    line: int | None = None
    """Number of its line, if it was searched and found."""
    entry: QuarantineEntry | None = None
    """Entry in the quarantine."""
    stage: str = ""
    """Stage over the whole corpus that dropped it, which recomputing a single record does not show."""
    outlet: str = ""
    """Outlet in which it ended, such as `short`, or `short.dull` for one of an outlet; empty for the pipeline."""


@dataclass(frozen=True)
class RunFiles:
    """A run in whose files the end of a record is looked for."""

    run_dir: str
    """Run folder."""
    options: dict[str, Any]
    """Options for opening it, if it is a URL."""
    stages: Sequence[Stage]
    """Stages of its plan."""
    state: RunState
    """Content of `run.json`."""
    records: Sequence[CommitRecord]
    """Its commits."""
    find_line: FindLine
    """Function that finds a line in a file."""
    unit: str | None = None
    """Unit of the record; `None` if it may be in any."""

    def own_commits(self) -> list[CommitRecord]:
        """Return the commits that may hold the record. In a later phase it may be in any unit."""
        return [one for one in self.records if one.phase or self.unit in (None, split_retry(one.unit)[0])]

    def written_files(self) -> list[OutputFile]:
        """Return the output files that may hold the record."""
        own = [one for one in self.own_commits() if not one.part and not one.handed_on]
        joined = [one for one in self.records if one not in own and self.unit in one.joined]
        return [file for one in (*own, *joined) for file in one.outputs]

    def dropped_files(self) -> tuple[str | None, list[OutputFile]]:
        """Return the folder for dropped records, and the files there that may hold the record."""
        files = [file for one in self.own_commits() for file in one.dropped_outputs]
        return self.state.dropped_to or (join(self.run_dir, OUTLETS, DROPPED) if files else None), files


def quarantined_end(entry: QuarantineEntry) -> End:
    """Return the end of a record that is in quarantine."""
    text = f"quarantined by {entry.stage} after {entry.attempts} attempts: {entry.error}: {entry.message}"
    return End(entry.id or "", "quarantined", text, entry=entry)


def ends_of(visits: Sequence[Visit], entries: Sequence[QuarantineEntry], files: RunFiles) -> list[End]:
    """Return one end for each record that the visited one became; `entries`: the quarantine of its unit."""
    aside = {(entry.stage, entry.line): entry for entry in entries}
    last = {visit.id: visit for visit in visits}
    ends = []
    for visit in last.values():
        if not visit.is_last:
            continue
        if visit.result == "set aside":
            ends += [quarantined_end(aside[visit.stage, visit.line])] if (visit.stage, visit.line) in aside else []
        else:
            ends.append(_end(visit, [one for one in visits if one.id == visit.id], files))
    return ends


def _end(visit: Visit, before: Sequence[Visit], files: RunFiles) -> End:
    if visit.result == "dropped":
        text = f"dropped by {visit.stage}, rule {visit.reason}" if visit.line else f"dropped by {visit.stage}"
        text += f": score {visit.score!r} with {_bounds(visit.threshold)}" if visit.threshold is not None else ""
        if visit.threshold is None and isinstance(visit.score, dict):
            text += ": " + ", ".join(f"{name} {value}" for name, value in visit.score.items() if value is not None)
        return _with_location(End(visit.id, "dropped", text), visit.line, *files.dropped_files(), files)
    if visit.result == "written":
        folder = output_folder(files.run_dir, files.state)
        written = End(visit.id, "written", "written")
        end = _with_location(written, visit.line, folder, files.written_files(), files)
        dropped = None if end.line is not None else _dropped_by_phase(before, files)
        if dropped is None or dropped.file is not None or end.kind != "written":
            return dropped or end
        either = f"{end.text}; or {dropped.text.partition(', since')[0]}"
        return replace(end, kind="unknown", text=either)
    if visit.result == "sent":
        return End(visit.id, "sent", f"sent to the outlet {visit.reason} by {visit.stage}")
    if visit.result == "merged":
        return End(visit.id, "merged", f"part of the result of {visit.stage}")
    if visit.result == "failed":
        return End(visit.id, "fails-now", f"fails now in {visit.stage} ({visit.reason}), and did not in the run")
    return End(visit.id, "unknown", f"not known beyond {visit.stage}: {visit.reason}")


def _dropped_by_phase(visits: Sequence[Visit], files: RunFiles) -> End | None:
    """Return the end of a record that is not in the output, if a stage over the whole corpus has dropped records.

    Which ones it dropped depends on all records and is not recomputed, so the files for dropped records tell.
    """
    rules: dict[str, list[str]] = {}
    for record in files.records:
        for number, tally in record.tally.stages.items():
            if tally.dropped and number < len(files.stages) and isinstance(files.stages[number], PhaseReader):
                rules.setdefault(files.stages[number].name, []).extend(tally.reasons)
    passed = [visit for visit in visits if visit.stage in rules and visit.line]
    folder, dropped = files.dropped_files()
    for visit in passed:
        start = dropped_start(visit.line, visit.stage)
        for path in [join(folder or "", file.path) for file in dropped if not escapes_folder(file.path)]:
            number_found = files.find_line(path, start, files.options, is_start=True)
            if number_found is not None:
                text = f"dropped by {visit.stage}, rule {_names(rules[visit.stage])}: {path}, line {number_found:,}"
                return End(visit.id, "dropped", text, path, number_found, stage=visit.stage)
    if not passed:
        return None
    by = " or ".join(f"{visit.stage}, rule {_names(rules[visit.stage])}" for visit in passed)
    stage = passed[0].stage if len(passed) == 1 else ""
    return End(passed[0].id, "dropped", f"dropped by {by}, since the output does not have it", stage=stage)


def without_later(visits: Sequence[Visit], ends: Sequence[End]) -> list[Visit]:
    """Return the visits with the drops that only the files tell, and without those that a record did not come to."""
    by = {end.id: end.stage for end in ends if end.stage}
    left: list[Visit] = []
    gone: set[str] = set()
    for visit in visits:
        if visit.id not in gone:
            left.append(replace(visit, result="dropped") if by.get(visit.id) == visit.stage else visit)
        if by.get(visit.id) == visit.stage:
            gone.add(visit.id)
    return left


def _names(rules: Sequence[str]) -> str:
    return " or ".join(dict.fromkeys(rules))


def _bounds(threshold: Any) -> str:
    """Return the parameters of a rule as text: `min_words=50, max_words=100000`."""
    if isinstance(threshold, dict):
        return ", ".join(f"{name}={value}" for name, value in threshold.items())
    return str(threshold)


def _with_location(end: End, line: bytes, folder: str | None, outputs: Sequence[OutputFile], files: RunFiles) -> End:
    """Return the end with the file that holds the record."""
    if folder is None:
        return end
    names = [file.path for file in outputs if not escapes_folder(file.path)]
    for name in names:
        path = join(folder, name)
        number = files.find_line(path, line, files.options)
        if number is None and end.kind == "dropped" and "/" in end.id:
            # In the run a child may have another id, because its parent was in a batch with other records.
            number = files.find_line(path, without_id(line), files.options, is_start=True)
        if number is not None:
            return replace(end, text=f"{end.text}: {path}, line {number:,}", file=path, line=number)
    if names and not any(DATA_FILE.fullmatch(name) and not _is_parquet(name) for name in names):
        path = join(folder, names[0])
        what = "a Parquet file, not searched" if _is_parquet(names[0]) else "not searched"
        others = f" and {counted(len(names) - 1, 'other file')}" if len(names) > 1 else ""
        return replace(end, text=f"{end.text}: {path}{others} ({what})", file=path)
    where = f"in {' or '.join(names)}" if names else "in any output file of its unit"
    return replace(end, kind="unknown", text=f"would be {end.text} now, but it was not found {where}")


def _is_parquet(name: str) -> bool:
    """Return True if the file is a Parquet file, which has no lines."""
    return name.endswith(".parquet")
