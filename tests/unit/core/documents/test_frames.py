# SPDX-License-Identifier: Apache-2.0
"""Data frames, lists and arrays to Arrow and back."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tests.unit.core.json_batches import batch_of, batch_of_lines
from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.documents.frames import differing_rows, join_tables, same_value, to_column, to_frame, to_table
from thresher.core.documents.json_records import encode_rows, is_json, json_array
from thresher.core.records.reconcile import reconcile


def chunked(values: Any, kind: pa.DataType | None = None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, kind)])


def test_a_frame_keeps_integers_and_truth_values_with_gaps() -> None:
    table = pa.table(
        {
            "n": [1, None],
            "u": pa.array([2**64 - 1, None], pa.uint64()),
            "b": pa.array([True, None]),
            "j": json_array([b'{"a": 1}', b"null"]),
        }
    )
    frame = to_frame(table)
    assert list(frame.index) == [0, 1]
    assert frame["n"].tolist() == [1, pd.NA]
    assert frame["u"].tolist() == [2**64 - 1, pd.NA]
    assert frame["b"].tolist() == [True, pd.NA]
    assert frame["j"].tolist() == [{"a": 1}, None]
    assert encode_rows(to_table(frame)) == [
        b'{"n": 1, "u": 18446744073709551615, "b": true, "j": {"a":1}}',
        b'{"n": null, "u": null, "b": null, "j": null}',
    ]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None], pa.large_string()),
        ([None, None], pa.null()),
        ([1, None, 3], pa.int64()),
        ([True, None], pa.bool_()),
        ([b"x"], pa.binary()),
        (pd.Series([1.5, None]), pa.float64()),
        (pd.Series(["a", None], dtype=object), pa.large_string()),
        (pd.Series([1, pd.NA], dtype="Int64"), pa.int64()),
        (np.array([1, 2], dtype=np.int32), pa.int32()),
        ([dt.date(2020, 1, 2)], pa.date32()),
    ],
)
def test_columns_get_a_plain_type_where_one_fits(values: Any, kind: pa.DataType) -> None:
    assert to_column(values).type == kind


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([1, "a"], ["1", '"a"']),
        ([1, 2.5], ["1", "2.5"]),
        ([True, 1], ["true", "1"]),
        ([2**80], [str(2**80)]),
        ([{"a": [1]}, None, [2]], ['{"a":[1]}', "null", "[2]"]),
        (pd.Series([np.int64(1), "x", float("nan")], dtype=object), ["1", '"x"', "null"]),
    ],
)
def test_other_columns_are_carried_as_json(values: Any, texts: list[str]) -> None:
    column = to_column(values)
    assert is_json(column.type)
    assert encode_rows(pa.table({"v": column})) == [f'{{"v": {text}}}'.encode() for text in texts]


def test_tables_are_made_of_whatever_holds_records() -> None:
    wanted = [{"a": 1, "b": None}, {"a": 2, "b": "x"}]
    frame = pd.DataFrame({"a": [1, 2], "b": [None, "x"]})
    for given in (wanted, frame, pa.table({"a": [1, 2], "b": [None, "x"]}), {"a": [1, 2], "b": [None, "x"]}):
        assert to_table(given).to_pylist() == wanted
    assert to_table([{}, {}]).num_rows == 2
    assert to_table(frame[[]]).num_rows == 2


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match=r"cannot hold a set; give a pyarrow\.Table"):
        to_table({1})
    with pytest.raises(TypeError, match="a list must hold dicts, this one holds a str"):
        to_table(["x"])
    with pytest.raises(ValueError, match="the columns 'a' come twice"):
        to_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]))


@pytest.mark.parametrize(
    ("old", "new", "mask"),
    [
        (chunked(["a", None, "c"]), chunked(["a", None, "d"], pa.large_string()), [0, 0, 1]),
        (chunked([1, 2, None]), chunked([1.0, 2.5, None]), [0, 1, 0]),
        (chunked([2**53 + 1]), chunked([float(2**53)]), [1]),
        (chunked([1.0, 2.0]), chunked([1, 3]), [0, 1]),
        (chunked([1, 0]), chunked([True, False]), [1, 1]),
        (chunked([None, None]), chunked([None, 1]), [0, 1]),
        (chunked(["1"]), chunked([1]), [1]),
        (pa.chunked_array([json_array([b'{"a": 1, "b": [true]}'])]), chunked([{"b": [True], "a": 1}]), [0]),
        (chunked([[1, 2]]), chunked([[1, 3]]), [1]),
        (chunked([300]), chunked([44], pa.uint8()), [1]),
    ],
)
def test_rows_differ_where_their_json_would(old: pa.ChunkedArray, new: pa.ChunkedArray, mask: list[int]) -> None:
    assert differing_rows(old, new).tolist() == [bool(flag) for flag in mask]


def test_values_are_the_same_by_what_they_say() -> None:
    assert same_value({"a": [1, 2.0]}, {"a": [1.0, 2]})
    assert not same_value({"a": True}, {"a": 1})
    assert not same_value([1], [1, None])
    assert not same_value(None, 0)


def test_tables_that_disagree_on_a_type_are_joined_without_loss() -> None:
    joined = join_tables(
        [pa.table({"a": [1], "b": ["x"]}), pa.table({"a": ["one"]}), pa.table({"b": pa.nulls(1), "a": [2]})]
    )
    assert [json.loads(line) for line in encode_rows(joined)] == [
        {"a": 1, "b": "x"},
        {"a": "one", "b": None},
        {"a": 2, "b": None},
    ]
    narrow, wide = pa.table({"t": pa.array(["x"], pa.string())}), pa.table({"t": pa.array(["y"], pa.large_string())})
    assert join_tables([narrow, wide]).schema.field("t").type == pa.large_string()
    assert join_tables([to_table([{}]), to_table([{}])]).num_rows == 2


def test_batches_that_are_joined_keep_ids_lines_and_what_was_dropped() -> None:
    from thresher.core.documents.batch import concat_batches

    batch = batch_of([{"n": n} for n in range(4)])
    parts = [batch.take([0, 1]).drop([0], rule="r"), batch.take([2, 3]).replace("n", [2, 9])]
    joined = concat_batches(parts)
    assert [json.loads(bytes(line)) for line in joined.json_lines()] == [{"n": 1}, {"n": 2}, {"n": 9}]
    assert batch.ids is not None
    assert joined.ids is not None
    assert joined.ids.strings() == batch.ids.strings()[1:]
    assert [(rows.rule, len(rows.batch)) for rows in joined._dropped] == [("r", 1)]
    mixed = concat_batches([parts[0], DocumentBatch([{"n": "x"}])])
    assert [json.loads(bytes(line)) for line in mixed.json_lines()] == [{"n": 1}, {"n": "x"}]


def test_joined_batches_keep_bytes_as_bytes_and_lines_as_they_were() -> None:
    lines = [b'{"id": %d,  "x":1.50}' % n for n in range(4)]
    first = batch_of_lines(lines[:2]).replace("pcm", [b"\xff\x00", None])
    second = batch_of_lines(lines[2:]).replace("pcm", [b"\x01", b""]).replace("x", [1.5, 2])
    joined = concat_batches([first, second])
    assert joined.values("pcm") == [b"\xff\x00", None, b"\x01", b""]
    assert joined.column("pcm").type == pa.binary()
    assert joined.values("x") == [1.5, 1.5, 1.5, 2]
    texts = [bytes(line) for line in joined.json_lines()]
    assert texts[1] == lines[1]
    assert [text.split(b"pcm")[0] for text in texts] == [
        b'{"id": 0,  "x":1.50, "', b'{"id": 1,  "x":1.50}', b'{"id": 2,  "x":1.50, "', b'{"id": 3,  "x":2, "',
    ]  # fmt: skip


def test_batches_of_which_only_some_lost_a_column_can_be_joined() -> None:
    lines = [b'{"a": 1, "b": 2}', b'{"a": 3, "b": 4}', b'{"a": 5, "b": 6}']
    first, second = batch_of_lines(lines[:2]), batch_of_lines(lines[2:])
    without = reconcile(first, first.to_pandas().drop(columns="b"), "Stage").batch
    joined = concat_batches([without, second.replace("c", [b"x"])])
    assert joined.values("b") == [None, None, 6]
    assert joined.values("c") == [None, None, b"x"]
    assert [bytes(line) for line in joined.json_lines()][:2] == [b'{"a": 1}', b'{"a": 3}']
