# SPDX-License-Identifier: Apache-2.0
"""The texts of a batch as bytes: from lines, from Arrow, from Python values, and how they follow their records."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, batch_of_lines
from thresher.core.documents import batch as batch_module
from thresher.core.documents.batch import DocumentBatch
from thresher.kernels.counts.text_counts import PADDING
from thresher.stages.text.columns import text_column as module
from thresher.stages.text.columns.text_column import NO_TEXT, TextColumn, plain_texts, text_column

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(TEXTS, st.none(), st.integers(), st.just(["x"]), st.just({"text": "inner"}))


def texts_of(column: TextColumn) -> list[str | None]:
    """Every record's text; `None` where it has none."""
    records = np.arange(len(column.rows))
    has = column.has_text(records)
    found = iter(column.strings(records[has]))
    return [next(found) if there else None for there in has.tolist()]


def strings_in(values: list[Any]) -> list[str | None]:
    return [value if isinstance(value, str) else None for value in values]


@settings(deadline=None)
@given(st.lists(VALUES, max_size=8), st.booleans())
def test_lines_give_the_strings_that_a_decoder_gives(values: list[Any], ascii_only: bool) -> None:
    lines = [json.dumps({"n": 1, "text": value}, ensure_ascii=ascii_only).encode() for value in values]
    assert texts_of(text_column(batch_of_lines(lines), "text")) == strings_in(values)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.text(st.characters(codec="utf-8"), max_size=9)), max_size=8),
    st.sampled_from([pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]),
    st.integers(0, 3),
    st.integers(0, 8),
)
def test_every_arrow_type_of_strings_gives_its_values_also_where_it_is_a_slice(
    values: list[str | None], kind: pa.DataType, first: int, cut: int
) -> None:
    array = pa.array([*["ahead"] * first, *values], pa.string()).cast(kind)
    chunks = [array[first : first + cut], array[first + cut :]]
    batch = DocumentBatch(pa.table({"text": pa.chunked_array([c for c in chunks if len(c)], kind)}))
    column = text_column(batch, "text")
    assert texts_of(column) == values
    texts = column.texts
    assert all(end + PADDING <= len(texts.data) for end in texts.ends.tolist())


@settings(deadline=None)
@given(st.lists(st.one_of(VALUES, st.text(max_size=5), st.just("half a pair: \ud800")), max_size=8))
def test_python_values_give_their_strings(values: list[Any]) -> None:
    assert texts_of(module._from_values(values)) == strings_in(values)


def test_an_arrow_column_with_room_behind_it_is_not_copied() -> None:
    array = pa.array(["one", "two", "x" * 100], pa.large_string())
    column = text_column(DocumentBatch(pa.table({"text": array[:2]})), "text")
    assert column.texts.data.ctypes.data == array.buffers()[2].address
    assert texts_of(column) == ["one", "two"]


def test_kernels_may_take_every_buffer_for_one_that_can_be_written_to() -> None:
    for batch in (batch_of([{"text": "a"}]), DocumentBatch(pa.table({"text": ["a" * 200, "b"]}))):
        assert text_column(batch, "text").texts.data.flags.writeable


def test_a_missing_column_has_no_texts() -> None:
    assert texts_of(text_column(DocumentBatch([{"other": 1}]), "text")) == [None]
    assert texts_of(text_column(batch_of([{"other": 1}]), "text")) == [None]


def test_records_that_are_left_keep_their_texts_and_counts_without_a_copy() -> None:
    batch = batch_of([{"text": "a"}, {"text": 1}, {"text": "c"}])
    column = text_column(batch, "text")
    assert text_column(batch, "text") is column
    fewer = text_column(batch.take([2, 0]), "text")
    assert fewer.texts is column.texts
    assert fewer.counts is column.counts
    assert texts_of(fewer) == ["c", "a"]
    gone = batch.drop([0], "rule")._dropped[0].batch
    assert texts_of(text_column(gone, "text")) == ["a"]


def test_a_column_that_is_replaced_gets_new_texts_and_others_stay() -> None:
    batch = batch_of([{"text": "a", "title": "t"}])
    old, title = text_column(batch, "text"), text_column(batch, "title")
    changed = batch.replace("text", ["b"])
    assert texts_of(text_column(changed, "text")) == ["b"]
    assert text_column(changed, "text") is not old
    assert text_column(changed, "title") is title


def test_of_a_large_batch_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MOST_REMEMBERED", 3)
    monkeypatch.setattr(module, "MOST_REMEMBERED", 3)
    batch = batch_of([{"text": "a"}])
    assert text_column(batch, "text") is not text_column(batch, "text")
    assert plain_texts(batch, "text").strings(np.array([0])) == ["a"]
    assert not batch._memo


def test_python_code_gets_the_texts_that_kernels_have_already() -> None:
    batch = batch_of([{"text": "é"}, {"text": None}])
    assert plain_texts(batch, "text").has_text(np.array([0, 1])).tolist() == [True, False]
    column = text_column(batch, "text")
    assert plain_texts(batch, "text") is column
    assert column.strings(np.array([0]))[0] is column.strings(np.array([0]))[0], "decoded once"


def test_texts_of_some_records_decode_no_other() -> None:
    batch = batch_of_lines([b'{"text": "a"}', b"not json", b'{"text": 3}'])
    some = np.array([0, 2])
    assert plain_texts(batch, "text", some).has_text(np.array([0, 1, 2])).tolist() == [True, False, False]
    assert text_column(batch, "text", some).rows.tolist() == [0, NO_TEXT, NO_TEXT]
