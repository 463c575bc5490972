# SPDX-License-Identifier: Apache-2.0
"""Setting aside records without a string where a stage needs one."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.json_records import shown_fields, split_object
from thresher.errors import with_article


def set_aside_without_text(
    batch: DocumentBatch, rows: Sequence[int], field: str, needed: str = "a string"
) -> DocumentBatch:
    """Return `batch` without `rows`, whose `field` is missing, null or not what is `needed`."""
    values = batch.pick(rows).values(field)
    missing = [row for row, value in zip(rows, values, strict=True) if value is None]
    others = [(row, value) for row, value in zip(rows, values, strict=True) if value is not None]
    if others:
        messages = [f"field {field!r} holds {_shown(value)}, {needed} is needed" for _, value in others]
        batch = batch.set_aside([row for row, _ in others], error="not-a-string", messages=messages)
    if missing:
        gone = {row for row, _ in others}
        left = [row - sum(g < row for g in gone) for row in missing] if gone else missing
        messages = [f"{_lacks(field, line)}, {needed} is needed" for line in batch.pick(left).json_lines()]
        batch = batch.set_aside(left, error="field-missing", messages=messages)
    return batch


def with_texts(batch: DocumentBatch, field: str) -> tuple[DocumentBatch, list[str]]:
    """Return the records that have a string in `field`, and these strings."""
    texts = batch.values(field)
    unfit = [row for row, text in enumerate(texts) if not isinstance(text, str)]
    if not unfit:
        return batch, texts
    return set_aside_without_text(batch, unfit, field), [text for text in texts if isinstance(text, str)]


def _lacks(field: str, line: bytes | memoryview) -> str:
    """Describe that a record lacks a field, and list the fields that it has."""
    try:
        if field in split_object(line):
            return f"field {field!r} is null"
    except msgspec.DecodeError:  # accepted by the reader, such as half a surrogate pair in a name
        return f"field {field!r} is missing or null"
    return f"field {field!r} is missing (the record has {shown_fields(line)})"


def _shown(value: object) -> str:
    text = repr(value)
    return f"{with_article(type(value))} ({text if len(text) <= 60 else text[:57] + '...'})"
