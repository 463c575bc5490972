# SPDX-License-Identifier: Apache-2.0
"""Documents of a run as the dashboard shows them: some that each rule dropped, some that were kept, those that failed,
and how many other thresholds would keep. Everything is cut, and nothing of a document is interpreted."""

from __future__ import annotations

import contextlib
import itertools
import re
import shlex
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from thresher.core.files.filesystem import join
from thresher.credentials import redacted
from thresher.dashboard.highlight import parts_of
from thresher.dashboard.run_view import RunView
from thresher.errors import ThresherError
from thresher.inspect.fates import FateFiles, fate_files, lines_of
from thresher.ledger.folder.find import output_folder, read_quarantine
from thresher.ledger.score_table import ScoreTable, load_scores

MOST_CHARACTERS = 3000
"""Characters of a document that are shown."""
MOST_PER_RULE = 5
"""Dropped documents for each rule."""
MOST_KEPT = 12
"""Kept documents."""
MOST_ERRORS = 50
"""Quarantined records."""
MOST_SCANNED = 20_000
"""Dropped records that are searched for samples."""
KEEP_S = 15.0
"""Time for which samples of a live run are shown again."""
_MOST_LINE = 4_000_000
"""Bytes of a record that is decoded for a sample."""
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")


def shown(text: object, most: int = MOST_CHARACTERS) -> str:
    """Return the beginning of an untrusted text, with characters that hide or reorder others made visible."""
    found = str(text)
    found = found if len(found) <= most else f"{found[:most]}…"
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", found)


