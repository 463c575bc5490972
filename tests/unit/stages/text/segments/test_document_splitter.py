# SPDX-License-Identifier: Apache-2.0
"""One document becomes several: numbers, ids, and fields that keep their bytes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.documents.records import RecordIds
from thresher.core.tally import context_of
from thresher.errors import UsageError
from thresher.runtime.worker.settle import Outcome
from thresher.runtime.worker.stage_call import run_stage
from thresher.stages.text.segments import document_splitter
from thresher.stages.text.segments.document_splitter import DocumentSplitter


def run(stage: DocumentSplitter, batch: DocumentBatch) -> Outcome:
    """What a worker makes of a batch."""
    outcome = Outcome()
    for part in run_stage(context_of(stage), batch, buffered=False):
        outcome.add(part)
    return outcome


def whole(outcome: Outcome) -> DocumentBatch:
    return concat_batches([task for task in outcome.tasks if isinstance(task, DocumentBatch)])


def test_segments_have_numbers_and_all_other_fields_as_they_came() -> None:
    lines = [b'{"id" : 1.0, "text":"a\\n\\nb", "n":[1,  2]}', b'{"text":"\\u0063","id":2}']
    made = whole(run(DocumentSplitter("\n\n"), batch_of_lines(lines)))
    assert [bytes(line) for line in made.json_lines()] == [
        b'{"id" : 1.0, "text":"a", "n":[1,  2],"segment_id":0}',
        b'{"id" : 1.0, "text":"b", "n":[1,  2],"segment_id":1}',
        b'{"text":"c","id":2,"segment_id":0}',
    ]


def test_ids_of_segments_are_those_of_their_document_with_a_place() -> None:
    batch = batch_of([{"text": "a b"}, {"text": "c"}, {"text": "d e f"}])
    assert batch.ids is not None
    parents = batch.ids.strings()
    outcome = run(DocumentSplitter(" "), batch)
    ids = whole(outcome).ids
    assert ids is not None
    assert ids.strings() == [f"{parents[n]}/{k}" for n, k in [(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]]
    assert (outcome.created, outcome.merged) == (6, 3)


def test_a_segment_can_be_split_again() -> None:
    once = whole(run(DocumentSplitter(";"), batch_of([{"text": "a b;c d"}])))
    twice = whole(run(DocumentSplitter(" ", segment_id_field="part"), once))
    assert twice.ids is not None
    assert [name.split(":")[1] for name in twice.ids.strings()] == ["0/0/0", "0/0/1", "0/1/0", "0/1/1"]
    assert written(twice)[-1] == {"text": "d", "segment_id": 1, "part": 1}


def test_a_number_that_is_there_already_is_replaced_where_it_stands() -> None:
    made = whole(run(DocumentSplitter("|"), batch_of([{"segment_id": 9, "text": "a|b"}])))
    assert [bytes(line) for line in made.json_lines()] == [
        b'{"segment_id": 0, "text": "a"}',
        b'{"segment_id": 1, "text": "b"}',
    ]


def test_changes_of_earlier_stages_are_kept() -> None:
    batch = batch_of([{"text": "x", "n": 1}]).replace("text", ["a|b"]).replace("more", ["m"])
    assert written(whole(run(DocumentSplitter("|"), batch))) == [
        {"text": "a", "n": 1, "more": "m", "segment_id": 0},
        {"text": "b", "n": 1, "more": "m", "segment_id": 1},
    ]


def test_rows_of_a_table_are_split_too() -> None:
    table = pa.table({"text": ["a|b", "c"], "n": [1, 2]})
    batch = DocumentBatch.from_table(table, RecordIds((("f:r", "f.parquet"),), pa.array([0, 1]).to_numpy()))
    made = whole(run(DocumentSplitter("|"), batch))
    assert written(made) == [
        {"text": "a", "n": 1, "segment_id": 0},
        {"text": "b", "n": 1, "segment_id": 1},
        {"text": "c", "n": 2, "segment_id": 0},
    ]
    assert made.ids is not None
    assert made.ids.strings() == ["f:r0/0", "f:r0/1", "f:r1/0"]


def test_many_segments_go_on_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_splitter, "_AT_A_TIME", 500)
    batch = batch_of([{"text": "a b c", "n": n} for n in range(50)])
    outcome = run(DocumentSplitter(" "), batch)
    assert len(outcome.tasks) > 5
    assert [record["n"] for record in written(whole(outcome))] == [n for n in range(50) for _ in range(3)]


def test_records_without_a_text_are_set_aside_and_the_counts_add_up() -> None:
    outcome = run(DocumentSplitter(" "), batch_of([{"text": "a b"}, {}, {"text": 3}, {"text": ""}]))
    assert [record["text"] for record in written(whole(outcome))] == ["a", "b", ""]
    assert sorted(rows.error for rows in outcome.failed) == ["field-missing", "not-a-string"]
    assert 4 + outcome.created == 3 + outcome.merged + sum(len(rows.messages) for rows in outcome.failed)


def test_odd_texts_survive() -> None:
    text = "a|\x00|\u2028|é|" + "\ud83d\ude00"
    made = whole(run(DocumentSplitter("|"), batch_of_lines([json.dumps({"text": text}).encode()])))
    assert [record["text"] for record in written(made)] == json.loads(json.dumps(text)).split("|")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"separator": ""}, "separator: '' is not a text of one character or more"),
        ({"separator": "x", "text_field": ""}, "text_field: '' is not the name"),
        ({"separator": "x", "segment_id_field": "text"}, "is the text field; name another"),
    ],
)
def test_a_wrong_parameter_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        DocumentSplitter(**arguments)
