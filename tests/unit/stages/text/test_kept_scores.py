# SPDX-License-Identifier: Apache-2.0
"""Stages that judge with scores that are known already, or that are to be kept."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, written
from thresher.core.documents.batch import DocumentBatch, concat_batches
from thresher.core.scores import memo_key
from thresher.stages.text.judging.rule import DocumentFilter
from thresher.stages.text.judging.score_filter import Score, ScoreFilter
from thresher.stages.text.rules.web.urls import UrlsFilter
from thresher.stages.text.rules.words.word_counts import WordCountFilter

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=8), st.just("a b"), st.just("http://x.y")), max_size=8)


class Length(DocumentFilter):
    """A rule that counts how often it is asked, and fails on some texts."""

    def __init__(self, least: int = 2) -> None:
        self.least = least
        self.asked: list[str] = []

    def score_document(self, text: str) -> int:
        self.asked.append(text)
        if "!" in text:
            raise ValueError("as it should")
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score >= self.least


def known(batch: DocumentBatch, column: str) -> list[Any]:
    return batch._memo[memo_key(column, "text")]


def lend(batch: DocumentBatch, column: str, scores: list[Any]) -> DocumentBatch:
    batch._memo[memo_key(column, "text")] = scores
    return batch


def told(batch: DocumentBatch) -> list[Any]:
    dropped = [(d.rule, written(d.batch), list(d.scores or ()), d.threshold) for d in batch._dropped]
    failed = [(f.error, [] if f.batch is None else written(f.batch), list(f.messages)) for f in batch._failed]
    return [written(batch), dropped, failed]


def test_a_known_score_is_not_computed_again() -> None:
    rule = Length()
    batch = lend(batch_of([{"text": "abc"}, {"text": "x"}, {"text": "de"}]), "ScoreFilter/Length", [3, None, 0])
    kept = ScoreFilter(rule, score_field="n").process(batch)
    assert rule.asked == ["x"]
    assert [(d.rule, d.scores) for d in kept._dropped] == [("Length", [1, 0])]
    assert kept.values("n") == [3]


def test_scores_are_forgotten_when_the_text_changes() -> None:
    batch = lend(batch_of([{"text": "abc"}]), "ScoreFilter/Length", [0])
    rule = Length()
    assert len(ScoreFilter(rule).process(batch.replace("text", ["abcd"]))) == 1
    assert rule.asked == ["abcd"]


def test_where_scores_are_kept_every_rule_scores_every_document() -> None:
    later = ScoreFilter(Length(0)).with_(name="later")
    first = ScoreFilter([WordCountFilter(2), UrlsFilter()])
    first.also_scores = (later,)
    batch = batch_of([{"text": "one"}, {"text": "one two"}, {"text": None}, {"text": "no!"}])
    kept = first.process(batch)
    assert known(batch, "later/Length") == [3, 7, None, None]
    assert known(batch, "ScoreFilter/UrlsFilter") == [0.0, 0.0, None, 0.0]
    assert known(kept, "later/Length") == [7]
    assert [known(rows.batch, "later/Length") for rows in kept._dropped] == [[3, None]]


def test_what_a_stage_behind_needs_is_found_once() -> None:
    rule = Length(0)
    later, first = ScoreFilter(rule).with_(name="later"), ScoreFilter(WordCountFilter(2))
    first.also_scores = (later,)
    later.process(first.process(batch_of([{"text": "one two"}, {"text": "one"}])))
    assert rule.asked == ["one two", "one"]


def test_scores_stay_with_their_records_when_batches_are_put_together() -> None:
    one = lend(batch_of([{"text": "a"}]), "S/r", [1])
    two = lend(batch_of([{"text": "b"}]), "S/r", [2])
    assert known(concat_batches([one, two]), "S/r") == [1, 2]


@settings(max_examples=80, deadline=None)
@given(texts=TEXTS, holes=st.sets(st.integers(0, 7)))
def test_the_result_is_the_same_with_scores_known_kept_or_neither(texts: list[Any], holes: set[int]) -> None:
    records = [{"text": text} for text in texts]
    rules = [WordCountFilter(1, 2), UrlsFilter(0.1)]

    def stage() -> ScoreFilter:
        return ScoreFilter(rules, score_field=["words", None])

    plain = told(stage().process(batch_of(records)))
    keeping, given_batch = stage(), batch_of(records)
    keeping.also_scores = (Score(len, "length"),)
    assert told(keeping.process(given_batch)) == plain
    lent = batch_of(records)
    for column in ("ScoreFilter/WordCountFilter", "ScoreFilter/UrlsFilter"):
        lend(lent, column, [None if row in holes else score for row, score in enumerate(known(given_batch, column))])
    assert told(stage().process(lent)) == plain
