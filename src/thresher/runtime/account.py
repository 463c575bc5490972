# SPDX-License-Identifier: Apache-2.0
"""The whole account of one record: where it was read, what the stages did to it, and where it ended.

What the run itself wrote down comes first: the ledger, the quarantine, the files. What is found by doing it again is
looked for in the files before it is told as a fact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from thresher.core.filesystem import StorageOptions, join
from thresher.core.fingerprint import fingerprint
from thresher.core.plan import Plan
from thresher.errors import UsageError
from thresher.ledger.checks import changed_parts
from thresher.ledger.find import output_folder, read_commits, read_run, read_units
from thresher.ledger.locate import AN_ID, Located, locate
from thresher.ledger.quarantine_entries import QuarantineEntry, read_entries, read_lines
from thresher.ledger.records import CommitRecord, OutputFile
from thresher.ledger.request import RunState
from thresher.ledger.retries import RETRIED, latest_retries, open_files, split_retry
from thresher.ledger.store import leads_out, open_store
from thresher.runtime.retry_source import batch_of, may_be_retried
from thresher.runtime.story import JudgedRules, Telling, Visit, find_record, is_related
from thresher.version import __version__

FindLine = Callable[[str, bytes, StorageOptions], int | None]
"""The number of a line in a file; `None` if it is not there."""


@dataclass(frozen=True)
class End:
    """Where a record ended."""

    id: str
    """Of the record."""
    kind: str
    """`written`, `dropped`, `quarantined`, `not-reached`, `fails-now` or `unknown`."""
    text: str
    """The same for people, with what is certain about it."""
    file: str | None = None
    """The file that it is in."""
    line: int | None = None
    """Number of its line there, where it was looked for and found."""
    entry: QuarantineEntry | None = None
    """What the quarantine says."""


@dataclass(frozen=True)
class Account:
    """All of it."""

    id: str
    """Of the record."""
    located: Located
    """Where it is in the input."""
    unit: str
    """Its unit."""
    commit: CommitRecord | None
    """What the ledger says of its unit; `None` if that is not committed."""
    record: bytes = b""
    """The record as it is in the input."""
    visits: Sequence[Visit] = ()
    """What the stages did to it."""
    ends: Sequence[End] = ()
    """Where it ended; several where it became several records."""
    notes: list[str] = field(default_factory=list)
    """What limits what could be told."""


@dataclass(frozen=True)
class Asked:
    """What an account is made of."""

    run_dir: str
    """The run folder."""
    options: dict[str, Any]
    """How to open it, if it is a URL."""
    plan: Plan | None
    """The pipeline; `None` where it is not known."""
    judged_rules: JudgedRules
    """How rules are asked."""
    find_line: FindLine
    """How a line is looked for."""


def account_of(record_id: str, asked: Asked) -> Account:
    """Tell what happened to a record; `UsageError` if there is no such record."""
    state = read_run(asked.run_dir, asked.options)
    records = read_commits(asked.run_dir, asked.options)
    located = locate(record_id, read_units(asked.run_dir, asked.options))
    commits = {record.unit: record for record in records}
    account = Account(record_id, located, located.unit.id, commits.get(located.unit.id))
    if asked.plan is None or asked.plan.source is None:
        account.notes.append("the stages are not known here, so scores are not told")
        cut = [unit for unit in commits if unit.partition("-")[0] == located.root.partition(":")[0]]
        units = cut if located.unit.stream else [located.unit.id]
        entries = [e for unit in units for e in _entries(asked, records, unit) if e.id == record_id]
        return replace(account, ends=[_set_aside(entry) for entry in entries] or [_unknown(account)])
    changes = changed_parts(state.fingerprint_parts, fingerprint(asked.plan.stages, __version__))
    if changes:
        account.notes.append(f"changed since the run: {'; '.join(changes)}. The stages below are those of now")
    found = find_record(asked.plan.source, located)
    if found is None:
        place = "row" if located.is_row else "byte"
        raise UsageError(
            f"{record_id}: no record begins at {place} {located.position:,} of {located.piece.path}. {AN_ID}"
        )
    account = replace(account, unit=found.unit, commit=commits.get(found.unit), record=found.line)
    entries = _entries(asked, records, found.unit)
    own = [entry for entry in entries if entry.id == record_id]
    if own or found.batch is None:
        ends = [_set_aside(entry) for entry in own]
        account = replace(account, ends=ends or [End(record_id, "fails-now", f"cannot be read: {found.error}")])
    if found.batch is None or ("/" in record_id and own):
        return account
    aside = frozenset((entry.stage, entry.line or b"") for entry in entries)
    aside |= {(entry.stage, record_id.encode()) for entry in own}
    telling = Telling(asked.plan.stages, asked.judged_rules, aside)
    kept = _kept_child(asked, found.unit, record_id) if "/" in record_id else None
    if kept is None:
        visits = telling.visits(found.batch, record_id)
        _refuse_unborn(record_id, visits)
    else:
        account.notes.append(f"set aside by {kept.stage} in the run, and tried again since; told from there on")
        first = [stage.name for stage in asked.plan.stages].index(kept.stage)
        visits = telling.visits(batch_of([kept]), record_id, first)
    account = replace(account, visits=visits)
    if own:
        return account
    return replace(account, ends=list(_ends(account, asked, state, records, entries)))


def _entries(asked: Asked, records: Sequence[CommitRecord], unit: str) -> list[QuarantineEntry]:
    """What is in quarantine now of a unit."""
    store = open_store(asked.run_dir, asked.options)
    files = open_files(store, latest_retries(record.unit for record in records))
    return list(read_entries(store, files[unit])) if unit in files else []


def _kept_child(asked: Asked, unit: str, record_id: str) -> QuarantineEntry | None:
    """A child that was set aside and is in quarantine no more: what was kept of it."""
    store = open_store(asked.run_dir, asked.options)
    names = [name for name in store.names(RETRIED) if split_retry(name.removesuffix(".jsonl"))[0] == unit]
    found = (entry for name in names for _, entry in read_lines(store, f"{RETRIED}/{name}") if entry.id == record_id)
    assert asked.plan is not None, "checked before"
    stages = [stage.name for stage in asked.plan.stages]
    return next((entry for entry in found if may_be_retried(entry, stages)), None)


def _refuse_unborn(record_id: str, visits: Sequence[Visit]) -> None:
    """A child that no stage makes is no record."""
    born = {visit.id for visit in visits} | {child for visit in visits for child in visit.children}
    if "/" in record_id and record_id not in born:
        made = sorted(name for name in born if "/" in name)
        has = f"It became {', '.join(made[:5])}{' …' * (len(made) > 5)}" if made else "No stage made others of it"
        raise UsageError(
            f"{record_id}: doing it again gives no such record. {has}. Children are named after the first record of "
            f"the batch that they were made in, so one that was not set aside is better found by --text. {AN_ID}"
        )


# -- ends -------------------------------------------------------------------------------------------------------------


def _set_aside(entry: QuarantineEntry) -> End:
    text = f"quarantined by {entry.stage} after {entry.attempts} attempts: {entry.error}: {entry.message}"
    return End(entry.id or "", "quarantined", text, entry=entry)


def _unknown(account: Account) -> End:
    if account.commit is None:
        return End(account.id, "not-reached", "its unit is not committed yet")
    return End(account.id, "unknown", "its unit is committed; whether it was written or dropped is not known here")


def _ends(
    account: Account, asked: Asked, state: RunState, records: Sequence[CommitRecord], entries: list[QuarantineEntry]
) -> list[End]:
    """One for each record in which the wanted one ended."""
    aside = {(entry.stage, entry.line): entry for entry in entries}
    last = {visit.id: visit for visit in account.visits}
    leaves = [visit for visit in last.values() if visit.result not in ("became", "passed", "changed")]
    own = [visit for visit in leaves if is_related(visit.id, account.id)]
    ends = []
    for visit in own:
        if visit.result == "set aside":
            ends += [_set_aside(aside[visit.stage, visit.line])] if (visit.stage, visit.line) in aside else []
        elif account.commit is None:
            ends.append(End(visit.id, "not-reached", "its unit is not committed yet; this is what will happen to it"))
        else:
            ends.append(_recomputed(visit, account.unit, asked, state, records))
    return ends or [_unknown(account)]


def _recomputed(visit: Visit, unit: str, asked: Asked, state: RunState, records: Sequence[CommitRecord]) -> End:
    if visit.result == "dropped":
        text = f"dropped by {visit.stage}, rule {visit.reason}" if visit.line else f"dropped by {visit.stage}"
        text += f": score {visit.score!r}, allowed {visit.threshold}" if visit.threshold is not None else ""
        files = [file for record in _of_unit(unit, records) for file in record.dropped_outputs]
        return _looked_for(End(visit.id, "dropped", text), visit.line, state.dropped_to, files, asked)
    if visit.result == "written":
        files = [file for record in _of_unit(unit, records) if not record.part for file in record.outputs]
        files += [file for record in records if unit in record.joined for file in record.outputs]
        return _looked_for(
            End(visit.id, "written", "written"), visit.line, output_folder(asked.run_dir, state), files, asked
        )
    if visit.result == "failed":
        return End(visit.id, "fails-now", f"fails now in {visit.stage} ({visit.reason}), and did not in the run")
    return End(visit.id, "unknown", f"not known beyond {visit.stage}: {visit.reason}")


def _of_unit(unit: str, records: Sequence[CommitRecord]) -> list[CommitRecord]:
    """The records of the ledger for a unit and its retries."""
    return [record for record in records if split_retry(record.unit)[0] == unit]


def _looked_for(end: End, line: bytes, folder: str | None, files: Sequence[OutputFile], asked: Asked) -> End:
    """The same, with the file that holds the record."""
    if folder is None:
        return end
    names = [file.path for file in files if not leads_out(file.path)]
    for name in names:
        path = join(folder, name)
        number = asked.find_line(path, line, asked.options)
        if number is not None:
            return replace(end, text=f"{end.text}: {path}, line {number:,}", file=path, line=number)
    if len(names) == 1 and name_of_table(names[0]):
        path = join(folder, names[0])
        return replace(end, text=f"{end.text}: {path} (a Parquet file, not searched)", file=path)
    where = f"in {' or '.join(names)}" if names else "in any output file of its unit"
    return replace(end, kind="unknown", text=f"would be {end.text} now, but it was not found {where}")


def name_of_table(name: str) -> bool:
    """Whether a file holds no lines."""
    return name.endswith(".parquet")
