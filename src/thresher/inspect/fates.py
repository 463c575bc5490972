# SPDX-License-Identifier: Apache-2.0
"""Fates of documents in the files of a run: dropped records with their reasons, kept scores, quarantine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from thresher.core.files.filesystem import join, open_read
from thresher.errors import InputError, UsageError
from thresher.ledger.folder.find import read_commits, read_json, read_run
from thresher.ledger.folder.request import RunState
from thresher.ledger.quarantine import DROPPED_KEY, current_files, read_entries
from thresher.ledger.records import CommitRecord, latest_retries
from thresher.ledger.scores import FOLDER as SCORES
from thresher.ledger.scores import ID
from thresher.ledger.stores.store import escapes_folder, open_store

PASSED = "passed"
"""Fate of a document that no rule dropped and that did not fail."""
_READ_BYTES = 1 << 20
_REASON = b'"%b": ' % DROPPED_KEY.encode()


class Fate(NamedTuple):
    """Fate of a document that was not written."""

    reason: str
    """`Stage/Rule`, or `quarantined: Stage/error`."""
    score: Any = None
    """Score of the rule."""
    threshold: Any = None
    """Threshold of the rule."""
    line: bytes = b""
    """The record; empty if the run did not keep it."""


@dataclass
class FateFiles:
    """The files of a run that say what became of its documents."""

    run_dir: str
    """Run folder."""
    options: dict[str, Any]
    """Options for opening it, if it is a URL."""
    state: RunState
    """Content of `run.json`."""
    records: dict[str, CommitRecord] = field(default_factory=dict)
    """Committed units, in input order."""
    rules: list[tuple[str, list[tuple[str, float, str]] | None]] = field(default_factory=list)
    """Rules and their bounds, from `plan.json`."""

    @property
    def known(self) -> bool:
        """Return True if the run kept its dropped records or its scores."""
        return bool(self.state.dropped_to or self.state.keep_scores)

    def of_unit(self, unit: str) -> dict[str, Fate]:
        """Return the fates of the documents of a unit that were not written, by id."""
        record = self.records.get(unit)
        if record is None:
            return {}
        found = dict(self.dropped(record)) if self.state.dropped_to else self._by_scores(unit)
        return found | self._quarantined(unit)

    def dropped_bytes(self, unit: str) -> int:
        """Return the size of the dropped records of a unit."""
        record = self.records.get(unit)
        return 0 if record is None else sum(file.bytes for file in record.dropped_outputs)

    def dropped(self, record: CommitRecord) -> Iterator[tuple[str, Fate]]:
        """Yield the dropped records of a unit, in order."""
        for file in record.dropped_outputs:
            if self.state.dropped_to is None or escapes_folder(file.path):
                continue
            for line in lines_of(join(self.state.dropped_to, file.path), self.options):
                reason = reason_of(line)
                if reason is not None:
                    name = f"{reason.get('stage')}/{reason.get('rule')}"
                    yield str(reason.get("id")), Fate(name, reason.get("score"), reason.get("threshold"), line)

    def kept_scores(self, unit: str) -> list[tuple[str, dict[str, Any]]]:
        """Return the ids and scores of the documents of a unit that no rule drops, in order."""
        table = self._scores(unit)
        aside = self._by_scores(unit).keys() | self._quarantined(unit).keys()
        names = [column for column, _ in self.rules if column in table]
        rows = zip(table.get(ID, ()), *(table[name] for name in names), strict=True)
        return [(row[0], dict(zip(names, row[1:], strict=True))) for row in rows if row[0] not in aside]

    def _scores(self, unit: str) -> dict[str, list[Any]]:
        """Return the scores of a unit by column, and its ids; empty if it has none."""
        import pyarrow as pa

        from thresher.ledger.score_table import read_score_file

        try:
            content = open_store(self.run_dir, self.options).read(f"{SCORES}/{unit}.parquet")
            table: dict[str, list[Any]] = read_score_file(content or b"").to_pydict()
        except (pa.ArrowException, OSError):
            return {}
        return table

    def _by_scores(self, unit: str) -> dict[str, Fate]:
        """Return the documents that the scores of a unit and the thresholds of the run drop."""
        table = self._scores(unit)
        found: dict[str, Fate] = {}
        ids = table.get(ID, [])
        for column, bounds in self.rules:
            thresholds = {name or side: value for side, value, name in bounds or ()}
            for record_id, score in zip(ids, table.get(column, ()), strict=False):
                if bounds and record_id not in found and isinstance(score, int | float) and _is_out(score, bounds):
                    found[record_id] = Fate(column, score, thresholds)
        return found

    def _quarantined(self, unit: str) -> dict[str, Fate]:
        store = open_store(self.run_dir, self.options)
        name = current_files(store, latest_retries(self.records)).get(unit)
        if name is None:
            return {}
        with contextlib.suppress(UsageError):
            entries = [entry for entry in read_entries(store, name) if entry.id is not None]
            return {
                str(entry.id): Fate(f"quarantined: {entry.stage}/{entry.error}", line=entry.line or b"")
                for entry in entries
            }
        return {}


def _is_out(score: float, bounds: list[tuple[str, float, str]]) -> bool:
    return any(not (score >= value if side == "low" else score <= value) for side, value, _ in bounds)


def fate_files(run_dir: str, options: dict[str, Any]) -> FateFiles:
    """Return the files of a run folder."""
    plan = read_json(run_dir, "plan.json", options)
    rules = plan.get("rules", []) if isinstance(plan, dict) else []
    records = {record.unit: record for record in read_commits(run_dir, options)}
    return FateFiles(run_dir, options, read_run(run_dir, options), records, [(r["column"], r["bounds"]) for r in rules])


def lines_of(path: str, options: Mapping[str, Any] | None) -> Iterator[bytes]:
    """Yield the lines of a file, without holding it; a file that is gone has none."""
    try:
        with contextlib.closing(open_read(path, 0, dict(options or {}))) as opened:
            rest = b""
            while piece := opened.read(_READ_BYTES):
                *lines, rest = (rest + piece).split(b"\n")
                yield from lines
            if rest:
                yield rest
    except (FileNotFoundError, InputError):
        return


def reason_of(line: bytes) -> dict[str, Any] | None:
    """Return the reason in the line of a dropped record, which is its last value."""
    start = line.rfind(_REASON)
    if start < 0:
        return None
    try:
        found = msgspec.json.decode(line[start + len(_REASON) :].rstrip().removesuffix(b"}"))
    except (msgspec.DecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
