# SPDX-License-Identifier: Apache-2.0
"""Values of any type for the functions and rules of users, from one column or by name from several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Rows = npt.NDArray[np.int64]


def takes_any_value(function: Callable[..., Any] | None) -> bool:
    """Return True if a function gets the values of a column whatever their type.

    That is every function that does not come with Thresher, unless its first parameter is declared to be a `str`: then
    records without a string never reach it.
    """
    if function is None or str(getattr(function, "__module__", "")).split(".")[0] == "thresher":
        return False
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # some functions written in C do not say what they take
        return True
    return not parameters or parameters[0].annotation not in (str, "str")


def by_name(function: Callable[..., Any]) -> Callable[[dict[str, Any]], Any]:
    """Return a function of a record for one that takes each value by the name of its column."""

    def of_record(record: dict[str, Any]) -> Any:
        return function(**record)

    return of_record


def records_of(batch: DocumentBatch, fields: Sequence[str]) -> list[dict[str, Any]]:
    """Return the values of several columns for each record, `None` where a record lacks one."""
    columns = [batch.values(field) for field in fields]
    return [dict(zip(fields, values, strict=True)) for values in zip(*columns, strict=True)]


class RecordValues:
    """The values of several columns in place of a text."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        self._records = records

    def has_text(self, records: Rows) -> npt.NDArray[np.bool_]:
        """Return a mask of the records that have values: all of them."""
        import numpy as np

        return np.ones(len(records), dtype=np.bool_)

    def strings(self, records: Rows) -> list[Any]:
        """Return the values of records by name."""
        return [self._records[record] for record in records.tolist()]
