# SPDX-License-Identifier: Apache-2.0
"""Tasks: what they carry and what they count for."""

from __future__ import annotations

import pytest

from thresher.core.task import EmptyTask, FileGroupTask, RawChunk, Task


def test_a_task_is_concrete_and_counts_for_one() -> None:
    task = Task(dataset_name="set", data={"any": "thing"}, metadata={"k": 1}, task_id="mine")
    assert (task.dataset_name, task.data, task.metadata, task.num_items) == ("set", {"any": "thing"}, {"k": 1}, 1)


def test_ids_are_the_frameworks() -> None:
    task = Task(task_id="mine")
    assert task.task_id == ""
    with pytest.raises(AttributeError):
        task.task_id = "mine"  # type: ignore[misc]  # that is the point


def test_metadata_is_the_tasks_own_copy() -> None:
    shared = {"k": 1}
    Task(metadata=shared).metadata["k"] = 2
    assert shared == {"k": 1}


def test_data_can_be_replaced() -> None:
    task = Task(data=1)
    task.data = [1, 2]
    assert task.data == [1, 2]


@pytest.mark.parametrize(
    ("task", "items", "nbytes"),
    [
        (Task(data=b"12345"), 1, 5),
        (Task(data="123"), 1, 3),
        (Task(data=memoryview(b"1234")), 1, 4),
        (EmptyTask(), 0, 0),
        (FileGroupTask(data=["a", "bc"]), 2, 3),
        (FileGroupTask(), 0, 0),
        (RawChunk(b"{}\n", 10, ("0123456789ab:", "f")), 0, 3),
    ],
)
def test_items_and_bytes_are_known_where_that_is_cheap(task: Task, items: int, nbytes: int) -> None:
    assert (task.num_items, task.nbytes) == (items, nbytes)
