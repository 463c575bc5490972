# SPDX-License-Identifier: Apache-2.0
"""Lines for records that leave the stream: what failed, and what a rule dropped."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from thresher.core.batch import DroppedRows, FailedRows
    from thresher.core.records import RecordIds

DROPPED_KEY = "_dropped"
RETRY_KEY = "thresher.retry"
"""In the metadata of a batch that is tried again: a dict with `enters_at` and `attempts`."""


def enters_at(metadata: dict[str, Any]) -> int:
    """The number of the stage at which a batch enters that is tried again; 0: it goes through all of them."""
    return int(metadata.get(RETRY_KEY, {}).get("enters_at", 0))


def quarantine_lines(failed: FailedRows, stage_name: str) -> list[bytes]:
    """One JSON line per failed record: id, source, position, stage, error, message, traceback, attempts, record."""
    ids = failed.ids if failed.batch is None else failed.batch.ids
    records = failed.lines if failed.batch is None else failed.batch.json_lines()
    retried = {} if failed.batch is None else failed.batch.metadata.get(RETRY_KEY, {})
    lines = []
    for row, message in enumerate(failed.messages):
        entry = _whence(ids, row)
        entry["stage"] = stage_name
        entry["error"] = failed.error
        entry["message"] = message
        entry["traceback"] = failed.traceback
        entry["attempts"] = failed.attempts + retried.get("attempts", 0)
        entry.update(failed.extra)
        entry.update(_record(bytes(records[row])) if row < len(records) else {"record": None})
        lines.append(encode_text(entry))
    return lines


def _whence(ids: RecordIds | None, row: int) -> dict[str, Any]:
    if ids is None or row >= len(ids):
        return {"id": None, "source": None, "position": None}
    return {"id": ids.at(row), "source": ids.source_at(row)[1], "position": int(ids.positions[row])}


def _record(line: bytes) -> dict[str, Any]:
    try:
        return {"record": line.decode("utf-8")}
    except UnicodeDecodeError:
        return {"record_base64": base64.b64encode(line).decode("ascii")}


def dropped_lines(dropped: DroppedRows, stage_name: str) -> list[bytes]:
    """The dropped records as JSON lines, each with a last key that says which rule dropped it, and why."""
    from thresher.core.json_records import patch_line, split_object

    key = frozenset({DROPPED_KEY})
    lines = []
    for row, line in enumerate(dropped.batch.json_lines()):
        reason = {
            "stage": stage_name,
            "rule": dropped.rule,
            "score": _score(dropped.scores, row),
            "threshold": dropped.threshold,
        }
        if DROPPED_KEY in split_object(line):  # a record that was dropped before: this reason replaces that one
            line = patch_line(line, {}, key)
        lines.append(patch_line(line, {DROPPED_KEY: encode_text(reason)}, frozenset()))
    return lines


def _score(scores: Sequence[Any] | None, row: int) -> Any:
    if scores is None or row >= len(scores):
        return None
    score = scores[row]
    return score.item() if hasattr(score, "item") else score


def encode_text(value: Any) -> bytes:
    """A Python value as JSON bytes; a lone surrogate (file names may hold some) is written as an escape."""
    try:
        return msgspec.json.encode(value, enc_hook=_plain)
    except (UnicodeEncodeError, ValueError, OverflowError):
        import json

        return json.dumps(value, default=_plain).encode("ascii")


def _plain(value: Any) -> Any:
    """What JSON has no form for: numbers of other libraries by value, all else as text."""
    return value.item() if hasattr(value, "item") else str(value)
