# SPDX-License-Identifier: Apache-2.0
"""Columns of token ids are read alike in every form that a file may give them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.unit.core.json_batches import batch_of
from thresher.core.documents.batch import DocumentBatch
from thresher.stages.text.columns.token_ids import token_lists

LISTS = [[1, 2], [], [300]]
FORMS = {
    "uint16": pa.array(LISTS, pa.list_(pa.uint16())),
    "int32": pa.array(LISTS, pa.list_(pa.int32())),
    "large": pa.array(LISTS, pa.large_list(pa.int64())),
    "part": pa.array([[9], *LISTS, [8]], pa.list_(pa.int32())).slice(1, 3),
    "chunks": pa.chunked_array([LISTS[:1], LISTS[1:]], pa.list_(pa.uint16())),
    "view": pa.array(LISTS, pa.list_view(pa.int32())),
    "unsigned": pa.array(LISTS, pa.list_(pa.uint64())),
}


def as_lists(batch: DocumentBatch, limit: int = 2**31) -> list[list[int]]:
    batch.name_records()
    rest, found = token_lists(batch, "ids", limit)
    assert len(rest) == len(found)
    return [found.ids[start:end].tolist() for start, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]


@pytest.mark.parametrize("form", FORMS)
def test_every_arrow_type_of_lists_gives_the_same_ids(form: str) -> None:
    assert as_lists(DocumentBatch(pa.table({"ids": FORMS[form]}))) == LISTS


def test_json_lines_give_them_too() -> None:
    assert as_lists(batch_of([{"ids": ids} for ids in LISTS])) == LISTS
    assert as_lists(batch_of([])) == []


@pytest.mark.parametrize(
    "wrong", [None, 5, "12", [-1], [1.5], [True], [None], ["1"], [[1]], [2**31], [2**70], {"a": 1}]
)
def test_what_is_not_a_list_of_ids_is_set_aside(wrong: Any) -> None:
    batch = batch_of([{"ids": [7]}, {"ids": wrong}, {"ids": [8]}])
    rest, found = token_lists(batch, "ids", 2**31)
    assert found.ids.tolist() == [7, 8]
    assert len(rest) == 2
    (failed,) = rest._failed
    assert failed.error == ("field-missing" if wrong is None else "not-token-ids")
    assert "a list of token ids from 0 to 2,147,483,647 is needed" in failed.messages[0]


def test_ids_outside_of_the_vocabulary_are_named_with_their_place() -> None:
    rest, found = token_lists(batch_of([{"ids": [1, 500]}, {"ids": [2]}]), "ids", 500)
    assert found.ids.tolist() == [2]
    assert "field 'ids' holds 500 at position 1, a list of token ids from 0 to 499" in rest._failed[0].messages[0]
