# SPDX-License-Identifier: Apache-2.0
"""Documents that a script has in memory, as the tasks that the first stage of a pipeline gets.

Texts, dicts, a data frame and an Arrow table are cut into batches; what is a task already stays as it is. Where a batch
ends depends on the documents alone, so their ids (`task-000000:17`) are the same on every executor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from thresher.core.documents.batch import DocumentBatch
from thresher.core.task import Task
from thresher.errors import UsageError, with_article

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_FIELD = "text"
"""The column that a list of texts becomes."""
BATCH_ROWS = 1000
"""Most documents of a batch."""
BATCH_BYTES = 4 * 2**20
"""About how many bytes a batch has at most; a document that is larger has one of its own."""

_LEGAL = "give a list of texts, of dicts or of tasks, a pandas DataFrame or an Arrow table"


def as_tasks(given: Any) -> tuple[Task, ...]:
    """Return the tasks of `initial_tasks`, whatever form they have; refuse what cannot be understood."""
    if isinstance(given, Task):
        given = [given]
    if isinstance(given, str | bytes | Mapping):
        raise UsageError(f"initial_tasks: {with_article(type(given))} is not a list of documents; {_LEGAL}")
    if _is_tabular(given):
        return _batches(given)
    if not isinstance(given, Iterable):
        raise UsageError(f"initial_tasks: {given!r} is not a list of documents; {_LEGAL}")
    items = list(given)
    kind = _kind_of(items)
    if kind == "task":
        return tuple(map(_checked_task, items))
    return _batches([{TEXT_FIELD: item} for item in items] if kind == "text" else items)


def _kind_of(items: list[Any]) -> str:
    """`task`, `text` or `dict`: what all items are; an empty list holds no tasks."""
    first = "task"
    for number, item in enumerate(items):
        kind = _kind_of_one(item, number)
        first = kind if number == 0 else first
        if kind != first:
            raise UsageError(
                f"initial_tasks[{number}] is {with_article(kind)}, and those before it are {first}s; give one kind"
            )
    return first


def _kind_of_one(item: Any, number: int) -> str:
    if isinstance(item, type):
        raise UsageError(f"initial_tasks[{number}]: {item.__name__} is a class; write {item.__name__}(…)")
    for kind, cls in (("task", Task), ("text", str), ("dict", dict)):
        if isinstance(item, cls):
            return kind
    raise UsageError(f"initial_tasks[{number}]: {item!r} is neither a text, a dict nor a task; {_LEGAL}")


def _checked_task(task: Task) -> Task:
    """Find a column that Arrow cannot hold now, and not in a worker."""
    if isinstance(task, DocumentBatch) and isinstance(task._given, list):
        _explained(task.to_pyarrow)
    return task


def _is_tabular(given: Any) -> bool:
    """True for data frames and tables; a single column is an iterable of values."""
    return hasattr(given, "columns") and (hasattr(given, "index") or hasattr(given, "__arrow_c_stream__"))


def _batches(given: Any) -> tuple[Task, ...]:
    table = _explained(lambda: _table_of(given))
    rows = min(BATCH_ROWS, max(1, BATCH_BYTES * table.num_rows // max(1, table.nbytes)))
    starts = range(0, table.num_rows, rows)
    # Arrow believes any length of a slice where there is no column that tells how long it is.
    return tuple(DocumentBatch(table.slice(start, min(rows, table.num_rows - start))) for start in starts)


def _table_of(given: Any) -> pa.Table:
    import pyarrow as pa

    from thresher.core.documents.frames import to_table

    foreign = hasattr(given, "__arrow_c_stream__") and not hasattr(given, "index")  # such as a Polars frame
    return to_table(pa.table(given) if foreign else given)


def _explained(make: Any) -> Any:
    try:
        return make()
    except (TypeError, ValueError) as error:  # Arrow's own errors are of these
        raise UsageError(f"initial_tasks: {error}") from error
