# SPDX-License-Identifier: Apache-2.0
"""Tasks: what they carry and what they count for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
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


def test_the_size_of_nested_data_is_what_it_holds() -> None:
    large = bytes(10**6)
    for data in (large, memoryview(large), pa.py_buffer(large), [large], {"a": large}, (large,), {"a": [{"b": large}]}):
        assert 10**6 <= Task(data=data).nbytes < 1.01 * 10**6
    assert Task(data=np.zeros(10**6)).nbytes == 8 * 10**6
    many = Task(data=[bytes(100) for _ in range(100_000)])
    assert 100 * 100_000 <= many.nbytes < 130 * 100_000
    assert Task(data={str(n): bytes(1000) for n in range(10_000)}).nbytes > 10**7
