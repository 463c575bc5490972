# SPDX-License-Identifier: Apache-2.0
"""Batches as a reader makes them, for tests: lines beside the table, ids that are offsets."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.records import RawLines, RecordIds

SOURCE = ("0123456789ab:", "folder/file.jsonl")


def batch_of_lines(lines: Sequence[bytes]) -> DocumentBatch:
    """A batch of the given lines; the id of each is its offset in a file that holds them all."""
    raw = RawLines.join(lines)
    return DocumentBatch.from_lines(raw, RecordIds((SOURCE,), raw.starts))


def batch_of(records: Sequence[dict[str, Any]]) -> DocumentBatch:
    """A batch of records as `json.dumps` writes them."""
    return batch_of_lines([json.dumps(record).encode() for record in records])


def written(batch: DocumentBatch) -> list[Any]:
    """What a writer would write, read again."""
    return [json.loads(bytes(line)) for line in batch.json_lines()]
