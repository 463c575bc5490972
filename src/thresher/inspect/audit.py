# SPDX-License-Identifier: Apache-2.0
"""Run all checks of an audit in order, and read the files that they need."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from thresher.core.files.filesystem import StorageOptions, join, open_read
from thresher.core.recipes.yaml_text import read_yaml
from thresher.core.tally import unknown_losses_text
from thresher.core.unit import Unit
from thresher.errors import InputError, RefusedError, UsageError
from thresher.inspect import audit_checks
from thresher.ledger.folder.find import output_folder, read_commits, read_json, read_manifest, read_run, read_units
from thresher.ledger.folder.outlets import finished_outlets
from thresher.ledger.folder.output_files import DATA_FILE
from thresher.ledger.folder.request import RUN_FOLDER, RunState
from thresher.ledger.quarantine import QUARANTINE, RecordFile, current_files, read_entries
from thresher.ledger.records import (
    INBOX,
    CommitRecord,
    ManifestLine,
    OutputFile,
    damaged_lines,
    latest_retries,
    manifest_lines,
)
from thresher.ledger.stores.store import is_temporary, open_store

T = TypeVar("T")
_READ_BYTES = 4 * 2**20
CountRecords = Callable[[str, StorageOptions], int | None]
"""Function that returns the number of records in a file."""
ReportProgress = Callable[[str, int, int], None]
"""Callback for progress: what is read, bytes so far, bytes in total."""


@dataclass
class Audit:
    """Result of an audit."""

    run_id: str
    """Id of the run."""
    checks: list[audit_checks.AuditCheck] = field(default_factory=list)
    """Checks in the order in which they were made."""
    notes: list[str] = field(default_factory=list)
    """Remarks that are not differences."""
    outlets: dict[str, str] = field(default_factory=dict)
    """Run folders of the outlets that were run to their end, by name."""

    @property
    def differences(self) -> list[str]:
        """Return the differences of all checks."""
        return [difference for check in self.checks for difference in check.differences]


def audit_run(
    run_dir: str, options: dict[str, Any], count_records: CountRecords, report_progress: ReportProgress
) -> Audit:
    """Verify a run folder and its output, without changing either."""
    state = read_run(run_dir, options)
    records = read_commits(run_dir, options)
    found = Audit(state.run_id)
    files = _RunFiles(run_dir, options, ended_well=bool(state.attempts) and state.attempts[-1].exit_code == 0)
    plan = files.json("plan.json")
    finished = _note_state(found, files, state, records, has_reader=_has_reader(plan))
    stages = plan.get("stages") if isinstance(plan, dict) else None
    names = [str(name) for name in stages] if isinstance(stages, list) else []
    intermediate = plan.get("intermediate", []) if isinstance(plan, dict) else []
    total = audit_checks.total_of(records)
    found.checks += [
        audit_checks.check_counts(total, state.output is not None),
        audit_checks.check_stages(total, names, intermediate),
    ]
    found.checks.append(audit_checks.check_ledger(records, state.output is not None))
    if finished:
        manifest: list[ManifestLine] = files.tried(read_manifest, [])
        found.checks.append(audit_checks.check_manifest(manifest, records))
        report = files.json("report.json")
        found.checks.append(audit_checks.check_report(report, records, names, [line.path for line in manifest]))
    found.checks.append(_check_quarantine(run_dir, options, records))
    _check_outlets(found, run_dir, options, records)
    unknown = sum(stage.unknown_losses for stage in total.stages.values())
    if unknown:
        found.notes.append(
            f"{unknown_losses_text(unknown)}; `thresher quarantine` names each. The counts hold for the other records"
        )
    _check_files(found, run_dir, state, records, (options, count_records, report_progress))
    files.json("metrics.json")
    files.recipe()
    files.check.differences += files.tried(lambda run_dir, options: damaged_lines(open_store(run_dir, options)), [])
    found.checks += [files.check, _check_run_folder(run_dir, options)]
    return found


class _RunFiles:
    """Reader of files in a run folder. A file that is damaged, or missing after a successful attempt, is a
    difference."""

    def __init__(self, run_dir: str, options: dict[str, Any], *, ended_well: bool) -> None:
        self._run_dir, self._options, self._ended_well = run_dir, options, ended_well
        self.check = audit_checks.AuditCheck("run files", "each can be read as what the run wrote")

    def tried(self, read: Callable[[str, dict[str, Any]], T], otherwise: T) -> T:
        """Return the result of `read`; `otherwise` if a file is damaged."""
        try:
            return read(self._run_dir, self._options)
        except UsageError as error:
            self.check.differences.append(str(error))
            return otherwise

    def json(self, name: str) -> Any:
        """Return the content of a JSON file; `None` if it is missing or damaged."""
        return self.tried(lambda run_dir, options: read_json(run_dir, name, options), None)

    def recipe(self) -> None:
        """Check that `recipe.yaml` is a recipe."""
        try:
            content = open_store(self._run_dir, self._options).read("recipe.yaml")
            data = {} if content is None else read_yaml(content.decode("utf-8"), "recipe.yaml")[0]
        except (RefusedError, UnicodeDecodeError) as error:
            self.check.differences.append(f"recipe.yaml is damaged: {error}")
            return
        if not isinstance(data, dict) or not isinstance(data.get("stages", []), list):
            self.check.differences.append("recipe.yaml is damaged: it is no recipe")

    def require(self, name: str) -> bool:
        """Return True if a file exists; a missing one is a difference if the last attempt succeeded."""
        there = open_store(self._run_dir, self._options).exists(name)
        if not there and self._ended_well:
            self.check.differences.append(f"{name} is missing, although the run is finished")
        return there


def _has_reader(plan: Any) -> bool:
    entries = plan.get("entries") if isinstance(plan, dict) else None
    return isinstance(entries, dict) and not {"unit", "stream"}.isdisjoint(entries)


def _note_state(
    found: Audit, files: _RunFiles, state: RunState, records: Sequence[CommitRecord], *, has_reader: bool
) -> bool:
    """Return True if the run is finished; if not, only the committed units can be verified."""
    units: list[Unit] = files.tried(read_units, [])
    if has_reader and files.require("units.jsonl") and records and not units and not files.check.differences:
        files.check.differences.append(f"units.jsonl lists no units, and {len(records):,} are committed")
    done = {record.unit for record in records}
    left = sum(1 for unit in units if unit.id not in done)
    if files.require("manifest.jsonl") and not left:
        return True
    how_far = f"{len(units) - left:,} of {len(units):,} units are done" if units else "its input is not listed yet"
    found.notes.append(f"the run is not finished: {how_far}. What is committed was checked")
    if state.attempts and state.attempts[-1].end is None:
        last = state.attempts[-1]
        found.notes.append(f"attempt {last.number} on {last.host} (process {last.pid}) runs still, or was killed")
    return False


def _check_outlets(found: Audit, run_dir: str, options: dict[str, Any], records: Sequence[CommitRecord]) -> None:
    """Compare what was sent to outlets with what they have read, and find the runs of these outlets."""
    found.outlets = finished_outlets(run_dir, options)
    names = {outlet for record in records for outlet in record.sent}
    if names:
        received = {}
        for outlet, folder in found.outlets.items():
            report = read_json(folder, "report.json", options)
            received[outlet] = report["counts"]["read"] if isinstance(report, dict) else 0
        found.checks.append(audit_checks.check_sent(records, received))
    for outlet in sorted(names - found.outlets.keys()):
        found.notes.append(f"the outlet {outlet} has not been run to its end; the same command goes on with it")


def _check_quarantine(
    run_dir: str, options: dict[str, Any], records: Sequence[CommitRecord]
) -> audit_checks.AuditCheck:
    """Compare the number of quarantined records of each unit with the ledger."""
    store = open_store(run_dir, options)
    counts: dict[str, int] = {}
    damaged = []
    for unit, name in current_files(store, latest_retries(record.unit for record in records)).items():
        try:
            counts[unit] = 0
            for entry in read_entries(store, name):
                counts[unit] += entry.count
                if entry.record_file is not None:
                    damaged += _record_differences(run_dir, entry.record_file, options)
        except UsageError as error:
            damaged.append(str(error))
    check = audit_checks.check_quarantine(records, counts)
    check.differences.extend(damaged)
    return check


def _record_differences(run_dir: str, file: RecordFile, options: dict[str, Any]) -> list[str]:
    """Compare the file of a large record with its entry."""
    expected = OutputFile(file.path, file.bytes, 0, file.sha256)
    meter = _FileMeter(join(run_dir, QUARANTINE), [expected], (options, lambda *_: None, lambda *_: None))
    return audit_checks.check_files("quarantine", [expected], meter.measure).differences


# -- files ------------------------------------------------------------------------------------------------------------


class _FileMeter:
    """Reader that measures files and reports its progress."""

    def __init__(
        self, folder: str, expected: Sequence[OutputFile], reading: tuple[Any, CountRecords, ReportProgress]
    ) -> None:
        self._folder = folder
        self._options, self._count, self._report_progress = reading
        self._total = sum(file.bytes for file in expected)
        self._done = 0

    def measure(self, file: OutputFile) -> audit_checks.FoundFile | None:
        """Return size, hash and number of records of a file; `None` if it is missing."""
        path = join(self._folder, file.path)
        digest, nbytes = hashlib.sha256(), 0
        try:
            with contextlib.closing(open_read(path, 0, self._options)) as opened:
                while piece := opened.read(_READ_BYTES):
                    digest.update(piece)
                    nbytes += len(piece)
                    self._done += len(piece)
                    self._report_progress(self._folder, self._done, self._total)
        except (FileNotFoundError, InputError):
            return None
        sha256 = digest.hexdigest()
        countable = (nbytes, sha256) == (file.bytes, file.sha256) and DATA_FILE.fullmatch(file.path)
        return audit_checks.FoundFile(nbytes, sha256, self._count(path, self._options) if countable else None)


def _check_files(
    found: Audit, run_dir: str, state: RunState, records: Sequence[CommitRecord], reading: tuple[Any, Any, Any]
) -> None:
    """Check output files, dropped records, and other files beside them."""
    options = reading[0]
    outputs = [OutputFile(line.path, line.bytes, line.records, line.sha256) for line in manifest_lines(records)]
    dropped = [file for record in records for file in record.dropped_outputs]
    for what, folder, expected in (
        ("output", output_folder(run_dir, state), outputs),
        ("dropped", state.dropped_to, dropped),
    ):
        if folder is None:
            if expected:
                found.notes.append(f"the run folder does not say where its {what} files are, so they were not checked")
            continue
        measuring = _FileMeter(folder, expected, reading)
        found.checks.append(audit_checks.check_files(f"{what} files", expected, measuring.measure))
        known = {file.path for file in expected} | _known_to_others(folder, run_dir, what, options)
        found.checks.append(audit_checks.check_strays(f"{what} folder", _names_in(folder, known, options), known))


def _names_in(folder: str, known: set[str], options: dict[str, Any]) -> Iterator[str]:
    """Yield the names directly in a folder; in place of a folder that holds known files, all files below it."""
    store = open_store(folder, options)
    of_units = {f"{name.partition('/')[0]}/" for name in known if "/" in name}
    below = sorted(store.sizes()) if of_units else []
    for name in store.names():
        if name in of_units:
            yield from (file for file in below if file.startswith(name))
        else:
            yield name


def _known_to_others(folder: str, run_dir: str, what: str, options: dict[str, Any]) -> set[str]:
    """Return the files of other runs that write to the same folder (`mode="append"`)."""
    known: set[str] = set()
    for name in open_store(folder, options).names():
        other = join(folder, name.rstrip("/"))
        if name.startswith(RUN_FOLDER) and name.endswith("/") and other != run_dir:
            for record in read_commits(other, options):
                is_output = what == "output" and not record.part and not record.handed_on
                files = record.outputs if is_output else record.dropped_outputs
                known.update(file.path for file in files)
    return known


def _check_run_folder(run_dir: str, options: dict[str, Any]) -> audit_checks.AuditCheck:
    """Find leftovers of killed processes in the run folder."""
    check = audit_checks.AuditCheck("run folder", "no unfinished files")
    check.differences += [f"{name} in the run folder: {what}" for name, what in _leftovers(run_dir, options)]
    return check


def _leftovers(run_dir: str, options: dict[str, Any]) -> Iterator[tuple[str, str]]:
    store = open_store(run_dir, options)
    for name in store.names():
        if is_temporary(name):
            yield name, "a file that was never finished; the next attempt removes it"
    for name in store.names("tmp"):
        yield f"tmp/{name}", "unfinished files of an attempt; the next one removes them, unless it runs now"
    for name in store.names(INBOX):
        yield f"{INBOX}/{name}", "a commit that the driver has not gathered; the next attempt does"
