# SPDX-License-Identifier: Apache-2.0
"""Rules over kernels and rules in Python in one chain: the same decisions, and nothing is counted that nobody needs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of, batch_of_lines, written
from thresher.core.documents.batch import DocumentBatch
from thresher.core.pipeline import Pipeline
from thresher.core.planning.plan import make_plan
from thresher.core.scores import introduce, memo_key
from thresher.kernels.counts import modules_of, text_counts
from thresher.kernels.counts.text_counts import Count, SharedCounts
from thresher.stages.io.jsonl.reader import JsonlReader
from thresher.stages.text.judging import evaluate as judging
from thresher.stages.text.judging.rule import CountRule, DocumentFilter, is_counted, keeps_by_bounds
from thresher.stages.text.judging.score_filter import Score, ScoreFilter
from thresher.stages.text.rules.characters.character_shares import NonAlphaNumericFilter
from thresher.stages.text.rules.lines.repeated_ngrams import RepeatingDuplicateNGramsFilter, RepeatingTopNGramsFilter
from thresher.stages.text.rules.lines.repeated_passages import RepeatedLinesFilter
from thresher.stages.text.rules.web.urls import UrlsFilter
from thresher.stages.text.rules.words.word_counts import MeanWordLengthFilter, WordCountFilter

RULES: list[CountRule] = [
    WordCountFilter(2, 5),
    MeanWordLengthFilter(1.5, 4),
    NonAlphaNumericFilter(0.4),
    RepeatedLinesFilter(0.6),
    UrlsFilter(0.5),
    RepeatingTopNGramsFilter(2, 0.5),
    RepeatingDuplicateNGramsFilter(2, 0.3),
]
VALUES = st.one_of(
    st.none(),
    st.integers(),
    st.text("ab \n.é", max_size=12),
    st.sampled_from(["http://a.b c", "a b a b a b", "one\none\ntwo", "x " * 40]),
)


class InPython(DocumentFilter):
    """A rule whose kernels are not used."""

    def __init__(self, rule: CountRule) -> None:
        self._rule = rule
        self.name = rule.name

    def score_document(self, text: str) -> Any:
        return self._rule.score_document(text)

    def keep_document(self, score: Any) -> bool:
        return self._rule.keep_document(score)

    def thresholds(self) -> dict[str, Any]:
        return self._rule.thresholds()


class Longer(DocumentFilter):
    """A user's rule."""

    def score_document(self, text: str) -> int:
        assert type(text) is str
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score >= 3


def told(batch: DocumentBatch) -> tuple[Any, Any, Any]:
    """All that a judged batch says."""
    return (
        written(batch),
        [(d.rule, written(d.batch), repr(d.scores), d.threshold) for d in batch._dropped],
        [(f.error, written(f.batch) if f.batch else None, f.messages) for f in batch._failed],
    )


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[Count], list[int]]]:
    """What groups are asked for, and for which texts."""
    calls: list[tuple[str, list[Count], list[int]]] = []
    load = text_counts.load_group

    class Spy:
        def __init__(self, name: str) -> None:
            self.name = name

        def compute(self, work: SharedCounts, wanted: Sequence[Count], rows: Any) -> Any:
            calls.append((self.name, sorted(wanted), rows.tolist()))
            return load(self.name).compute(work, wanted, rows)

    monkeypatch.setattr(text_counts, "load_group", Spy)
    return calls


@settings(max_examples=150, deadline=None)
@given(
    st.lists(VALUES, max_size=10),
    st.lists(st.tuples(st.sampled_from([*RULES, Longer()]), st.booleans(), st.booleans()), min_size=1, max_size=5),
)
def test_kernels_and_python_decide_alike_and_say_the_same(values: list[Any], chain: list[Any]) -> None:
    lines = [json.dumps({"n": n, "text": value}).encode() for n, value in enumerate(values)]
    inverted = [flag for _, flag, _ in chain]
    columns: list[str | None] = [f"score-{n}" if noted else None for n, (_, _, noted) in enumerate(chain)]
    rules = [rule for rule, _, _ in chain]
    plain = [InPython(rule) if isinstance(rule, CountRule) else rule for rule in rules]
    found = ScoreFilter(rules, score_field=columns, invert=inverted).process(batch_of_lines(lines))
    expected = ScoreFilter(plain, score_field=columns, invert=inverted).process(batch_of_lines(lines))
    assert told(found) == told(expected)