class Documents:
    """The documents of a run. Its methods may be called from several threads."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._kept_until: dict[str, tuple[float, dict[str, Any]]] = {}
        self._scores: tuple[str, ScoreTable] | None = None

    def samples(self) -> dict[str, Any]:
        """Return some dropped documents of each rule, and some kept ones."""
        return self._remembered("samples", self._read_samples)

    def errors(self) -> dict[str, Any]:
        """Return quarantined records with their tracebacks."""
        return self._remembered("errors", self._read_errors)

    def _remembered(self, name: str, read: Any) -> dict[str, Any]:
        with self._lock:
            until, found = self._kept_until.get(name, (0.0, {}))
            if time.monotonic() >= until:
                try:
                    found = read()
                except (ThresherError, OSError) as error:
                    found = {"problem": shown(error, 500)}
                self._kept_until[name] = (time.monotonic() + KEEP_S, found)
            return found

    # -- samples ------------------------------------------------------------------------------------------------------

    def _read_samples(self) -> dict[str, Any]:
        files = fate_files(self._view.run_dir, self._view.options)
        dropped: dict[str, list[dict[str, Any]]] = {}
        scanned = 0
        records = list(files.records.values())
        # Units from all over the input: the first ones may be all of one kind.
        step = max(1, len(records) // 50)
        for record in itertools.chain.from_iterable(records[start::step] for start in range(step)):
            for record_id, fate in files.dropped(record):
                scanned += 1
                found = dropped.setdefault(fate.reason, [])
                if len(found) < MOST_PER_RULE:
                    found.append(_sample(record_id, fate.reason, fate.line, fate.score, fate.threshold))
            if scanned > MOST_SCANNED:
                break
        note = "" if files.state.dropped_to else "Dropped records are kept by runs with --dropped-to DIR."
        return {"dropped": dropped, "kept": list(itertools.islice(_kept(files), MOST_KEPT)), "note": note}

    def _read_errors(self) -> dict[str, Any]:
        entries = read_quarantine(self._view.run_dir, self._view.options)
        found = [
            {
                "id": shown(entry.id or "", 200),
                "source": shown(entry.source or "", 300),
                "stage": shown(entry.stage, 100),
                "error": shown(entry.error, 100),
                "message": shown(redacted(entry.message), 1000),
                "traceback": shown(redacted(entry.traceback), 6000),
                "attempts": entry.attempts,
                "record": shown((entry.line or b"")[:4000].decode("utf-8", "replace"), 1000),
            }
            for entry in itertools.islice(entries, MOST_ERRORS)
        ]
        return {"entries": found, "more": next(entries, None) is not None}

    # -- thresholds ---------------------------------------------------------------------------------------------------

    def scores(self) -> dict[str, Any]:
        """Return the histogram and the bounds of each rule."""
        table = self._table()
        return {
            "note": table.describe(),
            "rules": [
                {
                    "column": histogram.column,
                    "low": histogram.low,
                    "high": histogram.high,
                    "counts": histogram.counts,
                    "unknown": histogram.unknown,
                    "bounds": [{"side": s, "value": v, "parameter": p} for s, v, p in histogram.bounds],
                }
                for histogram in table.histograms()
            ],
            "outcome": table.outcome()._asdict(),
        }

    def what_if(self, settings: Mapping[str, float]) -> dict[str, Any]:
        """Return what other thresholds would keep, and the command that applies them."""
        table = self._table()
        legal = {f"{rule.column.rpartition('/')[0]}.{p}" for rule in table.rules for _, _, p in rule.bounds or () if p}
        chosen = {name: value for name, value in settings.items() if name in legal}
        arguments = [f"{name}={value:g}" for name, value in chosen.items()]
        command = ["thresher", "rethreshold", self._view.run_dir, *arguments, "--output", "ANOTHER_FOLDER"]
        return {
            "outcome": table.outcome(chosen)._asdict(),
            "before": table.outcome()._asdict(),
            "command": shlex.join(command) if chosen else "",
        }

    def _table(self) -> ScoreTable:
        """Return the scores; those of a live run are read again when more units are committed."""
        with self._lock:
            state = self._view.state()
            version = f"{state.get('status')} {state.get('units_done', 0) // 20}"
            if self._scores is None or self._scores[0] != version:
                self._scores = (version, load_scores(self._view.store, self._view.json("plan.json")))
            return self._scores[1]


def _sample(record_id: str, reason: str, line: bytes, score: Any, threshold: Any) -> dict[str, Any]:
    rule = reason.rpartition("/")[2]
    text = text_of(line)
    return {
        "id": shown(record_id, 200),
        "score": score if isinstance(score, int | float) else shown(score, 100) if score is not None else None,
        "threshold": shown(threshold, 300) if threshold is not None else None,
        "parts": [[shown(part), hit] for part, hit in parts_of(text[:MOST_CHARACTERS], rule)],
        "characters": len(text),
    }


def text_of(line: bytes) -> str:
    """Return the longest text of a record, which is what rules judge as a rule; the record itself if it has none."""
    if len(line) <= _MOST_LINE:
        with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            record = msgspec.json.decode(line)
            if isinstance(record, dict):
                texts = [value for key, value in record.items() if isinstance(value, str) and key != "id"]
                text = record.get("text")
                return text if isinstance(text, str) else max(texts, key=len, default="")
    return line[:MOST_CHARACTERS].decode("utf-8", "replace")


def _kept(files: FateFiles) -> Iterator[dict[str, Any]]:
    """Yield documents from the beginning of some output files, with their scores where these can be told."""
    folder = output_folder(files.run_dir, files.state)
    outputs = [
        (record.unit, file) for record in files.records.values() if not record.handed_on for file in record.outputs
    ]
    if folder is None:
        return
    for unit, file in outputs[:: max(1, len(outputs) // 4)][:4]:
        known = files.kept_scores(unit) if files.state.keep_scores else []
        # Records are in the order of their ids; if a stage made or removed some, nobody knows which is which.
        scores = known if len(known) == file.records else []
        lines = itertools.islice(_documents(join(folder, file.path), files.options), MOST_KEPT // 4)
        for place, line in enumerate(lines):
            record_id, own = scores[place] if place < len(scores) else ("", {})
            yield {**_sample(record_id, "", line, None, None), "scores": own}


def _documents(path: str, options: dict[str, Any]) -> Iterator[bytes]:
    """Yield the first documents of an output file as lines of JSON; none of a format that has none."""
    if path.endswith(".jsonl"):
        yield from lines_of(path, options)
    elif ".jsonl." in path:
        from thresher.core.files.filesystem import open_read
        from thresher.stages.io.compression.content import SNIFF_BYTES, content_of
        from thresher.stages.io.finished_files import pieces_of

        with contextlib.closing(open_read(path, 0, options)) as opened:
            content = content_of(opened.read(SNIFF_BYTES), path)
            opened.seek(0)
            first = next(iter(pieces_of(opened, content)), b"")
            yield from first.split(b"\n")[:-1]
    elif path.endswith(".parquet"):
        import pyarrow.parquet as pq

        from thresher.core.files.filesystem import open_read

        with contextlib.closing(open_read(path, 0, options)) as opened:
            for batch in pq.ParquetFile(opened).iter_batches(batch_size=MOST_KEPT):
                yield from (msgspec.json.encode(row, enc_hook=str) for row in batch.to_pylist())
                return
