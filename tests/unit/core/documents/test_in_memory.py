# SPDX-License-Identifier: Apache-2.0
"""Documents in memory as the input of a pipeline."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from thresher.core.documents.batch import DocumentBatch
from thresher.core.documents.in_memory import BATCH_ROWS, as_tasks
from thresher.core.task import EmptyTask, Task
from thresher.errors import UsageError

ROWS = [{"text": "one", "n": 1}, {"text": "two", "n": 2}]


def rows_of(tasks: tuple[Task, ...]) -> list[dict[str, Any]]:
    return [row for task in tasks if isinstance(task, DocumentBatch) for row in task.to_pyarrow().to_pylist()]


@pytest.mark.parametrize(
    "given",
    [
        ROWS,
        iter(ROWS),
        tuple(ROWS),
        pd.DataFrame(ROWS, index=[7, 3]),
        pa.Table.from_pylist(ROWS),
        pa.RecordBatch.from_pylist(ROWS),
        DocumentBatch(ROWS),
        [DocumentBatch(ROWS[:1]), DocumentBatch(ROWS[1:])],
    ],
    ids=["list", "iterator", "tuple", "frame", "table", "record batch", "batch", "batches"],
)
def test_documents_are_taken_in_every_form_they_come_in(given: Any) -> None:
    assert rows_of(as_tasks(given)) == ROWS


def test_texts_become_documents_with_a_text() -> None:
    assert rows_of(as_tasks(["a", "b"])) == [{"text": "a"}, {"text": "b"}]
    assert rows_of(as_tasks(pd.Series(["a", "b"]))) == [{"text": "a"}, {"text": "b"}]


def test_fields_that_some_documents_lack_are_null_there() -> None:
    assert rows_of(as_tasks([{"text": "a"}, {"text": "b", "n": 1}])) == [
        {"text": "a", "n": None},
        {"text": "b", "n": 1},
    ]


def test_no_documents_are_no_tasks() -> None:
    assert as_tasks([]) == ()
    assert as_tasks(pa.table({"text": pa.array([], pa.string())})) == ()


@pytest.mark.parametrize("count", [0, 1, 5, BATCH_ROWS, 2 * BATCH_ROWS + 500])
def test_documents_without_fields_are_as_many_as_were_given(count: int) -> None:
    without_columns = pa.table({"n": range(count)}).select([])
    for given in ([{}] * count, without_columns, pd.DataFrame(index=range(count))):
        tasks = as_tasks(given)
        assert sum(task.num_items for task in tasks) == len(rows_of(tasks)) == count


def test_other_tasks_stay_as_they_are() -> None:
    tasks = (EmptyTask(), Task("a", 3))
    assert as_tasks(list(tasks)) == tasks


def test_many_documents_make_batches_of_a_size_that_depends_on_them_alone() -> None:
    tasks = as_tasks([{"text": str(n)} for n in range(2 * BATCH_ROWS + 1)])
    assert [task.num_items for task in tasks] == [BATCH_ROWS, BATCH_ROWS, 1]
    large = as_tasks(["x" * 2**21] * 5)
    assert [task.num_items for task in large] == [1, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("a text", "initial_tasks: a str is not a list of documents"),
        ({"text": "a"}, "initial_tasks: a dict is not a list of documents"),
        (3, "initial_tasks: 3 is not a list of documents"),
        ([3], "initial_tasks[0]: 3 is neither a text, a dict nor a task"),
        (["a", {"text": "b"}], "initial_tasks[1] is a dict, and those before it are texts"),
        ([{"text": "a"}, None], "initial_tasks[1]: None is neither"),
        ([EmptyTask], "initial_tasks[0]: EmptyTask is a class; write EmptyTask("),
        ([{"text": "a", "x": object()}], "initial_tasks: column 'x': <object object at"),
        ([{"text": "a", "x": [lambda: 1]}], "is a function, which no column can hold"),
        ([DocumentBatch([{"text": object()}])], "initial_tasks: column 'text':"),
        (pd.DataFrame({"text": ["a"], "x": [object()]}), "column 'x':"),
        ([{3: "a"}], "the name of a column is 3, which is not a text"),
        ([{"text": "\ud800"}], "column 'text':"),
        (pa.table([["a"], ["b"]], names=["text", "text"]), "the columns 'text' come twice"),
    ],
)
def test_what_is_no_document_is_refused_at_once(given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        as_tasks(given)
