# SPDX-License-Identifier: Apache-2.0
"""Texts that a modifier has changed stay bytes until somebody wants something else, and nobody can tell."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from tests.unit.stages.text.modifiers.any_text import as_bytes
from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.tally import context_of
from thresher.stages.text.columns.late_texts import with_texts
from thresher.stages.text.modifiers.line_remover import NewlineNormalizer
from thresher.stages.text.modifiers.pii_redactor import PiiRedactor
from thresher.stages.text.modifiers.url_remover import UrlRemover
from thresher.stages.text.modify import Modify
from thresher.stages.text.segments.document_joiner import without_column

LINES = [
    b'{"text" : "see http://a.org now","n":1.0}',
    b'{"n":2.0,   "text":"nothing \\u0061t all"}',
    b' {"text":"\\n\\n\\n\\nme@x.org","n":3}\r',
    b'{"text":"www.a.org", "text":"8.8.8.8\\ttwice"}',
]
CHAIN = [NewlineNormalizer(), UrlRemover(), PiiRedactor(kinds=["email"]), PiiRedactor(kinds=["ip"])]
TEXTS = ["see  now", "nothing at all", "\n\n<EMAIL>", "<IP>\ttwice"]


def changed() -> DocumentBatch:
    batch = batch_of_lines(LINES)
    for modifier in CHAIN:
        batch = Modify(modifier).process(batch)
    return batch


def test_nothing_is_made_arrow_on_the_way_to_the_writer() -> None:
    batch = changed()
    assert [bytes(line) for line in batch.json_lines()] == [
        b'{"text" : "see  now","n":1.0}',
        LINES[1],
        b'{"text":"\\n\\n<EMAIL>","n":3}',
        b'{"text": "<IP>\\ttwice"}',
    ]
    assert batch._table is None
    assert list(batch._late) == ["text"]


def test_whoever_asks_sees_the_new_texts() -> None:
    assert changed().values("text") == TEXTS
    assert changed().column("text").to_pylist() == TEXTS
    assert changed().to_pyarrow().column("text").to_pylist() == TEXTS
    assert changed().to_pandas()["text"].tolist() == TEXTS
    assert changed().columns == ["text", "n"]


def test_the_lines_are_the_same_whether_somebody_has_asked_or_not() -> None:
    asked = changed()
    asked.to_pyarrow()
    assert not asked._late
    assert [bytes(line) for line in asked.json_lines()] == [bytes(line) for line in changed().json_lines()]


def test_another_process_gets_the_new_texts() -> None:
    batch = changed()
    other = pickle.loads(pickle.dumps(batch))
    assert other.values("text") == TEXTS
    assert written(other) == written(changed())
    assert batch.values("text") == TEXTS


def test_some_of_the_records_keep_their_texts() -> None:
    batch = changed().take([2, 0])
    assert written(batch) == [{"text": TEXTS[2], "n": 3}, {"text": TEXTS[0], "n": 1.0}]
    assert batch.values("text") == [TEXTS[2], TEXTS[0]]
    assert changed().drop([0, 2, 3], "rule").untouched
    assert written(concat_batches([changed().take([3]), changed().take([0])])) == [
        {"text": TEXTS[3]},
        {"text": TEXTS[0], "n": 1.0},
    ]


def test_a_batch_that_was_asked_does_not_change_the_one_it_came_from() -> None:
    first = changed()
    second = Modify(lambda text: text + "!").process(first)
    assert second.values("text") == [text + "!" for text in TEXTS]
    assert first.values("text") == TEXTS
    assert Modify(UrlRemover()).process(first).values("text") == TEXTS


def test_the_column_can_be_replaced_or_removed() -> None:
    replaced = changed().replace("text", ["a", "b", "c", "d"])
    assert [record["text"] for record in written(replaced)] == ["a", "b", "c", "d"]
    assert [record.get("text") for record in written(without_column(changed(), "text"))] == [None] * 4
    assert written(changed().replace("more", [1, 2, 3, 4]))[0] == {"text": TEXTS[0], "n": 1.0, "more": 1}


def test_a_column_that_was_arrow_before_stays_arrow() -> None:
    batch = batch_of_lines(LINES[:1])
    assert batch.to_pyarrow().num_rows == 1
    made = Modify(UrlRemover()).process(batch)
    assert not made._late
    assert made.values("text") == TEXTS[:1]
    assert DocumentBatch([{"text": "www.a.org b"}]).values("text") == ["www.a.org b"]
    assert Modify(UrlRemover()).process(DocumentBatch([{"text": "www.a.org b"}])).values("text") == [" b"]


def test_half_a_surrogate_pair_is_refused_at_once() -> None:
    batch = batch_of([{"text": "a"}, {"text": "b"}])
    with pytest.raises(ValueError, match="UTF8"):
        with_texts(batch, "text", as_bytes(["x", "y\ud800"]), np.array([True, False]))
    assert with_texts(batch, "text", as_bytes(["x", "b"]), np.array([True, False])).values("text") == ["x", "b"]


def test_counts_are_of_what_is_replaced_wherever_it_is_found() -> None:
    texts = ["a@b.org c@d.org", "jos\xe9@b.org", "8.8.8.8", "a@b.org 8.8.8.8", "2001:4860:4860::8888"]
    stage = Modify(PiiRedactor(kinds=["email", "ip"]))
    new = stage.process(batch_of([{"text": text} for text in texts]))
    assert new.values("text") == ["<EMAIL> <EMAIL>", "<EMAIL>", "<IP>", "<EMAIL> <IP>", "<IP>"]
    assert context_of(stage).noted.counts == {"replaced email": 4, "replaced ip": 3}


@given(st.lists(st.lists(st.sampled_from(["www.a.b", " ", "\n", "a@b.org", "8.8.8.8", "é", '"', "x"])), max_size=6))
@settings(max_examples=100, deadline=None)
def test_a_chain_over_bytes_is_the_chain_over_strings(pieces: list[list[str]]) -> None:
    records = [{"id": number, "text": "".join(some)} for number, some in enumerate(pieces)]
    over_bytes = Modify(list(CHAIN)).process(batch_of(records))
    as_strings = Modify([modifier.modify_document for modifier in CHAIN]).process(batch_of(records))
    assert [bytes(line) for line in over_bytes.json_lines()] == [bytes(line) for line in as_strings.json_lines()]
    rows = np.arange(len(records))[::-2]
    assert over_bytes.take(rows).values("text") == [record["text"] for record in written(as_strings.take(rows))]
