# SPDX-License-Identifier: Apache-2.0
"""What travels beside a table: ids, lines, and the trace of a user's rows."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from thresher.core.documents.records import FrameTrace, RawLines, RecordIds

A, B = ("aaaaaaaaaaaa:", "a.jsonl"), ("bbbbbbbbbbbb:", "b.jsonl")


def ids_of(*positions: int, source: tuple[str, str] = A) -> RecordIds:
    return RecordIds((source,), np.array(positions, dtype=np.int64))


def test_an_id_is_the_files_prefix_and_the_position() -> None:
    ids = ids_of(0, 17)
    assert ids.strings() == ["aaaaaaaaaaaa:0", "aaaaaaaaaaaa:17"]
    assert ids.at(1) == "aaaaaaaaaaaa:17"
    assert ids.source_at(1) == A


def test_ids_of_several_files_stay_with_their_files() -> None:
    ids = RecordIds.concat([ids_of(0, 5), ids_of(0, source=B), ids_of(9)])
    assert ids.strings() == ["aaaaaaaaaaaa:0", "aaaaaaaaaaaa:5", "bbbbbbbbbbbb:0", "aaaaaaaaaaaa:9"]
    assert ids.take(np.array([2, 0])).strings() == ["bbbbbbbbbbbb:0", "aaaaaaaaaaaa:0"]


def test_children_count_behind_the_id_of_their_parent() -> None:
    children = ids_of(4, 7).children(1, 2)
    assert children.strings() == ["aaaaaaaaaaaa:7/0", "aaaaaaaaaaaa:7/1"]
    assert children.children(1, 1, first=3).strings() == ["aaaaaaaaaaaa:7/1/3"]
    mixed = RecordIds.concat([ids_of(1), children])
    assert mixed.strings() == ["aaaaaaaaaaaa:1", "aaaaaaaaaaaa:7/0", "aaaaaaaaaaaa:7/1"]


def test_ids_travel_by_pickle() -> None:
    ids = RecordIds.concat([ids_of(0), ids_of(3, source=B).children(0, 2)])
    assert pickle.loads(pickle.dumps(ids)).strings() == ids.strings()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), unique=True), st.booleans(), st.data())
def test_rows_are_found_by_id_whatever_order_they_come_in(
    keys: list[tuple[int, int]], with_child: bool, data: st.DataObject
) -> None:
    sources = (A, B, ("cccccccccccc:r", "c.parquet"))
    ids = RecordIds(
        sources,
        np.array([position for _, position in keys], dtype=np.int64),
        np.array([which for which, _ in keys], dtype=np.int64),
        tuple("/1" if with_child else "" for _ in keys) if with_child else None,
    )
    rows = data.draw(st.lists(st.integers(0, len(keys) - 1))) if keys else []
    found = ids.rows_of(ids.take(np.array(rows, dtype=np.int64)))
    assert found is not None
    assert found.tolist() == rows


def test_an_id_that_is_not_there_is_told() -> None:
    assert ids_of(0, 5).rows_of(ids_of(5, 6)) is None
    assert ids_of(0, 5).rows_of(ids_of(5, source=B)) is None
    assert ids_of(0, 5).rows_of(ids_of(5).children(0, 1)) is None
    assert ids_of().rows_of(ids_of(1)) is None


@given(st.lists(st.binary(max_size=6).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_are_what_they_were_after_every_way_of_picking_them(lines: list[bytes], data: st.DataObject) -> None:
    raw = RawLines.join(lines)
    rows = data.draw(st.lists(st.integers(0, len(lines) - 1))) if lines else []
    picked = raw.take(np.array(rows, dtype=np.int64))
    wanted = [lines[row] for row in rows]
    for form in (picked, picked.compact(), pickle.loads(pickle.dumps(picked)), RawLines.join(picked.lines())):
        assert [bytes(line) for line in form.lines()] == wanted
        assert bytes(form.blob()) == b"".join(line + b"\n" for line in wanted)
        assert form.nbytes == sum(map(len, wanted))
    assert [bytes(picked.line(row)) for row in range(len(picked))] == wanted


def test_a_few_lines_of_a_large_buffer_do_not_drag_it_along() -> None:
    raw = RawLines.join([b"x" * 10_000] * 100)
    assert len(pickle.dumps(raw.take(np.array([3])), protocol=5)) < 30_000
    assert raw.compact() is raw


def test_the_trace_of_a_frame_holds_row_numbers_but_no_keys() -> None:
    frame = pd.DataFrame({"a": [1, 2, 3]})
    trace = FrameTrace.start(frame[frame["a"] > 1], 2).take(np.array([1]))
    assert (trace.size, trace.rows.tolist()) == (2, [1])
    assert trace.labels is not None
    assert trace.labels.tolist() == [1, 2]
    assert FrameTrace.start(frame.set_index("a"), 3).labels is None
    assert FrameTrace.start(frame.set_index(pd.Index(["x", "y", "z"])), 3).labels is None
    assert FrameTrace.start([{"a": 1}], 1).labels is None
