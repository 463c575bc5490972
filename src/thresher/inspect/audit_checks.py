# SPDX-License-Identifier: Apache-2.0
"""Checks of an audit: the counts of ledger, manifest and report against each other and against the existing files.

Run folders are untrusted: a name that leads out of its folder is a difference and is not followed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thresher.core.arguments.sizes import counted
from thresher.core.files.filesystem import is_hidden
from thresher.core.tally import StageTally, Tally, counts_add_up
from thresher.ledger.records import CommitRecord, ManifestLine, OutputFile, manifest_lines, split_retry
from thresher.ledger.stores.store import escapes_folder, is_temporary

_COUNTS = ("read", "written", "dropped", "quarantined")
_STAGE_COUNTS = ("in_docs", "out_docs", "created", "merged", "dropped", "quarantined")


@dataclass
class AuditCheck:
    """Result of one check."""

    name: str
    """Short name."""
    proven: str = ""
    """Statement of what was verified, with figures."""
    differences: list[str] = field(default_factory=list)
    """Differences, each a sentence."""


def total_of(records: Iterable[CommitRecord]) -> Tally:
    """Return the sum of the tallies of the ledger."""
    total = Tally(stages={})
    for record in records:
        total.add(record.tally)
    return total


# -- counts -----------------------------------------------------------------------------------------------------------


def check_ledger(records: Sequence[CommitRecord], writes: bool) -> AuditCheck:
    """Check each line of the ledger: its counts add up, and its files match its counts."""
    check = AuditCheck("ledger")
    by_unit = {record.unit: record for record in records}
    for record in records:
        totals = record.tally.totals()
        reported = {name: getattr(record, name) for name in _COUNTS}
        if reported != {name: totals[name] for name in _COUNTS}:
            check.differences.append(f"unit {record.unit}: its counts {reported} are not those of its stages {totals}")
        if not counts_add_up(totals, record.tally.handed_on):
            check.differences.append(f"unit {record.unit}: its counts do not add up: {_equation(totals)}")
        in_files = sum(file.records for file in record.outputs)
        should = sum(by_unit[unit].written for unit in record.joined if unit in by_unit)
        expected = should if record.joined else record.written
        if record.handed_on:
            expected = max(record.tally.handed_on, 0) or in_files
        if writes and in_files != expected:
            check.differences.append(
                f"unit {record.unit}: {expected:,} records were written, and its files hold {in_files:,}"
            )
    retries = sum(1 for record in records if split_retry(record.unit)[1])
    check.proven = f"{counted(len(records), 'line')}; the counts of each add up" + (
        f"; {counted(retries, 'retry', 'retries')}" * bool(retries)
    )
    return check


def check_sent(records: Sequence[CommitRecord], received: dict[str, int]) -> AuditCheck:
    """Check that what units sent to outlets is in their files, and what the outlets have read, as far as they are done.

    `received`: the number of records that each of these outlets has read.
    """
    check = AuditCheck("outlets")
    sent = total_of(records).sent()
    for outlet in sorted(sent.keys() | {name for record in records for name in record.sent}):
        in_files = sum(record.sent[outlet].records for record in records if outlet in record.sent)
        for what, n in (("are in the files for it", in_files), ("were read there", received.get(outlet, in_files))):
            if n != sent.get(outlet, 0):
                check.differences.append(f"{sent.get(outlet, 0):,} records were sent to {outlet}, and {n:,} {what}")
    check.proven = ", ".join(f"{n:,} records sent to {outlet}" for outlet, n in sorted(sent.items()))
    return check


def check_counts(total: Tally, has_writer: bool = True) -> AuditCheck:
    """Check that the counts of the whole run add up."""
    totals = total.totals()
    check = AuditCheck("counts", _equation(totals, "written" if has_writer else "passed"))
    if not counts_add_up(totals):
        check.differences.append(f"the counts of the run do not add up: {_equation(totals)}")
    if total.handed_on:
        check.differences.append(f"{total.handed_on:,} records were handed on by a phase and not received by the next")
    check.differences += [f"{name} is {n:,}, and cannot be below 0" for name, n in totals.items() if n < 0]
    return check


def check_stages(total: Tally, names: Sequence[str], intermediate: Sequence[str] = ()) -> AuditCheck:
    """Check that the counts of each stage add up, and that nothing is lost between two stages.

    `intermediate`: names of stages that count something else than the records of the pipeline.
    """
    check = AuditCheck(
        "stages", f"{counted(len(names), 'stage')}; the counts of each add up, and what leaves one enters the next"
    )
    before: tuple[str, int] | None = None
    for number, name in enumerate(names):
        stage = total.stages.get(number) or StageTally()
        came = stage.in_docs + stage.created
        sent = sum(stage.sent.values())
        went = stage.out_docs + stage.dropped + stage.quarantined + stage.merged + sent
        if came != went:
            check.differences.append(
                f"stage {name}: {stage.in_docs:,} in + {stage.created:,} created is not {stage.out_docs:,} out + "
                f"{stage.dropped:,} dropped + {stage.quarantined:,} quarantined + {stage.merged:,} merged"
                + f" + {sent:,} sent"
                * bool(sent)
            )
        if name in intermediate:
            continue
        if before is not None and before[1] != stage.in_docs:
            check.differences.append(
                f"{counted(before[1], 'record')} left {before[0]}, and {stage.in_docs:,} entered {name}"
            )
        before = (name, stage.out_docs)
    return check


def _equation(totals: dict[str, int], left: str = "written") -> str:
    """Return the counts as an equation; `left` is the word for the records that passed all stages."""
    parts = {name: f"{n:,} {left if name == 'written' else name}" for name, n in totals.items()}
    came = [parts["read"]] + [parts["created"]] * bool(totals["created"])
    went = [parts[name] for name in ("written", "dropped", "quarantined")]
    went += [parts[name] for name in ("merged", "sent") if totals.get(name)]
    return f"{' + '.join(came)} = {' + '.join(went)}"


def check_report(
    report: Any, records: Sequence[CommitRecord], names: Sequence[str], manifest: Sequence[str]
) -> AuditCheck:
    """Compare the report with the ledger; `manifest` holds the names of the output files."""
    check = AuditCheck("report", "counts, stages, reasons and output files are those of the ledger")
    if not isinstance(report, dict):
        check.differences.append("report.json is missing or is not a report")
        return check
    total = total_of(records)
    if report.get("counts") != total.totals():
        check.differences.append(f"the report says {report.get('counts')}, the ledger {total.totals()}")
    reported = report.get("stages")
    entries = [entry for entry in reported if isinstance(entry, dict)] if isinstance(reported, list) else []
    if [entry.get("name") for entry in entries] != list(names):
        check.differences.append("the stages of the report are not those of the plan")
    for number, entry in enumerate(entries[: len(names)]):
        stage = total.stages.get(number) or StageTally()
        wrong = [name for name in _STAGE_COUNTS if entry.get(name) != getattr(stage, name)]
        check.differences += [
            f"stage {names[number]}: the report says {entry.get(name)!r} {name}, the ledger {getattr(stage, name):,}"
            for name in wrong
        ]
    for key, what in (("drop_reasons", "reasons"), ("quarantine_reasons", "errors")):
        summed = _reasons(total, names, what)
        if report.get(key) != summed:
            check.differences.append(f"{key} of the report are {report.get(key)}, those of the ledger {summed}")
    paths = report.get("output_paths")
    listed = [str(path).rsplit("/", 1)[-1] for path in paths] if isinstance(paths, list) else []
    if listed != [name.rsplit("/", 1)[-1] for name in manifest]:
        check.differences.append(
            f"the report lists {len(listed):,} output files, the manifest {len(manifest):,} others"
        )
    return check


def _reasons(total: Tally, names: Sequence[str], what: str) -> dict[str, int]:
    return {
        f"{names[number]}/{reason}": n
        for number, stage in total.stages.items()
        if number < len(names)
        for reason, n in getattr(stage, what).items()
        if n
    }


def check_manifest(manifest: Sequence[ManifestLine], records: Sequence[CommitRecord]) -> AuditCheck:
    """Compare the manifest with the ledger."""
    check = AuditCheck("manifest", f"{counted(len(manifest), 'file')}, as in the ledger")
    reported = {line.path: line for line in manifest}
    known = {line.path: line for line in manifest_lines(records)}
    check.differences += [f"{name} is in the manifest and not in the ledger" for name in reported if name not in known]
    check.differences += [f"{name} is in the ledger and not in the manifest" for name in known if name not in reported]
    check.differences += [
        f"{name}: the manifest says {_facts(reported[name])}, the ledger {_facts(known[name])}"
        for name in reported
        if name in known and reported[name] != known[name]
    ]
    if len(reported) != len(manifest):
        check.differences.append("the manifest names a file twice")
    return check


def _facts(line: ManifestLine) -> str:
    size = f"{counted(line.bytes, 'byte')}, {counted(line.records, 'record')}"
    return f"{size}, SHA-256 {line.sha256[:12]}…, {counted(len(line.units), 'unit')}"


def check_quarantine(records: Sequence[CommitRecord], entries: dict[str, int]) -> AuditCheck:
    """Compare the quarantine with the ledger; `entries` has the number of records by unit."""
    check = AuditCheck("quarantine")
    should: dict[str, int] = {}
    for record in records:
        unit = split_retry(record.unit)[0]
        should[unit] = should.get(unit, 0) + record.quarantined
    for unit in sorted(should.keys() | entries.keys()):
        if should.get(unit, 0) != entries.get(unit, 0):
            check.differences.append(
                f"unit {unit}: {should.get(unit, 0):,} records were quarantined, and {entries.get(unit, 0):,} are there"
            )
    check.proven = f"{counted(sum(entries.values()), 'record')}, as many as the ledger says"
    return check


# -- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundFile:
    """Measured facts of a file."""

    nbytes: int
    """Size of the file."""
    sha256: str
    """SHA-256 of the file."""
    records: int | None
    """Number of records; `None` if it is unknown."""


Measure = Callable[[OutputFile], FoundFile | None]
"""Function that measures a file; it returns `None` if the file is missing."""


def check_files(name: str, expected: Sequence[OutputFile], measure: Measure) -> AuditCheck:
    """Check that every expected file exists and is unchanged since its commit."""
    check = AuditCheck(name)
    nbytes = records = 0
    for file in expected:
        if escapes_folder(file.path):
            check.differences.append(f"{file.path}: the name leads out of the folder, so it was not looked at")
            continue
        found = measure(file)
        if found is None:
            check.differences.append(f"{file.path} is missing: {counted(file.records, 'record')}")
            continue
        check.differences += list(_file_differences(file, found))
        nbytes += found.nbytes
        records += (found.records or 0) if file.records else 0
    check.proven = (
        f"{counted(len(expected), 'file')}, {counted(nbytes, 'byte')}, {counted(records, 'record')}: "
        "size, SHA-256 and records of each"
        if expected
        else "no files, and there should be none"
    )
    return check


def _file_differences(file: OutputFile, found: FoundFile) -> Iterator[str]:
    if found.nbytes != file.bytes:
        yield f"{file.path} has {counted(found.nbytes, 'byte')}, and had {file.bytes:,} when it was committed"
    elif found.sha256 != file.sha256:
        yield f"{file.path} was changed: SHA-256 {found.sha256[:12]}…, and was {file.sha256[:12]}…"
    elif found.records is not None and file.records and found.records != file.records:
        yield f"{file.path} holds {counted(found.records, 'record')}, and should hold {file.records:,}"


def check_strays(name: str, there: Iterable[str], known: Iterable[str]) -> AuditCheck:
    """Find names in a folder that belong to no run: foreign files, and leftovers of unfinished ones.

    `there` has the names directly in the folder, and the files below the folders that belong to units.
    """
    ours = set(known)
    check = AuditCheck(name, "nothing else lies there")
    for entry in there:
        if is_temporary(entry) or entry.startswith(".thresher-"):
            check.differences.append(f"{entry} is left of a process that was ended; the next attempt removes it")
        elif not is_hidden(entry) and entry not in ours:
            check.differences.append(f"{entry} belongs to no run in this folder")
    return check
