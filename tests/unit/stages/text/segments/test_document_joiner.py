# SPDX-License-Identifier: Apache-2.0
"""Segments become documents again, wherever batches end."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from thresher.core.documents.batch import DocumentBatch
from thresher.core.records.record_task import Gathered
from thresher.errors import PlanError, UsageError
from thresher.stages.io.jsonl.reader import JsonlReader
from thresher.stages.io.jsonl.writer import JsonlWriter
from thresher.stages.text.segments import document_joiner
from thresher.stages.text.segments.document_joiner import APART, DocumentJoiner
from thresher.stages.text.segments.document_splitter import DocumentSplitter

Record = dict[str, Any]


def gathered(stage: DocumentJoiner, batches: Sequence[Sequence[Record]]) -> list[Gathered]:
    """What a unit of these batches gives, batch by batch and at its end."""
    kept = stage.begin_unit()
    made = [stage.take(kept, batch_of(records)) for records in batches]
    return [*made, stage.end_unit(kept)]


def joined(stage: DocumentJoiner, batches: Sequence[Sequence[Record]]) -> list[Record]:
    return [record for made in gathered(stage, batches) if len(made.batch) for record in written(made.batch)]


def segment(document: Any, number: int, text: str, **more: Any) -> Record:
    return {"id": document, "segment_id": number, "text": text, **more}


def test_segments_are_joined_in_one_batch() -> None:
    records = [segment("a", 0, "A0", n=1), segment("a", 1, "A1", n=2), segment("b", 0, "B0", n=3)]
    assert joined(DocumentJoiner(), [records]) == [
        {"id": "a", "text": "A0\n\nA1", "n": 1},
        {"id": "b", "text": "B0", "n": 3},
    ]


def test_and_over_the_ends_of_batches() -> None:
    batches = [
        [segment("a", 0, "A0"), segment("b", 0, "B0")],
        [segment("b", 1, "B1")],
        [segment("b", 2, "B2")],
        [segment("b", 3, "B3"), segment("c", 0, "C0"), segment("d", 0, "D0")],
        [segment("e", 0, "E0")],
    ]
    expected = ["A0", "B0 B1 B2 B3", "C0", "D0", "E0"]
    assert [record["text"] for record in joined(DocumentJoiner(" "), batches)] == expected


def test_what_is_held_back_is_one_document_at_most() -> None:
    stage = DocumentJoiner()
    kept = stage.begin_unit()
    for number in range(50):
        made = stage.take(kept, batch_of([segment(number, 0, "x"), segment(number, 1, "y")]))
        assert len(made.batch) == (number > 0)
        assert sum(map(len, kept.parts)) == 2


def test_numbers_give_the_order_and_the_first_segment_the_other_fields_and_the_id() -> None:
    records = [segment("a", 2, "z", n=2), segment("a", 0, "x", n=0), segment("a", 1, "y", n=1)]
    batch = batch_of(records)
    assert batch.ids is not None
    stage = DocumentJoiner("")
    kept = stage.begin_unit()
    stage.take(kept, batch)
    made = stage.end_unit(kept)
    assert written(made.batch) == [{"id": "a", "text": "xyz", "n": 0}]
    assert made.batch.ids is not None
    assert made.batch.ids.strings() == [batch.ids.at(1)]
    assert made.merged == 2


def test_a_document_of_one_segment_keeps_its_line() -> None:
    stage = DocumentJoiner(drop_segment_id_field=False)
    kept = stage.begin_unit()
    batch = batch_of([segment("a", 0, "x")])
    stage.take(kept, batch)
    assert [bytes(line) for line in stage.end_unit(kept).batch.json_lines()] == [bytes(x) for x in batch.json_lines()]


class TestMaxLength:
    stage = DocumentJoiner("--", max_length=10, length_field="length", drop_segment_id_field=False)

    def texts(self, *lengths: int) -> list[tuple[str, int, int]]:
        records = [segment("a", n, str(n) * length, length=length) for n, length in enumerate(lengths)]
        return [(r["text"], r["length"], r["segment_id"]) for r in joined(self.stage, [records[:1], records[1:]])]

    def test_a_document_is_cut_where_it_would_be_longer(self) -> None:
        assert self.texts(4, 4, 4) == [("0000--1111", 10, 0), ("2222", 4, 1)]

    def test_a_segment_alone_may_be_longer(self) -> None:
        assert self.texts(12, 1) == [("0" * 12, 12, 0), ("1", 1, 1)]

    def test_both_parameters_go_together(self) -> None:
        with pytest.raises(UsageError, match="max_length is given and length_field is not"):
            DocumentJoiner(max_length=3)
        with pytest.raises(UsageError, match="length_field is given and max_length is not"):
            DocumentJoiner(length_field="n")


def test_segments_that_others_came_between_are_set_aside() -> None:
    batches = [
        [segment("a", 0, "A0"), segment("b", 0, "B0"), segment("a", 1, "A1")],
        [segment("b", 1, "B1"), segment("a", 2, "A2"), segment("b", 2, "B2")],
    ]
    made = gathered(DocumentJoiner(" "), batches)
    assert [r["text"] for g in made if len(g.batch) for r in written(g.batch)] == ["A0", "B0 B1 B2"]
    apart = [rows for g in made for rows in g.batch._failed]
    assert [(rows.error, len(rows.messages)) for rows in apart] == [(APART, 1), (APART, 1)]
    assert "Sort the input by 'id'" in apart[0].messages[0]


def test_how_many_documents_are_remembered_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_joiner, "REMEMBERED", 10)
    stage = DocumentJoiner()
    kept = stage.begin_unit()
    for number in range(100):
        stage.take(kept, batch_of([segment(number, 0, "x")]))
    assert len(kept.closed) == 10


@pytest.mark.parametrize(
    "record",
    [
        {"id": None, "segment_id": 0, "text": "x"},
        {"segment_id": 0, "text": "x"},
        {"id": "a", "text": "x"},
        {"id": "a", "segment_id": "one", "text": "x"},
        {"id": ["a"], "segment_id": 0, "text": "x"},
        {"id": "a", "segment_id": 0},
        {"id": "a", "segment_id": True, "text": "x"},
    ],
)
def test_a_record_that_is_no_segment_is_set_aside(record: Record) -> None:
    made = gathered(DocumentJoiner(), [[record, segment("b", 0, "B0")]])
    assert sum(len(rows.messages) for g in made for rows in g.batch._failed) == 1
    assert [r["text"] for g in made if len(g.batch) for r in written(g.batch)] == ["B0"]


def test_outside_of_a_run_a_batch_is_a_unit() -> None:
    made = DocumentJoiner(" ").process(batch_of([segment("a", 0, "x"), segment("a", 1, "y"), segment("b", 0, "z")]))
    assert isinstance(made, DocumentBatch)
    assert [record["text"] for record in written(made)] == ["x y", "z"]


@given(
    documents=st.lists(st.integers(1, 5), max_size=8),
    cuts=st.lists(st.integers(0, 40), max_size=6),
    limit=st.none() | st.integers(1, 12),
)
@settings(max_examples=150, deadline=None)
def test_where_batches_end_makes_no_difference(documents: list[int], cuts: list[int], limit: int | None) -> None:
    records = [segment(d, n, f"{d}.{n}", length=3) for d, count in enumerate(documents) for n in range(count)]
    places = sorted({0, len(records), *(cut for cut in cuts if cut < len(records))})
    batches = [records[start:end] for start, end in itertools.pairwise(places)]
    stage = DocumentJoiner("|", max_length=limit, length_field=None if limit is None else "length")
    made = gathered(stage, batches)
    whole = joined(stage, [records]) if records else []
    assert [r for g in made if len(g.batch) for r in written(g.batch)] == whole
    assert sum(len(g.batch) + g.merged for g in made) == len(records)


class TestPlaceInAPipeline:
    def test_behind_a_splitter_it_may_stand_anywhere(self) -> None:
        reader = JsonlReader("x")
        assert DocumentJoiner().place_fault([reader, DocumentSplitter("\n")]) == ""

    def test_segments_from_files_need_whole_files(self) -> None:
        from thresher import Pipeline
        from thresher.core.planning.plan import make_plan

        assert "JsonlReader(files_per_partition=1)" in DocumentJoiner().place_fault([JsonlReader("x")])
        assert DocumentJoiner().place_fault([JsonlReader("x", files_per_partition=1)]) == ""
        with pytest.raises(PlanError, match="DocumentJoiner: no stage before it creates the column 'segment_id'"):
            make_plan(Pipeline("p", stages=[JsonlReader("x"), DocumentJoiner(), JsonlWriter("y")]))

    def test_it_needs_a_writer(self) -> None:
        from thresher import Pipeline
        from thresher.core.planning.plan import make_plan

        with pytest.raises(PlanError, match="put a writer at the end"):
            make_plan(Pipeline("p", stages=[JsonlReader("x"), DocumentSplitter("\n"), DocumentJoiner()]))

    def test_what_follows_it_shares_its_worker(self) -> None:
        from thresher import Modify, Pipeline, Resources
        from thresher.core.planning.plan import make_plan

        stages = [JsonlReader("x"), DocumentSplitter("\n"), DocumentJoiner()]
        plan = make_plan(Pipeline("p", stages=[*stages, Modify(str.strip), JsonlWriter("y")]))
        assert plan.groups()[-1][-3:] == ["DocumentJoiner", "Modify", "JsonlWriter"]
        greedy = Modify(str.strip).with_(resources=Resources(cpus=1, gpus=1))
        with pytest.raises(PlanError, match="put it before DocumentJoiner"):
            make_plan(Pipeline("p", stages=[*stages, greedy, JsonlWriter("y")]))