@settings(max_examples=50, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=10), st.integers(1, 200))
def test_a_large_batch_is_judged_by_pieces_with_the_same_result(values: list[Any], most: int) -> None:
    lines = [json.dumps({"n": n, "text": value}).encode() for n, value in enumerate(values)]
    stage = ScoreFilter([RULES[0], Longer(), RULES[3]])
    whole = told(stage.process(batch_of_lines(lines)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "MOST_REMEMBERED", most)
        assert told(stage.process(batch_of_lines(lines))) == whole
        keeping = ScoreFilter([RULES[0], Longer(), RULES[3]])
        keeping.also_scores = ()
        assert told(keeping.process(batch_of_lines(lines))) == whole


def test_later_rules_count_only_in_what_earlier_ones_left(asked: list[Any]) -> None:
    batch = batch_of([{"text": "one"}, {"text": "a b\na b"}, {"text": None}, {"text": "c d"}])
    ScoreFilter([WordCountFilter(2), RepeatedLinesFilter(1), RepeatingTopNGramsFilter(2, 1)]).process(batch)
    rows = {group: rows for group, _, rows in asked}
    assert rows["lines"] == [1, 3]
    assert rows["ngrams"] == [3]


def test_all_that_a_chain_needs_of_a_group_is_counted_at_once(asked: list[Any]) -> None:
    rules = [RepeatingTopNGramsFilter(2, 1), RepeatingTopNGramsFilter(3, 1), RepeatingDuplicateNGramsFilter(5, 1)]
    ScoreFilter(rules).process(batch_of([{"text": "a b c d e f"}]))
    wanted = [wanted for group, wanted, _ in asked if group == "ngrams"]
    assert wanted == [[("duplicate_ngram_characters", 5), ("top_ngram_characters", 2), ("top_ngram_characters", 3)]]


def test_stages_in_a_row_share_texts_and_counts(asked: list[Any]) -> None:
    pipeline = Pipeline("rules")
    pipeline.add_stage(JsonlReader("unread"))
    for rule in (WordCountFilter(1), RepeatingTopNGramsFilter(2, 1), Longer(), RepeatingTopNGramsFilter(3, 1)):
        pipeline.add_stage(ScoreFilter(rule))
    plan = make_plan(pipeline)
    introduce(plan.stages, ([step.stage for step in op.steps] for op in plan.ops))
    batch = batch_of([{"text": "a b c d e f"}, {"text": "g h i"}])
    for stage in plan.stages[1:]:
        batch = stage.process(batch)
    assert len(batch) == 2
    assert len([group for group, _, _ in asked if group == "ngrams"]) == 1


def test_known_scores_make_kernels_look_at_no_text(asked: list[Any]) -> None:
    batch = batch_of_lines([b"no record", b"of any kind"])
    batch._memo[memo_key("ScoreFilter/WordCountFilter", "text")] = np.array([1, 7])
    kept = ScoreFilter(WordCountFilter(5)).process(batch)
    assert [d.scores for d in kept._dropped] == [[1]]
    assert not asked


def test_scores_that_are_kept_have_no_gaps_where_every_record_has_a_text() -> None:
    batch = batch_of([{"text": "one"}, {"text": "one two"}])
    stage = ScoreFilter([WordCountFilter(2), MeanWordLengthFilter(9, 10)])
    stage.also_scores = ()
    kept = stage.process(batch)
    key = memo_key("ScoreFilter/MeanWordLengthFilter", "text")
    assert batch._memo[key].tolist() == [3.0, 3.0]
    assert [d.batch._memo[key].tolist() for d in kept._dropped] == [[3.0], [3.0]]


def test_a_column_of_scores_has_whole_numbers_where_the_rule_counts() -> None:
    scored = Score(WordCountFilter(), "words").process(batch_of([{"text": "one two"}]))
    assert bytes(scored.json_lines()[0]) == b'{"text": "one two", "words": 2}'


def test_kernels_stand_for_a_rule_only_where_nobody_changed_what_it_scores() -> None:
    class Doubled(WordCountFilter):
        def score_document(self, text: str) -> int:
            return 2 * len(text.split())

    class Both(Doubled):
        def score_counts(self, counts: Any) -> Any:
            return 2 * counts["words", 0]

    class Stricter(WordCountFilter):
        def keep_document(self, score: int) -> bool:
            return score > 3

    own = WordCountFilter()
    own.score_document = len  # type: ignore[method-assign,assignment]  # a user may do that
    assert is_counted(WordCountFilter())
    assert is_counted(Both())
    assert is_counted(Stricter())
    assert not is_counted(Doubled())
    assert not is_counted(own)
    assert not is_counted(Longer())
    assert keeps_by_bounds(Doubled())
    assert not keeps_by_bounds(Stricter())
    kept = ScoreFilter(Stricter(1)).process(batch_of([{"text": "a b"}, {"text": "a b c d"}]))
    assert kept.values("text") == ["a b c d"]


def test_building_a_pipeline_of_rules_loads_neither_numba_nor_numpy() -> None:
    code = (
        "import sys, thresher as t\n"
        "t.ScoreFilter([t.WordCountFilter(), t.RepeatingTopNGramsFilter(), t.UrlsFilter()]).inputs()\n"
        "print([name for name in ('numba', 'numpy', 'pyarrow') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_plan_says_which_kernels_its_workers_need() -> None:
    assert ScoreFilter(Longer()).preloads() == []
    assert ScoreFilter([Longer(), WordCountFilter()]).preloads()[1:] == [
        *modules_of([("words", 0)]),
        "thresher.kernels.json.text",
    ]
