# SPDX-License-Identifier: Apache-2.0
"""A batch of documents: decoded lazily, changed by copies, written back as it came."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from thresher.core.documents.batch import DocumentBatch

RECORDS = [{"text": "a", "n": 1}, {"text": "b"}, {"text": "c", "n": 3, "more": {"x": []}}]


@pytest.mark.parametrize(
    "data", [RECORDS, pd.DataFrame({"text": ["a", "b", "c"]}), pa.table({"text": ["a", "b", "c"]})]
)
def test_a_batch_is_made_of_a_list_a_frame_or_a_table(data: Any) -> None:
    batch = DocumentBatch(data, dataset_name="set", metadata={"k": 1}, task_id="ignored")
    assert len(batch) == batch.num_items == 3
    assert batch.values("text") == ["a", "b", "c"]
    assert batch.columns[0] == "text"
    assert batch.to_pandas()["text"].tolist() == ["a", "b", "c"]
    assert (batch.dataset_name, batch.metadata, batch.task_id, batch.ids) == ("set", {"k": 1}, "", None)
    assert batch.data is data


def test_a_frame_that_is_changed_in_place_is_seen() -> None:
    batch = DocumentBatch(pd.DataFrame({"text": ["a", "b"]}))
    assert batch.values("text") == ["a", "b"]
    batch.data["text"] = ["x", "y"]
    assert written(batch) == [{"text": "x"}, {"text": "y"}]


def test_lines_are_decoded_field_by_field() -> None:
    batch = batch_of(RECORDS)
    assert batch.values("n") == [1, None, 3]
    assert batch._table is None, "plain values need no table"
    assert batch.column("text").to_pylist() == ["a", "b", "c"]
    assert batch._table is not None
    assert batch._table.column_names == ["text"]
    assert batch.column("absent").to_pylist() == [None] * 3
    assert batch.columns == ["text", "n", "more"]
    assert batch.values("more") == [None, None, {"x": []}]


def test_an_untouched_batch_gives_its_lines_back() -> None:
    lines = [b'{"a":1.0}', b' {"a" : 2}']
    batch = batch_of_lines(lines)
    batch.to_pandas()
    assert batch.untouched
    assert [bytes(line) for line in batch.json_lines()] == lines


def test_taken_rows_bring_ids_lines_and_changes() -> None:
    batch = batch_of(RECORDS).replace("n", [1, 5, 3]).take([2, 1])
    assert written(batch) == [RECORDS[2], {"text": "b", "n": 5}]
    assert batch.ids is not None
    assert [batch.ids.at(row) for row in range(2)] == ["0123456789ab:36", "0123456789ab:22"]


def test_a_replaced_column_is_rewritten_only_where_it_differs() -> None:
    lines = [b'{"n":1.0, "t":"x"}', b'{"t":"y"}', b'{"n":null,"t":"z"}']
    batch = batch_of_lines(lines).replace("n", [1, 2, None])
    assert [bytes(line) for line in batch.json_lines()] == [lines[0], b'{"t":"y","n":2}', lines[2]]
    assert not batch.untouched


def test_a_column_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="the new column has 1 value for 3 records"):
        batch_of(RECORDS).replace("n", [1])


def test_dropped_and_failed_rows_are_remembered_through_every_later_step() -> None:
    batch = batch_of(RECORDS).drop([0], rule="short", scores=[0.5], threshold=1)
    batch = batch.set_aside([0], error="odd", messages=["because"]).replace("n", [7]).take([0])
    assert written(batch) == [{**RECORDS[2], "n": 7}]
    (dropped,) = batch._dropped
    assert (dropped.rule, dropped.scores, dropped.threshold, written(dropped.batch)) == (
        "short",
        [0.5],
        1,
        [RECORDS[0]],
    )
    assert dropped.batch._dropped == []
    (failed,) = batch._failed
    assert failed.batch is not None
    assert (failed.error, failed.messages, written(failed.batch)) == ("odd", ["because"], [RECORDS[1]])


def test_setting_data_makes_it_another_batch_that_knows_what_it_was() -> None:
    batch = batch_of(RECORDS)
    batch.data = pd.DataFrame({"text": ["new"]})
    assert len(batch) == 1
    assert batch.ids is None
    assert written(batch) == [{"text": "new"}]
    assert batch._before is not None
    assert written(batch._before) == RECORDS


def test_a_batch_travels_by_pickle_with_all_that_belongs_to_it() -> None:
    batch = batch_of(RECORDS).replace("n", [1, 2, 4]).take([1, 2])
    batch.values("text")
    assert batch.ids is not None
    for again in (
        pickle.loads(pickle.dumps(batch, protocol=5)),
        pickle.loads(pickle.dumps(batch)),
        copy.deepcopy(batch),
    ):
        assert written(again) == written(batch)
        assert again.ids is not None
        assert again.ids.strings() == batch.ids.strings()
    fresh = pickle.loads(pickle.dumps(DocumentBatch(RECORDS)))
    assert [r["text"] for r in written(fresh)] == ["a", "b", "c"]


def test_bytes_are_those_of_the_lines() -> None:
    batch = batch_of(RECORDS)
    assert batch.nbytes == sum(len(json.dumps(record)) for record in RECORDS)
    assert batch.take([1]).nbytes == len(json.dumps(RECORDS[1]))
    assert DocumentBatch(RECORDS).nbytes > 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 2**16)),
        st.tuples(st.just("replace"), st.sampled_from(["text", "n", "new"])),
        st.tuples(st.just("drop"), st.integers(0, 2**16)),
        st.tuples(st.just("decode"), st.sampled_from(["text", "n", "all"])),
        st.tuples(st.just("pickle"), st.just(0)),
    ),
    max_size=8,
)


@settings(max_examples=120, deadline=None)
@given(st.integers(0, 6), STEPS)
def test_any_row_of_steps_gives_what_plain_dicts_would(count: int, steps: list[tuple[str, Any]]) -> None:
    """However decoding, taking, replacing, dropping and sending are mixed, records stay true."""
    records: list[dict[str, Any]] = [{"n": n, "text": f"t{n}"} if n % 2 else {"text": f"t{n}"} for n in range(count)]
    batch = batch_of(records)
    for number, (step, argument) in enumerate(steps):
        if step == "take":
            rows = [row for row in range(len(records)) if argument >> row & 1]
            batch, records = batch.take(rows), [records[row] for row in rows]
        elif step == "drop":
            rows = [row for row in range(len(records)) if argument >> row & 1]
            batch = batch.drop(rows, rule="r")
            records = [record for row, record in enumerate(records) if row not in rows]
        elif step == "replace":
            values = [f"{number}-{row}" for row in range(len(records))]
            batch = batch.replace(argument, values)
            records = [{**record, argument: value} for record, value in zip(records, values, strict=True)]
        elif step == "pickle":
            batch = pickle.loads(pickle.dumps(batch, protocol=5))
        else:
            assert len(batch.to_pyarrow() if argument == "all" else batch.column(argument)) == len(records)
    assert written(batch) == records
    assert batch.values("text") == [record["text"] for record in records]
