# SPDX-License-Identifier: Apache-2.0
"""Columns of scores as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from thresher.core.documents.batch import DocumentBatch

    Numbers = npt.NDArray[np.float64]


def check_numbers(what: str, given: Any, least: int = 0) -> list[float]:
    """Return a list of `least` or more numbers; raise if it is none."""
    values = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else None
    if values is None or len(values) < least or any(not _is_number(value) for value in values):
        raise UsageError(f"{what}: {given!r} is not a list of {least or 'some'} numbers or more")
    return values


def numbers_of(batch: DocumentBatch, column: str) -> Numbers:
    """Return the values of a column; NaN where there is none, or where it is no number."""
    import numpy as np
    import pyarrow as pa

    values = batch.column(column)
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        found: Numbers = values.cast(pa.float64(), safe=False).to_numpy()
        return found
    return np.array([value if _is_number(value) else np.nan for value in batch.values(column)], dtype=np.float64)


def without_numbers(batch: DocumentBatch, columns: Sequence[str], rows: npt.NDArray[np.intp]) -> DocumentBatch:
    """Return the batch without `rows`, which are set aside because they lack a number in one of the columns."""
    if not len(rows):
        return batch
    names = " or ".join(map(repr, columns))
    text = f"field {names} holds no number; put the stage that makes it before, or leave such documents out"
    return batch.set_aside(rows.tolist(), error="score-missing", messages=[text] * len(rows))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
