# SPDX-License-Identifier: Apache-2.0
"""Records that lack a string where a stage needs one: they are set aside, and a message says what is there."""

from __future__ import annotations

from collections.abc import Sequence

from thresher.core.batch import DocumentBatch


def set_aside_without_text(batch: DocumentBatch, rows: Sequence[int], field: str) -> DocumentBatch:
    """`batch` without `rows`, whose `field` is missing, null or not a string."""
    values = batch._picked(rows).values(field)
    missing = [row for row, value in zip(rows, values, strict=True) if value is None]
    others = [(row, value) for row, value in zip(rows, values, strict=True) if value is not None]
    if others:
        messages = [f"field {field!r} holds {_shown(value)}, a string is needed" for _, value in others]
        batch = batch.set_aside([row for row, _ in others], error="not-a-string", messages=messages)
    if missing:
        gone = {row for row, _ in others}
        left = [row - sum(g < row for g in gone) for row in missing] if gone else missing
        message = f"field {field!r} is missing or null, a string is needed"
        batch = batch.set_aside(left, error="field-missing", messages=[message] * len(left))
    return batch


def _shown(value: object) -> str:
    text = repr(value)
    return f"a {type(value).__name__} ({text if len(text) <= 60 else text[:57] + '...'})"
