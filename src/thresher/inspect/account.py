# SPDX-License-Identifier: Apache-2.0
"""The history of one record: where it was read, what the stages did to it, and where it ended.

The files of the run come first: ledger, quarantine, output. A result that is recomputed is reported as a fact only if
it is found in the files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from thresher.core.arguments.sizes import counted
from thresher.core.files.filesystem import StorageOptions, join
from thresher.core.planning.fingerprint import fingerprint
from thresher.core.planning.plan import Plan
from thresher.errors import UsageError
from thresher.inspect.recompute import (
    ID_FORMAT,
    JudgedRules,
    Located,
    Recomputation,
    Visit,
    find_record,
    is_related,
    locate,
)
from thresher.inspect.retry_source import batch_of, may_be_retried
from thresher.ledger.folder.find import output_folder, read_commits, read_run, read_units
from thresher.ledger.folder.output_files import DATA_FILE
from thresher.ledger.folder.request import RunState, changed_parts
from thresher.ledger.quarantine import RETRIED, QuarantineEntry, current_files, read_entries, read_lines, without_id
from thresher.ledger.records import CommitRecord, OutputFile, latest_retries, split_retry
from thresher.ledger.stores.store import escapes_folder, open_store
from thresher.version import __version__


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
    """`written`, `dropped`, `quarantined`, `not-reached`, `fails-now` or `unknown`."""
    text: str
    """Description for the user, with how certain it is."""
    file: str | None = None
    """File that holds it."""
    line: int | None = None
    """Number of its line, if it was searched and found."""
    entry: QuarantineEntry | None = None
    """Entry in the quarantine."""


@dataclass(frozen=True)
class Account:
    """The history of one record."""

    id: str
    """Id of the record."""
    located: Located
    """Location in the input."""
    unit: str
    """Id of its unit."""
    commit: CommitRecord | None
    """Commit record of its unit; `None` if it is not committed."""
    record: bytes = b""
    """The record in the input."""
    visits: Sequence[Visit] = ()
    """What each stage did to it."""
    ends: Sequence[End] = ()
    """Ends of the record; several if it became several records."""
    notes: list[str] = field(default_factory=list)
    """Limits of this account."""


@dataclass(frozen=True)
class AccountRequest:
    """Inputs of an account."""

    run_dir: str
    """Run folder."""
    options: dict[str, Any]
    """Options for opening it, if it is a URL."""
    plan: Plan | None
    """Plan of the pipeline; `None` if it is unknown."""
    judged_rules: JudgedRules
    """Function that evaluates the rules of a stage."""
    find_line: FindLine
    """Function that finds a line in a file."""


def account_of(record_id: str, request: AccountRequest) -> Account:
    """Return the history of a record; raise `UsageError` if there is no such record."""
    state = read_run(request.run_dir, request.options)
    records = read_commits(request.run_dir, request.options)
    located = locate(record_id, read_units(request.run_dir, request.options))
    commits = {record.unit: record for record in records}
    account = Account(record_id, located, located.unit.id, commits.get(located.unit.id))
    if request.plan is None or request.plan.source is None:
        account.notes.append("the stages are not known here, so there are no scores")
        cut = [unit for unit in commits if unit.partition("-")[0] == located.root.partition(":")[0]]
        units = cut if located.unit.stream else [located.unit.id]
        entries = [e for unit in units for e in _entries(request, records, unit) if e.holds(record_id)]
        return replace(account, ends=[_quarantined_end(entry) for entry in entries] or [_unknown(account)])
    changes = changed_parts(
        state.fingerprint_parts, fingerprint(request.plan.stages, __version__, request.plan.outlets)
    )
    if changes:
        account.notes.append(f"changed since the run: {'; '.join(changes)}. The stages below are those of now")
    found = find_record(request.plan.source, located)
    if found is None:
        unit_word = "row" if located.is_row else "byte"
        raise UsageError(
            f"{record_id}: no record begins at {unit_word} {located.position:,} of {located.piece.path}. {ID_FORMAT}"
        )
    account = replace(account, unit=found.unit, commit=commits.get(found.unit), record=found.line)
    entries = _entries(request, records, found.unit)
    own = [entry for entry in entries if entry.holds(record_id)]
    if own or found.batch is None:
        ends = [_quarantined_end(entry) for entry in own]
        account = replace(account, ends=ends or [End(record_id, "fails-now", f"cannot be read: {found.error}")])
    if found.batch is None or ("/" in record_id and own):
        return account
    aside = frozenset((entry.stage, entry.line or b"") for entry in entries)
    aside |= {(entry.stage, record_id.encode()) for entry in own}
    recomputation = Recomputation(request.plan.stages, request.judged_rules, aside)
    kept = _retried_child(request, found.unit, record_id) if "/" in record_id else None
    if kept is None:
        visits = recomputation.visits(found.batch, record_id)
        _refuse_unknown_child(record_id, visits)
    else:
        account.notes.append(f"quarantined by {kept.stage} in the run and retried since; shown from there on")
        first = [stage.name for stage in request.plan.stages].index(kept.stage)
        visits = recomputation.visits(batch_of(request.plan.source, [kept]), record_id, first)
    account = replace(account, visits=visits)
    if own:
        return account
    return replace(account, ends=list(_ends(account, request, state, records, entries)))


def _entries(request: AccountRequest, records: Sequence[CommitRecord], unit: str) -> list[QuarantineEntry]:
    """Return the current quarantine entries of a unit."""
    store = open_store(request.run_dir, request.options)
    files = current_files(store, latest_retries(record.unit for record in records))
    later = [record.unit for record in records if record.phase]
    return [entry for one in (unit, *later) if one in files for entry in read_entries(store, files[one])]


def _retried_child(request: AccountRequest, unit: str, record_id: str) -> QuarantineEntry | None:
    """Return the former quarantine entry of a child that was retried since."""
    store = open_store(request.run_dir, request.options)
    names = [name for name in store.names(RETRIED) if split_retry(name.removesuffix(".jsonl"))[0] == unit]
    found = (entry for name in names for _, entry in read_lines(store, f"{RETRIED}/{name}") if entry.id == record_id)
    assert request.plan is not None, "checked before"
    stages = [stage.name for stage in request.plan.stages]
    return next((entry for entry in found if may_be_retried(entry, stages)), None)


def _refuse_unknown_child(record_id: str, visits: Sequence[Visit]) -> None:
    """Raise if the id is that of a child that no stage makes."""
    known_ids = {visit.id for visit in visits} | {child for visit in visits for child in visit.children}
    if "/" in record_id and record_id not in known_ids:
        made = sorted(name for name in known_ids if "/" in name)
        has = f"It became {', '.join(made[:5])}{' …' * (len(made) > 5)}" if made else "No stage made others of it"
        raise UsageError(
            f"{record_id}: recomputing gives no such record. {has}. Children are named after the first record of "
            f"the batch that they were made in, so one that was not quarantined is better found by --text. {ID_FORMAT}"
        )


# -- ends -------------------------------------------------------------------------------------------------------------


def _quarantined_end(entry: QuarantineEntry) -> End:
    text = f"quarantined by {entry.stage} after {entry.attempts} attempts: {entry.error}: {entry.message}"
    return End(entry.id or "", "quarantined", text, entry=entry)


def _unknown(account: Account) -> End:
    if account.commit is None:
        return End(account.id, "not-reached", "its unit is not committed yet")
    return End(account.id, "unknown", "its unit is committed; whether it was written or dropped is not known here")


def _ends(
    account: Account,
    request: AccountRequest,
    state: RunState,
    records: Sequence[CommitRecord],
    entries: list[QuarantineEntry],
) -> list[End]:
    """Return one end for each record that the wanted one became."""
    aside = {(entry.stage, entry.line): entry for entry in entries}
    last = {visit.id: visit for visit in account.visits}
    leaves = [visit for visit in last.values() if visit.result not in ("became", "passed", "changed")]
    own = [visit for visit in leaves if is_related(visit.id, account.id)]
    ends = []
    for visit in own:
        if visit.result == "set aside":
            ends += [_quarantined_end(aside[visit.stage, visit.line])] if (visit.stage, visit.line) in aside else []
        elif account.commit is None:
            ends.append(End(visit.id, "not-reached", "its unit is not committed yet; this is what will happen to it"))
        else:
            ends.append(_recomputed(visit, account.unit, request, state, records))
    return ends or [_unknown(account)]


def _recomputed(
    visit: Visit, unit: str, request: AccountRequest, state: RunState, records: Sequence[CommitRecord]
) -> End:
    # In a later phase the record may be in any unit.
    own = [*_of_unit(unit, records), *(record for record in records if record.phase)]
    if visit.result == "dropped":
        text = f"dropped by {visit.stage}, rule {visit.reason}" if visit.line else f"dropped by {visit.stage}"
        text += f": score {visit.score!r} with {_bounds(visit.threshold)}" if visit.threshold is not None else ""
        files = [file for record in own for file in record.dropped_outputs]
        return _with_location(End(visit.id, "dropped", text), visit.line, state.dropped_to, files, request)
    if visit.result == "written":
        files = [file for record in own if not record.part and not record.handed_on for file in record.outputs]
        files += [file for record in records if unit in record.joined for file in record.outputs]
        return _with_location(
            End(visit.id, "written", "written"), visit.line, output_folder(request.run_dir, state), files, request
        )
    if visit.result == "sent":
        return End(visit.id, "sent", f"sent to the outlet {visit.reason} by {visit.stage}; ask the run of that outlet")
    if visit.result == "merged":
        return End(visit.id, "merged", f"part of the result of {visit.stage}")
    if visit.result == "failed":
        return End(visit.id, "fails-now", f"fails now in {visit.stage} ({visit.reason}), and did not in the run")
    return End(visit.id, "unknown", f"not known beyond {visit.stage}: {visit.reason}")


def _bounds(threshold: Any) -> str:
    """Return the parameters of a rule as text: `min_words=50, max_words=100000`."""
    if isinstance(threshold, dict):
        return ", ".join(f"{name}={value}" for name, value in threshold.items())
    return str(threshold)


def _of_unit(unit: str, records: Sequence[CommitRecord]) -> list[CommitRecord]:
    """Return the commit records of a unit and its retries."""
    return [record for record in records if split_retry(record.unit)[0] == unit]


def _with_location(
    end: End, line: bytes, folder: str | None, files: Sequence[OutputFile], request: AccountRequest
) -> End:
    """Return the end with the file that holds the record."""
    if folder is None:
        return end
    names = [file.path for file in files if not escapes_folder(file.path)]
    for name in names:
        path = join(folder, name)
        number = request.find_line(path, line, request.options)
        if number is None and end.kind == "dropped" and "/" in end.id:
            # In the run a child may have another id, because its parent was in a batch with other records.
            number = request.find_line(path, without_id(line), request.options, is_start=True)
        if number is not None:
            return replace(end, text=f"{end.text}: {path}, line {number:,}", file=path, line=number)
    if names and not any(DATA_FILE.fullmatch(name) and not _is_parquet(name) for name in names):
        path = join(folder, names[0])
        what = "a Parquet file, not searched" if _is_parquet(names[0]) else "not searched"
        others = f" and {counted(len(names) - 1, 'other file')} of its unit" if len(names) > 1 else ""
        return replace(end, text=f"{end.text}: {path}{others} ({what})", file=path)
    where = f"in {' or '.join(names)}" if names else "in any output file of its unit"
    return replace(end, kind="unknown", text=f"would be {end.text} now, but it was not found {where}")


def _is_parquet(name: str) -> bool:
    """Return True if the file is a Parquet file, which has no lines."""
    return name.endswith(".parquet")
