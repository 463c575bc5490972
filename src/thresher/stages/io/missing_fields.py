# SPDX-License-Identifier: Apache-2.0
"""Fields that a reader or writer was asked for and that a batch does not have; the report names those of no record."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from thresher.core.documents.json_records import encode_value, split_object
from thresher.core.stage import ProcessingStage
from thresher.core.tally import without_field
from thresher.errors import nearest

_ESCAPES = (b"\\u", b"\\/")
"""In a line with one of these a name may be written in another way than ours."""


def count_missing(stage: ProcessingStage[Any, Any], missing: Iterable[str], there: Iterable[str], rows: int) -> None:
    """Count the `rows` of a batch that has none of the `missing` fields; a hint comes from the names that are there."""
    for field in missing:
        stage.count(without_field(field, nearest(field, there)), rows)


def missing_in(lines: Iterable[bytes | memoryview], fields: Collection[str]) -> list[str]:
    """Return the fields that no line has. Only lines that may hold one not yet seen are taken apart."""
    missing = {field: encode_value(field) for field in fields}
    for line in lines:
        if not missing:
            break
        text = bytes(line)
        if any(escape in text for escape in _ESCAPES) or any(name in text for name in missing.values()):
            for field in missing.keys() & split_object(text).keys():
                del missing[field]
    return list(missing)
