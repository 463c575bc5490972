# SPDX-License-Identifier: Apache-2.0
"""A type of records that defines `to_dicts` and `from_dicts` alone has everything else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.records.record_json import decode_record, encode_record
from thresher.core.records.record_task import RecordTask
from thresher.core.task import exact_size
from thresher.records import RecordIds

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


class Things(RecordTask):
    """Things, as they are given."""

    def __init__(self, records: list[dict[str, Any]]) -> None:
        super().__init__()
        self.records = records

    def to_dicts(self) -> list[dict[str, Any]]:
        return self.records

    @classmethod
    def from_dicts(cls, records: Sequence[dict[str, Any]]) -> Self:
        return cls(list(records))


def things(*values: Any) -> Things:
    return Things([{"value": value} for value in values]).with_ids(RecordIds((("f:", "f"),), range(len(values))))


def test_records_are_counted_picked_dropped_and_joined_with_their_ids() -> None:
    rest = things(*"abcd").drop([1], "rule").set_aside([0], "bad", ["a is bad"])
    joined = rest.joined([things("e")])
    assert (rest.num_items, [record["value"] for record in joined.to_dicts()]) == (2, ["c", "d", "e"])
    assert joined.ids is not None
    assert joined.ids.strings() == ["f:2", "f:3", "f:0"]
    (dropped,), (failed,) = joined.take_dropped(), joined.take_failed()
    assert (dropped.batch.to_dicts(), failed.record_ids and failed.record_ids.at(0)) == ([{"value": "b"}], "f:0")


@given(VALUES)
def test_a_record_comes_back_from_its_json_as_it_was(value: Any) -> None:
    assert decode_record(encode_record({"value": value})) == {"value": value}


def test_arrays_numbers_and_floats_that_are_none_come_back_too() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    record = {"array": array, "deep": [{"buffer": memoryview(b"ab")}], "n": np.int64(3), "none": float("-inf")}
    back = Things.from_json_lines(things(record).json_lines(), RecordIds((("f:", "f"),), [0])).records[0]["value"]  # type: ignore[arg-type]  # lines are bytes here
    assert np.array_equal(back.pop("array"), array)
    assert back == {"deep": [{"buffer": b"ab"}], "n": 3, "none": float("-inf")}


@pytest.mark.parametrize(
    "value",
    [
        bytes(10**6),
        memoryview(bytes(10**6)),
        np.zeros(10**6, dtype=np.uint8),
        {"deep": {"deeper": [[[[[[bytes(10**6)]]]]]]}},
        np.array([bytes(5 * 10**5), bytes(5 * 10**5)], dtype=object),
    ],
)
def test_bytes_are_counted_however_deep_they_lie(value: Any) -> None:
    assert 10**6 <= things(value).nbytes < 10**6 + 3000


def test_one_large_record_among_many_small_ones_is_counted() -> None:
    values = [b""] * 5000
    values[4001] = bytes(10**6)
    batch = things(*values)
    small = sys.getsizeof({"value": b""}) + len("value")
    assert batch.nbytes == sys.getsizeof(batch.records) + 5000 * small + 10**6


def test_objects_with_attributes_are_counted_with_them() -> None:
    class Picture:
        def __init__(self) -> None:
            self.pixels = np.zeros((1000, 1000), dtype=np.uint8)

    assert exact_size([Picture(), Picture()]) > 2 * 10**6
