# SPDX-License-Identifier: Apache-2.0
"""Stages side by side, told what they say in one go: the same as if each was called with what the last one left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.core.json_batches import batch_of
from thresher.core.documents.batch import MOST_REMEMBERED, DocumentBatch
from thresher.core.records.record_task import score_list
from thresher.core.scores import RuleDrops, Verdict, memo_key
from thresher.stages.text.judging.rule import CountRule, DocumentFilter
from thresher.stages.text.judging.score_filter import Score, ScoreFilter
from thresher.stages.text.rules.lines.repeated_ngrams import RepeatingTopNGramsFilter
from thresher.stages.text.rules.lines.repeated_passages import RepeatedLinesFilter
from thresher.stages.text.rules.web.urls import UrlsFilter
from thresher.stages.text.rules.words.word_counts import MeanWordLengthFilter, WordCountFilter

TEXTS = st.lists(
    st.one_of(
        st.text("ab \n.é", max_size=12), st.sampled_from(["http://a.b c", "a b a b a b", "one\none\ntwo", "x y"])
    ),
    min_size=1,
    max_size=12,
)
WORDS = ["one", "one two", "one two three", "one two three four"]


class NoNumber(WordCountFilter):
    """A rule that finds no number in some texts: it lies between no bounds."""

    def score_counts(self, counts: Any) -> Any:
        return np.where(counts["words", 0] > 2, np.nan, 1.0)

    def score_document(self, text: str) -> float:
        return float("nan") if len(text.split()) > 2 else 1.0


class Mine(DocumentFilter):
    """A rule in Python."""

    def score_document(self, text: str) -> int:
        return len(text)

    def keep_document(self, score: int) -> bool:
        return score > 3


def side_by_side(*stages: ScoreFilter) -> ScoreFilter:
    """The first of some stages that know of each other, as a worker's do."""
    first, *others = (stage.with_(name=f"stage{n}") for n, stage in enumerate(stages))
    first.beside = tuple(others)
    assert isinstance(first, ScoreFilter)
    return first


def lines(texts: list[Any]) -> DocumentBatch:
    """Records as a reader of JSON lines makes them; each has its row as its number."""
    return batch_of([{"text": text, "row": row} for row, text in enumerate(texts)])


def told(verdicts: list[Verdict]) -> list[Any]:
    """Verdicts as plain values."""
    return [(verdict.left.tolist(), [_plain(drops) for drops in verdict.drops]) for verdict in verdicts]


def _plain(drops: RuleDrops) -> tuple[Any, ...]:
    return drops.rule, drops.rows.tolist(), repr(score_list(drops.scores)), drops.threshold


def called(first: ScoreFilter, batch: DocumentBatch) -> list[Any]:
    """The same of stages that are called one by one."""
    found = []
    for stage in (first, *first.beside):
        made = stage.process(batch)
        drops = [(d.rule, d.batch.values("row"), repr(list(d.scores or ())), d.threshold) for d in made._dropped]
        found.append((made.values("row"), drops))
        made._dropped = []
        batch = made
    return found


@given(TEXTS, st.booleans())
@settings(deadline=None)
def test_verdicts_are_what_the_stages_do(texts: list[str], kept: bool) -> None:
    first = side_by_side(
        ScoreFilter([WordCountFilter(2, 5), MeanWordLengthFilter(1.0, 4)]),
        ScoreFilter(UrlsFilter(0.5), invert=True),
        ScoreFilter(NoNumber(0, 9)),
        ScoreFilter([RepeatedLinesFilter(0.6), RepeatingTopNGramsFilter(2, 0.5)]),
    )
    expected = called(first, lines(texts))
    first.also_scores = first.beside if kept else None
    assert told(list(first.verdicts(lines(texts)))) == expected


def test_where_nothing_is_left_the_other_stages_have_nothing_to_say() -> None:
    first = side_by_side(ScoreFilter(WordCountFilter(50)), ScoreFilter(UrlsFilter()))
    assert told(list(first.verdicts(lines(WORDS))))[1] == ([], [])


def test_scores_that_are_kept_are_there_from_the_first_verdict_to_the_last() -> None:
    first = side_by_side(ScoreFilter(WordCountFilter(2)), ScoreFilter(UrlsFilter()))
    first.also_scores = first.beside
    batch = lines(WORDS)
    verdicts = first.verdicts(batch)
    next(verdicts)
    assert score_list(batch._memo[memo_key("stage0/WordCountFilter", "text")]) == [1, 2, 3, 4]
    assert score_list(batch._memo[memo_key("stage1/UrlsFilter", "text")]) == [0.0] * 4
    list(verdicts)
    assert memo_key("stage1/UrlsFilter", "text") not in batch._memo, "nobody needs them any more"


def test_a_count_is_worked_out_for_the_records_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    first = side_by_side(ScoreFilter(WordCountFilter(3)), ScoreFilter(UrlsFilter()))
    asked: list[int] = []
    found = UrlsFilter.score_counts

    def noting(rule: CountRule, counts: Any) -> Any:
        asked.append(len(next(iter(counts.values()))))
        return found(rule, counts)  # type: ignore[arg-type]

    monkeypatch.setattr(UrlsFilter, "score_counts", noting)
    list(first.verdicts(lines(WORDS)))
    assert asked == [2]


@pytest.mark.parametrize(
    "second",
    [ScoreFilter(Mine()), ScoreFilter(UrlsFilter(), score_field="urls")],
    ids=["a rule in Python", "a score that is noted"],
)
def test_stages_that_do_more_have_to_be_called(second: ScoreFilter) -> None:
    assert not list(side_by_side(ScoreFilter(WordCountFilter(2)), second).verdicts(lines(WORDS)))


def test_a_stage_that_only_notes_scores_has_to_be_called() -> None:
    first = ScoreFilter(WordCountFilter(2))
    first.beside = (Score(UrlsFilter(), "urls"),)
    assert not list(first.verdicts(lines(WORDS)))


def test_a_subclass_with_its_own_process_has_to_be_called() -> None:
    class Own(ScoreFilter):
        def process(self, task: DocumentBatch) -> DocumentBatch:
            return super().process(task)

    assert not list(side_by_side(ScoreFilter(WordCountFilter(2)), Own(UrlsFilter())).verdicts(lines(WORDS)))


def test_records_without_a_text_are_set_aside_by_a_call() -> None:
    first = side_by_side(ScoreFilter(WordCountFilter(2)), ScoreFilter(UrlsFilter()))
    assert not list(first.verdicts(lines(["one two", None])))


def test_a_table_has_to_be_given_to_each_stage() -> None:
    first = side_by_side(ScoreFilter(WordCountFilter(2)), ScoreFilter(UrlsFilter()))
    assert not list(first.verdicts(DocumentBatch([{"text": "one two"}])))


def test_a_batch_that_is_too_large_to_be_remembered_is_judged_by_pieces() -> None:
    first = side_by_side(ScoreFilter(WordCountFilter(2)), ScoreFilter(UrlsFilter()))
    assert not list(first.verdicts(lines(["x" * (MOST_REMEMBERED // 2), "y" * (MOST_REMEMBERED // 2)])))


def test_known_scores_are_used_by_a_call() -> None:
    first = side_by_side(ScoreFilter(WordCountFilter(2)), ScoreFilter(UrlsFilter()))
    batch = lines(WORDS)
    batch._memo[memo_key("stage1/UrlsFilter", "text")] = [0.0, None, 1.0, None]
    assert not list(first.verdicts(batch))
