# SPDX-License-Identifier: Apache-2.0
"""Score, Filter and ScoreFilter on batches."""

from __future__ import annotations

import json
from typing import Any

import cloudpickle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from thresher.core.documents.batch import DocumentBatch
from thresher.errors import UsageError
from thresher.stages.text.judging.rule import DocumentFilter
from thresher.stages.text.judging.score_filter import Filter, Score, ScoreFilter
from thresher.stages.text.rules.web.urls import UrlsFilter
from thresher.stages.text.rules.words.word_counts import MeanWordLengthFilter, WordCountFilter


class Longer(DocumentFilter):
    """A user's rule."""

    def __init__(self, min_length: int) -> None:
        self.min_length = min_length
        self.ready = False

    def load_model(self) -> None:
        self.ready = True

    def score_document(self, text: str) -> int:
        assert type(text) is str
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score >= self.min_length


def texts_of(batch: DocumentBatch) -> list[Any]:
    return batch.values("text")


def reasons(batch: DocumentBatch) -> list[tuple[str, list[Any], list[Any], Any]]:
    return [(d.rule, d.batch.values("text"), list(d.scores or ()), d.threshold) for d in batch._dropped]


def test_documents_that_fail_are_dropped_with_rule_score_and_threshold() -> None:
    batch = batch_of([{"text": "one two"}, {"text": "one"}, {"text": "a b c"}])
    kept = ScoreFilter(WordCountFilter(min_words=2, max_words=2)).process(batch)
    assert texts_of(kept) == ["one two"]
    assert reasons(kept) == [("WordCountFilter", ["one", "a b c"], [1, 3], {"min_words": 2, "max_words": 2})]


def test_the_first_rule_that_fails_is_the_reason_and_later_ones_are_not_asked() -> None:
    asked: list[str] = []

    class Spy(Longer):
        def score_document(self, text: str) -> int:
            asked.append(text)
            return super().score_document(text)

    batch = batch_of([{"text": "x"}, {"text": "one two"}, {"text": "one two three"}])
    kept = ScoreFilter([WordCountFilter(min_words=2), Spy(8)]).process(batch)
    assert texts_of(kept) == ["one two three"]
    assert [(rule, texts) for rule, texts, _, _ in reasons(kept)] == [("WordCountFilter", ["x"]), ("Spy", ["one two"])]
    assert asked == ["one two", "one two three"]


def test_untouched_documents_keep_their_bytes() -> None:
    lines = [b'{"text" :"a b","z":1e1}', b'{"z":[ ],  "text":"c"}']
    kept = ScoreFilter(WordCountFilter(min_words=2)).process(batch_of_lines(lines))
    assert [bytes(line) for line in kept.json_lines()] == lines[:1]


def test_where_nothing_is_dropped_the_batch_itself_goes_on() -> None:
    batch = batch_of([{"text": "a b"}])
    assert ScoreFilter(WordCountFilter(min_words=1)).process(batch) is batch


def test_invert_keeps_what_the_rule_would_drop() -> None:
    batch = batch_of([{"text": "one two"}, {"text": "one"}])
    kept = ScoreFilter(WordCountFilter(min_words=2), invert=True).process(batch)
    assert texts_of(kept) == ["one"]


def test_scores_are_kept_in_a_column_of_kept_and_dropped_documents() -> None:
    batch = batch_of([{"text": "one two"}, {"text": "one"}])
    kept = ScoreFilter(WordCountFilter(min_words=2), score_field="words").process(batch)
    assert written(kept) == [{"text": "one two", "words": 2}]
    assert written(kept._dropped[0].batch) == [{"text": "one", "words": 1}]


def test_records_without_a_string_are_set_aside_each_with_what_is_there() -> None:
    batch = batch_of([{"text": "a b"}, {"other": 1}, {"text": None}, {"text": 5}, {"text": ["x"] * 50}, {"text": "c"}])
    kept = ScoreFilter(WordCountFilter(min_words=1)).process(batch)
    assert texts_of(kept) == ["a b", "c"]
    found = {rows.error: (written(rows.batch), list(rows.messages)) for rows in kept._failed if rows.batch is not None}
    assert found["field-missing"][0] == [{"other": 1}, {"text": None}]
    assert found["not-a-string"][0] == [{"text": 5}, {"text": ["x"] * 50}]
    assert found["not-a-string"][1][0] == "field 'text' holds an int (5), a string is needed"
    assert all(len(message) < 120 for message in found["not-a-string"][1])


def test_rules_of_a_chain_may_read_different_columns() -> None:
    batch = batch_of(
        [{"title": "T", "text": "a b"}, {"title": "T U", "text": "a"}, {"text": "no title"}, {"title": "V W"}]
    )
    kept = ScoreFilter([WordCountFilter(2), WordCountFilter(2)], text_field=["title", "text"]).process(batch)
    assert len(kept) == 0
    assert [(d.rule, len(d.batch)) for d in kept._dropped] == [("WordCountFilter", 1), ("WordCountFilter-2", 1)]
    assert [(f.error, len(f.batch or ())) for f in kept._failed] == [("field-missing", 1), ("field-missing", 1)]


def test_a_users_exception_is_left_to_the_framework() -> None:
    class Broken(Longer):
        def score_document(self, text: str) -> int:
            raise RuntimeError("no such luck")

    with pytest.raises(RuntimeError, match="no such luck"):
        ScoreFilter(Broken(1)).process(batch_of([{"text": "x"}]))


