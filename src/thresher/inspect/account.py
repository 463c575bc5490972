# SPDX-License-Identifier: Apache-2.0
"""The history of one record: where it was read, what the stages did to it, and where it ended, in the pipeline or in
one of its outlets. The files of the run come first: ledger, quarantine, output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from thresher.core.outlets import KEPT_STREAMS
from thresher.core.pipeline import Pipeline
from thresher.core.planning.fingerprint import fingerprint
from thresher.core.planning.plan import Plan, PlanSettings, make_plan
from thresher.core.registry import OUTLET_READER, resolve
from thresher.errors import RefusedError, UsageError
from thresher.inspect.ends import End, FindLine, RunFiles, ends_of, quarantined_end, without_later
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
from thresher.ledger.folder.find import read_commits, read_run, read_units
from thresher.ledger.folder.outlets import finished_outlets
from thresher.ledger.folder.request import RunState, changed_parts
from thresher.ledger.quarantine import RETRIED, QuarantineEntry, current_files, read_entries, read_lines
from thresher.ledger.records import CommitRecord, latest_retries, split_retry
from thresher.ledger.stores.store import open_store
from thresher.runtime.outlets import with_reader
from thresher.version import __version__


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
    """Effect of each stage on it."""
    ends: Sequence[End] = ()
    """Ends of the record; several if it became several records."""
    notes: list[str] = field(default_factory=list)
    """Limits of this account."""


@dataclass(frozen=True)
class Branch:
    """A pipeline as it is now: what continues an outlet, or the pipeline itself."""

    plan: Plan
    """Plan of its stages."""
    outlets: Mapping[str, Branch] = field(default_factory=dict)
    """The run that continues each of its outlets; those of the framework are left out."""


def planned(pipeline: Pipeline) -> Branch:
    """Return a pipeline and its outlets, ready to run single records again."""
    outlets = {name: branch for name, branch in pipeline.outlets.items() if name not in KEPT_STREAMS}
    return Branch(
        make_plan(pipeline, PlanSettings(whole_records=True)),
        {name: planned(with_reader(branch, resolve(OUTLET_READER)(name))) for name, branch in outlets.items()},
    )


@dataclass(frozen=True)
class AccountRequest:
    """Inputs of an account."""

    run_dir: str
    """Run folder."""
    options: dict[str, Any]
    """Options for opening it, if it is a URL."""
    branch: Branch | None
    """The pipeline; `None` if it is unknown."""
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
    if request.branch is None or request.branch.plan.source is None:
        account.notes.append("the stages are not known here, so there are no scores")
        cut = [unit for unit in commits if unit.partition("-")[0] == located.root.partition(":")[0]]
        units = cut if located.unit.stream else [located.unit.id]
        entries = [e for unit in units for e in _entries(request, records, unit) if e.holds(record_id)]
        return replace(account, ends=[quarantined_end(entry) for entry in entries] or [_unknown(account)])
    plan = request.branch.plan
    assert plan.source is not None, "checked before"
    changes = changed_parts(state.fingerprint_parts, fingerprint(plan.stages, __version__, plan.outlets))
    if changes:
        account.notes.append(f"changed since the run: {'; '.join(changes)}. The stages below are those of now")
    found = find_record(plan.source, located)
    if found is None:
        unit_word = "row" if located.is_row else "byte"
        raise UsageError(
            f"{record_id}: no record begins at {unit_word} {located.position:,} of {located.piece.path}. {ID_FORMAT}"
        )
    account = replace(account, unit=found.unit, commit=commits.get(found.unit), record=found.line)
    entries = _entries(request, records, found.unit)
    own = [entry for entry in entries if entry.holds(record_id)]
    if own or found.batch is None:
        ends = [quarantined_end(entry) for entry in own]
        account = replace(account, ends=ends or [End(record_id, "fails-now", f"cannot be read: {found.error}")])
    if found.batch is None or ("/" in record_id and own):
        return account
    recomputation = _recomputation(request, request.branch, entries, record_id)
    kept = _retried_child(request, plan, found.unit, record_id) if "/" in record_id else None
    if kept is None:
        visits = recomputation.visits(found.batch, record_id)
        _refuse_unknown_child(record_id, visits)
    else:
        account.notes.append(f"quarantined by {kept.stage} in the run and retried since; shown from there on")
        first = [stage.name for stage in plan.stages].index(kept.stage)
        visits = recomputation.visits(batch_of(plan.source, [kept]), record_id, first)
    account = replace(account, visits=visits)
    related = [visit for visit in visits if is_related(visit.id, record_id)]
    if not own and account.commit is None:
        account = replace(account, ends=_not_reached(related))
    elif not own:
        files = _files(request, plan, state, records, found.unit)
        ends = ends_of(related, entries, files)
        account = replace(account, visits=without_later(visits, ends), ends=ends or [_unknown(account)])
    return account if account.commit is None else _followed(account, related, request)


def _recomputation(
    request: AccountRequest, branch: Branch, entries: Sequence[QuarantineEntry], record_id: str
) -> Recomputation:
    """Return what runs the stages of a pipeline again; stages do not run on what they quarantined."""
    aside = frozenset((entry.stage, entry.line or b"") for entry in entries)
    aside |= {(entry.stage, record_id.encode()) for entry in entries if entry.holds(record_id)}
    return Recomputation(branch.plan.stages, request.judged_rules, aside, request.run_dir, request.options)


def _files(
    request: AccountRequest, plan: Plan, state: RunState, records: Sequence[CommitRecord], unit: str | None
) -> RunFiles:
    return RunFiles(request.run_dir, request.options, plan.stages, state, records, request.find_line, unit)


def _entries(request: AccountRequest, records: Sequence[CommitRecord], unit: str | None) -> list[QuarantineEntry]:
    """Return the current quarantine entries of a unit and of later phases; those of all units if it is `None`."""
    store = open_store(request.run_dir, request.options)
    files = current_files(store, latest_retries(record.unit for record in records))
    later = [record.unit for record in records if record.phase or unit is None]
    units = later if unit is None else [unit, *later]
    return [entry for one in units if one in files for entry in read_entries(store, files[one])]


def _retried_child(request: AccountRequest, plan: Plan, unit: str, record_id: str) -> QuarantineEntry | None:
    """Return the former quarantine entry of a child that was retried since."""
    store = open_store(request.run_dir, request.options)
    names = [name for name in store.names(RETRIED) if split_retry(name.removesuffix(".jsonl"))[0] == unit]
    found = (entry for name in names for _, entry in read_lines(store, f"{RETRIED}/{name}") if entry.id == record_id)
    stages = [stage.name for stage in plan.stages]
    return next((entry for entry in found if may_be_retried(entry, stages)), None)


def _unknown(account: Account) -> End:
    if account.commit is None:
        return End(account.id, "not-reached", "its unit is not committed yet")
    return End(account.id, "unknown", "its unit is committed; whether it was written or dropped is not known here")


def _not_reached(visits: Sequence[Visit]) -> list[End]:
    """Return the ends of records whose unit is not committed."""
    text = "its unit is not committed yet; this is what will happen to it"
    return [End(name, "not-reached", text) for name in dict.fromkeys(visit.id for visit in visits if visit.is_last)]


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


# -- outlets ----------------------------------------------------------------------------------------------------------


def _followed(account: Account, visits: Sequence[Visit], request: AccountRequest) -> Account:
    """Return the account with what happened to the record in the outlets that it was sent or copied to."""
    ends = [end for end in account.ends if end.kind != "sent"]
    later: list[Visit] = []
    for visit in visits:
        if visit.sent is not None:
            more, theirs = _in_outlet(visit, request)
            later, ends = [*later, *more], [*ends, *theirs]
    return replace(account, visits=[*account.visits, *later], ends=ends)


def _in_outlet(visit: Visit, request: AccountRequest) -> tuple[list[Visit], list[End]]:
    """Return what happened to a record in an outlet, and in outlets of that one."""
    outlet, branch = visit.reason, request.branch and request.branch.outlets.get(visit.reason)
    how = f"{visit.result} to the outlet {outlet} by {visit.stage}"
    run_dir = finished_outlets(request.run_dir, request.options).get(outlet)
    if branch is None or run_dir is None:
        why = "which has not been run to its end" if run_dir is None else "which the recipe does not have"
        return [], [End(visit.id, "sent", f"{how}, {why}", outlet=outlet)]
    assert visit.sent is not None, "checked before"
    own_options = dict((branch.plan.sink.storage_options if branch.plan.sink else None) or request.options)
    inside = replace(request, run_dir=run_dir, options=own_options, branch=branch)
    try:
        state, records = read_run(run_dir, own_options), read_commits(run_dir, own_options)
    except RefusedError as error:
        return [], [End(visit.id, "sent", f"{how}, whose run cannot be read: {error}", outlet=outlet)]
    entries = _entries(inside, records, None)
    visits = _recomputation(inside, branch, entries, visit.id).visits(visit.sent, visit.id)
    ends = [quarantined_end(entry) for entry in entries if entry.holds(visit.id)]
    if not ends:
        ends = ends_of(visits, entries, _files(inside, branch.plan, state, records, None))
        visits = without_later(visits, ends)
    later: list[Visit] = []
    inner: list[End] = []
    for one in visits:
        if one.sent is not None:
            more, theirs = _in_outlet(one, inside)
            later, inner = [*later, *more], [*inner, *theirs]
    ends = [*(end for end in ends if end.kind != "sent"), *inner]
    told = [replace(end, text=f"{how}: {end.text}", outlet=_within(outlet, end.outlet)) for end in ends]
    return [replace(one, stage=_within(outlet, one.stage)) for one in (*visits, *later)], told


def _within(outlet: str, name: str) -> str:
    """Return the name of a stage or outlet inside an outlet, as settings on the command line name it."""
    return f"{outlet}.{name}" if name else outlet
