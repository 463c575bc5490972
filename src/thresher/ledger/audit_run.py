# SPDX-License-Identifier: Apache-2.0
"""All checks of one run, in order, with the files that they need read one after the other."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thresher.core.filesystem import StorageOptions, join, open_read
from thresher.errors import InputError
from thresher.ledger import audit
from thresher.ledger.find import output_folder, read_commits, read_json, read_manifest, read_run, read_units
from thresher.ledger.journal import INBOX
from thresher.ledger.manifest import manifest_lines
from thresher.ledger.records import CommitRecord, OutputFile
from thresher.ledger.request import RUN_FOLDER, RunState
from thresher.ledger.retries import latest_retries, open_files, quarantine_file
from thresher.ledger.store import is_temporary, open_store

_READ_BYTES = 4 * 2**20
CountRecords = Callable[[str, StorageOptions], int | None]
"""How many records the file at a path holds."""
Told = Callable[[str, int, int], None]
"""Called while files are read: of what, bytes so far, bytes in all."""


@dataclass
class Audit:
    """What an audit found."""

    run_id: str
    """The run."""
    checks: list[audit.Check] = field(default_factory=list)
    """In the order in which they were made."""
    notes: list[str] = field(default_factory=list)
    """What one should know, and is no difference."""

    @property
    def differences(self) -> list[str]:
        """Of all checks."""
        return [difference for check in self.checks for difference in check.differences]


def audit_run(run_dir: str, options: dict[str, Any], count_records: CountRecords, told: Told) -> Audit:
    """Prove what a run folder says; nothing in it or in the output is changed."""
    state = read_run(run_dir, options)
    records = read_commits(run_dir, options)
    found = Audit(state.run_id)
    finished = _note_state(found, run_dir, options, state, records)
    plan = read_json(run_dir, "plan.json", options)
    names = [str(name) for name in plan.get("stages", [])] if isinstance(plan, dict) else []
    total = audit.total_of(records)
    found.checks += [audit.check_counts(total), audit.check_stages(total, names)]
    found.checks.append(audit.check_ledger(records, state.output is not None))
    if finished:
        manifest = read_manifest(run_dir, options)
        found.checks.append(audit.check_manifest(manifest, records))
        report = read_json(run_dir, "report.json", options)
        found.checks.append(audit.check_report(report, records, names, [line.path for line in manifest]))
    found.checks.append(audit.check_quarantine(records, _quarantined(run_dir, options, records)))
    _check_files(found, run_dir, state, records, (options, count_records, told))
    found.checks.append(_check_run_folder(run_dir, options))
    return found


def _note_state(
    found: Audit, run_dir: str, options: dict[str, Any], state: RunState, records: Sequence[CommitRecord]
) -> bool:
    """Whether the run is finished; if not, only what is committed can be proven."""
    units = read_units(run_dir, options)
    done = {record.unit for record in records}
    left = sum(1 for unit in units if unit.id not in done)
    manifest_there = open_store(run_dir, options).exists("manifest.jsonl")
    if not left and manifest_there:
        return True
    how_far = f"{len(units) - left:,} of {len(units):,} units are done" if units else "its input is not listed yet"
    found.notes.append(f"the run is not finished: {how_far}. What is committed was checked")
    if state.attempts and state.attempts[-1].end is None:
        last = state.attempts[-1]
        found.notes.append(f"attempt {last.number} on {last.host} (process {last.pid}) runs still, or was killed")
    return False


def _quarantined(run_dir: str, options: dict[str, Any], records: Sequence[CommitRecord]) -> dict[str, int]:
    """How many entries there are for each unit."""
    store = open_store(run_dir, options)
    files = open_files(store, latest_retries(record.unit for record in records))
    return {
        unit: sum(1 for line in (store.read(quarantine_file(name)) or b"").split(b"\n") if line)
        for unit, name in files.items()
    }


# -- files ------------------------------------------------------------------------------------------------------------


class _Measuring:
    """Reads files and tells how far it is."""

    def __init__(self, folder: str, expected: Sequence[OutputFile], with_what: tuple[Any, CountRecords, Told]) -> None:
        self._folder = folder
        self._options, self._count, self._told = with_what
        self._total = sum(file.bytes for file in expected)
        self._done = 0

    def measure(self, file: OutputFile) -> audit.FoundFile | None:
        """Size, hash and number of records of a file."""
        path = join(self._folder, file.path)
        digest, nbytes = hashlib.sha256(), 0
        try:
            with contextlib.closing(open_read(path, 0, self._options)) as opened:
                while piece := opened.read(_READ_BYTES):
                    digest.update(piece)
                    nbytes += len(piece)
                    self._done += len(piece)
                    self._told(self._folder, self._done, self._total)
        except (FileNotFoundError, InputError):
            return None
        sha256 = digest.hexdigest()
        same = (nbytes, sha256) == (file.bytes, file.sha256)
        return audit.FoundFile(nbytes, sha256, self._count(path, self._options) if same else None)


def _check_files(
    found: Audit, run_dir: str, state: RunState, records: Sequence[CommitRecord], with_what: tuple[Any, Any, Any]
) -> None:
    """Output files and dropped records, and what else lies beside them."""
    options = with_what[0]
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
        measuring = _Measuring(folder, expected, with_what)
        found.checks.append(audit.check_files(f"{what} files", expected, measuring.measure))
        known = {file.path for file in expected} | _known_to_others(folder, run_dir, what, options)
        found.checks.append(audit.check_strays(f"{what} folder", open_store(folder, options).names(), known))


def _known_to_others(folder: str, run_dir: str, what: str, options: dict[str, Any]) -> set[str]:
    """Files of other runs that write to the same folder (`mode="append"`)."""
    known: set[str] = set()
    for name in open_store(folder, options).names():
        other = join(folder, name.rstrip("/"))
        if name.startswith(RUN_FOLDER) and name.endswith("/") and other != run_dir:
            for record in read_commits(other, options):
                files = record.outputs if what == "output" and not record.part else record.dropped_outputs
                known.update(file.path for file in files)
    return known


def _check_run_folder(run_dir: str, options: dict[str, Any]) -> audit.Check:
    """What a process that was ended left in the run folder."""
    check = audit.Check("run folder", "no unfinished files")
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