def test_a_subclass_of_a_rule_may_score_texts_in_its_own_way() -> None:
    class Doubled(WordCountFilter):
        def score_document(self, text: str) -> int:
            return 2 * len(text.split())

    kept = ScoreFilter(Doubled(min_words=4)).process(batch_of([{"text": "one two"}, {"text": "one"}]))
    assert texts_of(kept) == ["one two"]


def test_models_are_loaded_in_setup_and_a_stage_travels_by_pickle() -> None:
    stage = ScoreFilter([Longer(2), WordCountFilter(1)])
    stage.setup()
    assert [getattr(judge, "ready", None) for judge in stage._judges] == [True, None]
    again = cloudpickle.loads(cloudpickle.dumps(stage.with_(name="length")))
    assert again.name == "length"
    assert texts_of(again.process(batch_of([{"text": "a"}, {"text": "bb"}]))) == ["bb"]


def test_columns_are_declared() -> None:
    stage = ScoreFilter([WordCountFilter(), UrlsFilter()], text_field=["a", "b"], score_field=["words", "urls"])
    assert stage.inputs() == (["data"], ["a", "b"])
    assert stage.outputs() == (["data"], ["words", "urls"])
    assert Filter(bool, "score").inputs() == (["data"], ["score"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filter_obj": []}, "filter_obj: an empty list"),
        ({"filter_obj": len}, "is not a DocumentFilter; it needs score_document"),
        ({"filter_obj": [UrlsFilter()] * 3, "text_field": ["a", "b"]}, "text_field: 2 values for a chain of 3"),
        ({"filter_obj": [UrlsFilter()] * 2, "score_field": "one"}, "give a list of 2 different names"),
        ({"filter_obj": UrlsFilter(), "text_field": 3}, "text_field: 3 is not the name of a column"),
        ({"filter_obj": [UrlsFilter()] * 2, "invert": [True] * 3}, "invert: 3 values for a chain of 2"),
    ],
)
def test_a_wrong_parameter_is_refused_at_once(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ScoreFilter(**arguments)


def test_a_list_of_one_is_as_good_as_the_thing_itself() -> None:
    batch = batch_of([{"body": "one two"}, {"body": "one"}])
    kept = ScoreFilter([WordCountFilter(2), Longer(1)], text_field=["body"], invert=[False]).process(batch)
    assert kept.values("body") == ["one two"]


def test_score_adds_columns_and_drops_nothing() -> None:
    batch = batch_of([{"text": "one two"}, {"text": ""}])
    scored = Score([len, WordCountFilter()], score_field=["length", "words"]).process(batch)
    assert written(scored) == [{"text": "one two", "length": 7, "words": 2}, {"text": "", "length": 0, "words": 0}]


def test_score_refuses_what_is_no_function() -> None:
    with pytest.raises(UsageError, match="neither a function of a text nor a DocumentFilter"):
        Score("len", score_field="n")  # type: ignore[arg-type]  # that is the point


def test_filter_keeps_by_the_value_of_a_column() -> None:
    def is_even(value: int) -> bool:
        return value % 2 == 0

    batch = batch_of([{"text": str(n), "n": n} for n in range(4)])
    kept = Filter(is_even, "n").process(batch)
    assert kept.values("n") == [0, 2]
    assert reasons(kept) == [("is_even", ["1", "3"], [1, 3], None)]


def test_filter_takes_a_rule_for_its_bounds() -> None:
    batch = batch_of([{"text": "", "words": n} for n in (1, 60)])
    kept = Filter(WordCountFilter(), "words").process(batch)
    assert kept.values("words") == [60]
    assert kept._dropped[0].rule == "WordCountFilter"
    assert kept._dropped[0].threshold == {"min_words": 50, "max_words": 100000}


def test_filter_gives_none_for_a_missing_value_and_names_a_lambda_after_the_stage() -> None:
    batch = batch_of([{"url": "http://x"}, {"text": "b"}])
    kept = Filter(lambda url: url is None, "url").process(batch)
    assert written(kept) == [{"text": "b"}]
    assert kept._dropped[0].rule == "Filter"


def test_filter_chain_narrows_step_by_step() -> None:
    batch = batch_of([{"n": n} for n in range(6)])
    kept = Filter([lambda n: n > 1, lambda n: n > 1, lambda n: n < 5], ["n", "n", "n"], [False, False, False]).process(
        batch
    )
    assert kept.values("n") == [2, 3, 4]
    assert [(d.rule, d.batch.values("n")) for d in kept._dropped] == [("Filter", [0, 1]), ("Filter-3", [5])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(), st.text("ab \n", max_size=12)), max_size=12), st.data())
def test_a_chain_does_what_its_rules_do_one_by_one(values: list[Any], data: st.DataObject) -> None:
    """Fused or not, the same records are kept, for the same reasons, in the same order."""
    rules = data.draw(
        st.lists(
            st.sampled_from([WordCountFilter(2), MeanWordLengthFilter(1.5), Longer(3), UrlsFilter(), Longer(5)]),
            min_size=1,
            max_size=4,
            unique_by=lambda rule: rule.name,
        )
    )
    lines = [json.dumps({"n": n, "text": value}).encode() for n, value in enumerate(values)]
    together = ScoreFilter(rules).process(batch_of_lines(lines))
    one_by_one = batch_of_lines(lines)
    for rule in rules:
        one_by_one = ScoreFilter(rule).process(one_by_one)
    assert written(together) == written(one_by_one)
    assert [(d.rule, written(d.batch), d.scores) for d in together._dropped] == [
        (d.rule, written(d.batch), d.scores) for d in one_by_one._dropped
    ]
    assert [(f.error, f.messages) for f in together._failed] == [(f.error, f.messages) for f in one_by_one._failed]
